"""Items get the vectors of all versions in one commit, or none is written."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import compatstore as cs
from compatstore.encoders import Function
from compatstore.errors import InvalidInput, SourceError

V2 = cs.EmbeddingVersion("v2", dim=6, metric="l2")
IDS = list("abcdefghij")


def version_of(gallery):
    return gallery.status().table_version


def letters(dim, model):
    """A model that reads a word: values from its letters, and no word that holds a question mark."""

    def embed(sources):
        failures = {i: "it is torn" for i, source in enumerate(sources) if "?" in source}
        if failures:
            raise SourceError("read pages", failures)
        return [[len(source) + ord(source[0]) * (i + 1) % 17 for i in range(dim)] for source in sources]

    return Function(embed, dim, fingerprint=model)


@pytest.fixture
def halfway(upgradable):
    """v1 is active, the upgrade to v2 is ready, and nothing was cut over: both versions are live."""
    upgradable.upgrade("v2")
    return upgradable


def test_while_an_upgrade_is_open_new_items_get_both_vectors_in_one_commit(halfway, linear, vectors):
    artifact = halfway._catalog.artifact(next(iter(halfway._catalog.registry().artifacts)))
    before = version_of(halfway)
    new = vectors(2, seed=5)
    assert halfway.add({"id": ["x", "y"], "vector": new}).rows == 2
    assert version_of(halfway) == before + 1
    assert np.allclose(halfway.vectors(["x", "y"], "v2"), artifact.apply(new).vectors, atol=1e-5)
    assert halfway.get(["x"], ["v1__origin", "v2__origin"]).to_pylist() == [
        {"v1__origin": "native", "v2__origin": artifact.short_id}
    ]
    assert halfway.upgrade("v2").transformed == 0
    assert halfway.cutover("v2").missing == 0


def test_an_upsert_replaces_the_vectors_of_all_versions_in_one_commit(halfway, vectors):
    artifact = halfway._catalog.artifact(next(iter(halfway._catalog.registry().artifacts)))
    before, others = version_of(halfway), halfway.vectors(IDS[2:], "v2")
    new = vectors(3, seed=6)
    assert halfway.add({"id": ["a", "b", "new"], "vector": new}, upsert=True).rows == 3
    assert version_of(halfway) == before + 1
    assert len(halfway) == 11
    assert np.array_equal(halfway.vectors(["a", "b", "new"]), new)
    assert np.allclose(halfway.vectors(["a", "b", "new"], "v2"), artifact.apply(new).vectors, atol=1e-5)
    assert np.array_equal(halfway.vectors(IDS[2:], "v2"), others)
    assert halfway.upgrade("v2").transformed == 0


def test_an_upsert_in_the_target_clears_a_source_vector_that_fits_no_more(halfway):
    assert halfway.cutover("v2").active == "v2"
    halfway.add({"id": ["a"], "vector": np.ones((1, 6))}, upsert=True)
    assert halfway.vectors(["a"]).tolist() == [[1.0] * 6]
    assert np.isnan(halfway.vectors(["a"], "v1")).all()
    assert halfway.upgrade("v2").transformed == 0, "a native vector given by hand is not overwritten"
    assert halfway.vectors(["a"]).tolist() == [[1.0] * 6]
    assert halfway.rollback().missing == 1


def test_vectors_of_several_versions_are_taken_as_given(halfway, vectors):
    given = vectors(2, 6, seed=7)
    halfway.add({"id": ["x", "y"], "vector": vectors(2), "v2": given})
    assert np.array_equal(halfway.vectors(["x", "y"], "v2"), given)
    assert halfway.get(["x"], ["v2__origin"]).column(0).to_pylist() == ["native"]
    halfway.add({"id": ["p", "q"], "vector": vectors(2), "v2": [given[0].tolist(), None]})
    assert halfway.get(["p"], ["v2__origin"]).column(0).to_pylist() == ["native"]
    assert halfway.get(["q"], ["v2__origin"]).column(0).to_pylist() != ["native"]
    assert halfway.upgrade("v2").transformed == 0


def test_new_metadata_is_a_new_column_and_what_is_not_given_stays(gallery, vectors):
    gallery.add({"id": ["x"], "vector": vectors(1), "colour": ["red"]})
    assert gallery.get(["a", "x"], ["number", "colour"]).to_pylist() == [
        {"number": 0, "colour": None},
        {"number": None, "colour": "red"},
    ]
    gallery.add({"id": ["x"], "vector": vectors(1), "number": [7]}, upsert=True)
    gallery.add({"id": ["a"], "vector": vectors(1, seed=3)}, upsert=True)
    assert gallery.get(["x", "a"], ["source", "number", "colour"]).to_pylist() == [
        {"source": None, "number": 7, "colour": "red"},
        {"source": "a.jpg", "number": 0, "colour": None},
    ]
    assert gallery.search(vectors(1)[0], 1, where="colour = 'red'").column("id").to_pylist() == ["x"]


def test_rows_columns_and_arrow_are_one_and_the_same(tmp_path, vectors):
    import pyarrow as pa

    columns = {"id": ["a", "b"], "vector": vectors(2).tolist(), "number": [1, 2]}
    forms = [columns, pa.table(columns), pa.RecordBatch.from_pydict(columns)]
    forms.append([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])
    read = []
    for number, form in enumerate(forms):
        gallery = cs.Gallery.create(str(tmp_path / f"{number}.lance"), cs.EmbeddingVersion("v1", dim=4))
        assert gallery.add(form).rows == 2
        read.append(gallery.get(["b", "a"]))
    assert all(table.equals(read[0]) for table in read)


def test_encoders_fill_every_version_and_name_what_they_cannot_read(tmp_path):
    source = cs.EmbeddingVersion("v1", dim=3, metric="l2", encoder=letters(3, "small"))
    target = cs.EmbeddingVersion("v2", dim=5, metric="l2", encoder=letters(5, "large"))
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), source)
    added = gallery.add({"id": ["a", "b", "c"], "source": ["apple", "to?n", "cherry"], "number": [1, 2, 3]})
    assert (added.rows, added.failures) == (2, (("b", "it is torn"),))
    assert sorted(gallery.search("apple", 5).column("id").to_pylist()) == ["a", "c"]
    assert gallery.search("cherry", 1).column("number").to_pylist() == [3]

    gallery.register(target)
    assert gallery.upgrade("v2", backfill=1.0).missing == 0
    before = version_of(gallery)
    gallery.add({"id": ["d"], "source": ["date"]})
    assert version_of(gallery) == before + 1
    for name, encoder in (("v1", source.encoder), ("v2", target.encoder)):
        assert np.array_equal(gallery.vectors(["d"], name), encoder.encode(["date"]))
    gallery.add({"id": ["a"], "source": ["apricot"]}, upsert=True)
    assert np.array_equal(gallery.vectors(["a"], "v2"), target.encoder.encode(["apricot"]))
    assert gallery.cutover("v2").missing == 0


def test_when_nothing_can_be_read_nothing_is_written(tmp_path, files):
    gallery = cs.Gallery.create(
        str(tmp_path / "gallery.lance"), cs.EmbeddingVersion("v1", dim=3, encoder=letters(3, "small"))
    )
    before = files(tmp_path)
    with pytest.raises(SourceError, match="it is torn") as refusal:
        gallery.add({"id": ["a", "b"], "source": ["a?", "b?"], "fresh": [1, 2]})
    assert refusal.value.failures == {0: "it is torn", 1: "it is torn"}
    assert files(tmp_path) == before


def add_all(path, vectors, outcomes):
    gallery = cs.Gallery.open(path)
    for number in range(8):
        try:
            outcomes.append(gallery.add({"id": [f"new-{number}"], "vector": vectors}).rows)
        except InvalidInput:
            outcomes.append(0)


def test_of_two_threads_that_add_the_same_id_one_wins(gallery, tmp_path, vectors):
    path, outcomes = str(tmp_path / "gallery.lance"), []
    threads = [threading.Thread(target=add_all, args=(path, vectors(1, seed=i), outcomes)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 16
    assert sum(outcomes) == 8
    assert len(gallery) == 18
    assert gallery.get([f"new-{number}" for number in range(8)]).num_rows == 8


PROGRAM = """
import sys
import compatstore as cs
gallery = cs.Gallery.open(sys.argv[1])
sys.stdin.readline()
won = 0
for number in range(30):
    try:
        items = {"id": [f"new-{number}"], "vector": [[1.0, 2.0, 3.0, 4.0]]}
        won += gallery.add(items, upsert=sys.argv[2] == "upsert").rows
    except cs.errors.InvalidInput:
        pass
print(won)
"""


@pytest.mark.full
@pytest.mark.parametrize("way", ["add", "upsert"])
def test_of_processes_that_write_the_same_id_one_inserts_it(gallery, tmp_path, vectors, way):
    gallery.add({"id": [f"old-{number}" for number in range(1_000)], "vector": vectors(1_000)})
    command, pipe = [sys.executable, "-c", PROGRAM, str(tmp_path / "gallery.lance"), way], subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [int(process.communicate()[0]) for process in processes]
    assert sum(won) == (30 if way == "add" else 90)
    assert len(gallery) == len(set(gallery.scan(["id"]).to_arrow()["id"].to_pylist())) == 10 + 1_000 + 30


def test_two_writers_of_new_metadata_both_succeed(gallery, tmp_path, vectors):
    path, errors = str(tmp_path / "gallery.lance"), []

    def write(name):
        try:
            cs.Gallery.open(path).add({"id": [name], "vector": vectors(1), "colour": [name]})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in ("red", "blue", "green")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(gallery.get(["red", "blue", "green"]).column("colour").to_pylist()) == ["blue", "green", "red"]


def test_the_last_of_equal_ids_is_taken_where_that_is_asked_for(gallery, vectors):
    data = {"id": ["x", "y", "x"], "vector": vectors(3), "source": ["1", "2", "3"], "number": [1, 2, 3]}
    with pytest.raises(InvalidInput, match="repeated ids"):
        gallery.add(data)
    assert gallery.add(data, repeated="last").rows == 2
    assert gallery.get(["x", "y"], ["source", "number"]).to_pylist() == [
        {"source": "3", "number": 3},
        {"source": "2", "number": 2},
    ]
    np.testing.assert_array_equal(gallery.vectors(["x", "y"]), vectors(3)[[2, 1]])
    with pytest.raises(InvalidInput, match="already in the gallery"):
        gallery.add(data, repeated="last")
    with pytest.raises(InvalidInput, match="an id for every item"):
        gallery.add({"id": ["x", None], "vector": vectors(2)}, repeated="last", upsert=True)


def test_the_last_of_equal_ids_with_side_information_and_several_versions(halfway, vectors):
    data = {"id": ["x", "x"], "v1": vectors(2), "v2": vectors(2, 6)}
    assert halfway.add(data, repeated="last").rows == 1
    np.testing.assert_array_equal(halfway.vectors(["x"]), vectors(2)[1:])
    np.testing.assert_array_equal(halfway.vectors(["x"], "v2"), vectors(2, 6)[1:])


def test_items_without_a_vector_are_kept_where_that_is_asked_for(gallery, vectors):
    data = {"id": ["x", "y"], "vector": [None, vectors(1)[0].tolist()], "source": ["page", "page"], "number": [77, 77]}
    with pytest.raises(InvalidInput, match="items without a vector"):
        gallery.add(data)
    assert gallery.add(data, unembedded="keep").rows == 2
    assert gallery.get(["x", "y"], ["number"])["number"].to_pylist() == [77, 77]
    assert np.isnan(gallery.vectors(["x"])).all()
    assert gallery.search(vectors(1)[0], k=20, where="number = 77")["id"].to_pylist() == ["y"]
    assert gallery.scan(["id"], "number = 77").to_arrow()["id"].to_pylist() == ["x", "y"]
    (version,) = gallery.status().versions
    assert version.missing == 1


def test_what_an_encoder_cannot_read_is_kept_and_told(tmp_path):
    encoder = letters(4, "letters-4")
    gallery = cs.Gallery.create(str(tmp_path / "words.lance"), cs.EmbeddingVersion("v1", dim=4, encoder=encoder))
    data = {"id": ["good", "torn", "none"], "source": ["word", "wo?d", None]}
    added = gallery.add(data, unembedded="keep")
    assert (added.rows, added.failures) == (3, (("torn", "it is torn"),))
    assert np.isnan(gallery.vectors(["good", "torn", "none"])[:, 0]).tolist() == [False, True, True]
    assert gallery.add({"id": ["torn"], "source": ["word"]}, upsert=True, unembedded="keep").failures == ()
    assert not np.isnan(gallery.vectors(["torn"])).any()


def test_an_upgrade_embeds_what_had_no_vector(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "words.lance"), cs.EmbeddingVersion("v1", dim=4, model="outside"))
    gallery.add(
        {"id": ["a", "b"], "vector": [None, [1.0, 0.0, 0.0, 0.0]], "source": ["page", "word"]}, unembedded="keep"
    )
    gallery.register(cs.EmbeddingVersion("v2", dim=6, encoder=letters(6, "letters-6")))
    gallery.upgrade("v2", backfill=1.0)
    assert gallery.cutover("v2").missing == 0
    assert not np.isnan(gallery.vectors(["a", "b"])).any()


def test_a_long_id_is_not_told_whole(gallery, vectors):
    long = "x" * 100_000
    with pytest.raises(InvalidInput, match="repeated ids") as error:
        gallery.add({"id": [long, long], "vector": vectors(2)})
    assert len(str(error.value)) < 1_000
    assert "100000 characters" in str(error.value)


def test_of_many_ids_those_that_are_there_are_deleted(gallery):
    ids = [f"{number}" for number in range(6_000)]
    assert gallery.delete([*ids, "c", "a", "c"]) == 2
    assert gallery.delete(ids) == 0
    assert len(gallery.scan()) == 8
