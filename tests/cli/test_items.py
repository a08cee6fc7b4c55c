"""add, drop-columns and search, on real digits."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest


def vectors(path):
    with np.load(path) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".feather", ".arrow"])
def test_files_of_vectors_are_all_the_same_to_add(run, empty, digits, tmp_path, suffix):
    arrays = vectors(digits / "v1.npz")
    table = pa.table({name: list(column) if column.ndim > 1 else column for name, column in arrays.items()})
    path = tmp_path / f"vectors{suffix}"
    if suffix == ".npz":
        np.savez(path, ids=arrays["id"], vectors=arrays["vector"], labels=arrays["label"])
    elif suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, str(path), compression="uncompressed")
    added = run("add", empty, path, "--batch-size", 128, "--json")
    assert (added.code, added.json) == (0, {"rows": 300, "version": "v1", "failures": []})
    nearest = run("search", empty, "--id", "digit-0007", "-k", 2, "--json").json
    assert nearest[0] | {"_distance": 0} == {
        "id": "digit-0007",
        "source": None,
        "label": 7,
        "_distance": 0,
        "_version": "v1",
        "_origin": "native",
    }


@pytest.mark.parametrize(("id_type", "item"), [("string", "2"), ("int64", 2)])
def test_a_bare_matrix_is_numbered(run, tmp_path, digits, id_type, item):
    gallery, matrix = tmp_path / "g.lance", tmp_path / "m.npy"
    np.save(matrix, vectors(digits / "v1.npz")["vector"][:5])
    run("init", gallery, "--version", "v1", "--dim", 64, "--id-type", id_type)
    assert run("add", gallery, matrix).out == "5 items added in v1\n"
    assert run("search", gallery, "--id", "2", "-k", 1, "--json").json[0]["id"] == item


def test_a_folder_of_classes(run, tmp_path, pictures, pixels):
    gallery = tmp_path / "g.lance"
    run("init", gallery, "--version", "v1", "--encoder", pixels, "--metric", "l2")
    added = run("add", gallery, pictures, "--trust-code", "--batch-size", 5)
    assert added.code == 0
    assert added.out == "12 items added in v1\n"
    assert "1 items could not be embedded" in added.err
    assert "class-0/broken.png: " in added.err
    query = pictures / "class-1" / "01.png"
    (found,) = run("search", gallery, "--image", query, "-k", 1, "--trust-code", "--json").json
    assert (found["id"], found["source"], found["label"]) == ("class-1/01.png", str(query), "class-1")


def test_images_by_name_and_failures_as_json(run, tmp_path, pictures, pixels):
    gallery = tmp_path / "g.lance"
    run("init", gallery, "--version", "v1", "--encoder", pixels)
    names = (pictures / "class-0" / "broken.png", pictures / "class-0" / "00.png")
    added = run("add", gallery, *names, "--trust-code", "--json")
    assert added.code == 0
    assert added.json["rows"] == 1
    assert [item for item, _ in added.json["failures"]] == ["broken.png"]


def test_nothing_but_broken_images_is_an_error(run, tmp_path, pictures, pixels):
    gallery = tmp_path / "g.lance"
    run("init", gallery, "--version", "v1", "--encoder", pixels)
    added = run("add", gallery, pictures / "class-0" / "broken.png", "--trust-code")
    assert (added.code, added.out) == (6, "")
    assert run("status", gallery, "--json").json["rows"] == 0


def test_code_is_not_run_unless_trusted(run, tmp_path, pictures, pixels):
    gallery = tmp_path / "g.lance"
    run("init", gallery, "--version", "v1", "--encoder", pixels)
    added = run("add", gallery, pictures)
    assert added.code == 4
    assert "--trust-code" in added.err


def test_add_checks_all_paths_before_it_writes(run, empty, digits):
    added = run("add", empty, digits / "v1.npz", digits / "no-such.npz")
    assert added.code == 3
    assert run("status", empty, "--json").json["rows"] == 0


def test_add_refuses_known_ids_unless_told_to_replace_them(run, gallery, digits):
    again = run("add", gallery, digits / "v1.npz", "--json")
    assert (again.code, again.json["error"]) == (2, "InvalidInput")
    assert run("add", gallery, digits / "v1.npz", "--upsert", "--json").json["rows"] == 300
    assert run("status", gallery, "--json").json["rows"] == 300


def test_a_refused_batch_says_what_was_written_before_it(run, empty, tmp_path):
    path = tmp_path / "v.npz"
    np.savez(path, id=np.array(["a", "b", "a"]), vector=np.eye(3, 64))
    added = run("add", empty, path, "--batch-size", 2)
    assert added.code == 2
    assert "2 items of the batches before are in the gallery." in added.err


def test_vectors_of_another_length_are_refused(run, empty, digits):
    added = run("add", empty, digits / "v2.npz")
    assert added.code == 2
    assert "24" in added.err
    assert "64" in added.err


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [("v.txt", b"", 2), ("v.npz", b"PK no zip", 2), ("v.parquet", b"PAR1", 2), ("v.feather", b"", 2)],
)
def test_unusable_files_are_refused(run, empty, tmp_path, name, content, code):
    (tmp_path / name).write_bytes(content)
    added = run("add", empty, tmp_path / name)
    assert (added.code, added.out) == (code, "")
    assert str(tmp_path / name) in added.err


def test_arrays_of_unequal_length_are_refused(run, empty, tmp_path):
    np.savez(tmp_path / "v.npz", id=np.array(["a"]), vector=np.ones((2, 64)))
    assert run("add", empty, tmp_path / "v.npz").code == 2


def test_an_empty_gallery_finds_nothing(run, empty, tmp_path):
    np.save(tmp_path / "q.npy", np.ones(64))
    found = run("search", empty, "--vector", tmp_path / "q.npy", "--json")
    assert (found.code, found.json) == (0, [])


def test_many_queries_from_any_file(run, gallery, digits, tmp_path):
    queries = vectors(digits / "v1.npz")["vector"][:3]
    np.save(tmp_path / "q.npy", queries)
    np.savez(tmp_path / "q.npz", query=queries)
    (tmp_path / "q.json").write_text(json.dumps(queries.tolist()))
    answers = [
        run("search", gallery, "--vector", tmp_path / f"q.{s}", "-k", 1, "--json").json for s in ("npy", "npz", "json")
    ]
    assert answers[0] == answers[1] == answers[2]
    assert [(row["_query"], row["label"]) for row in answers[0]] == [(0, 0), (1, 1), (2, 2)]


def test_condition_and_columns(run, gallery):
    words = ("--id", "digit-0000", "-k", 50, "--where", "label = 3", "--columns", "id,label", "--json")
    rows = run("search", gallery, *words).json
    assert {row["label"] for row in rows} == {3}
    assert list(rows[0]) == ["id", "label", "_distance", "_version", "_origin"]


def test_explain_searches_nothing(run, gallery):
    explained = run("search", gallery, "--explain", "--where", "label = 3")
    assert "column v1" in explained.out
    assert "label = 3" in explained.out
    assert run("search", gallery, "--explain", "--json").json["parts"][0]["version"] == "v1"


@pytest.mark.parametrize("forms", [(), ("--text", "a", "--id", "b")])
def test_exactly_one_form_of_query(run, gallery, forms):
    found = run("search", gallery, *forms)
    assert found.code == 2
    assert "expected one of --image, --text, --vector, --id" in found.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--id", "no-such"), 3),
        (("--text", "no encoder"), 2),
        (("--id", "digit-0000", "--where", "colour = 1"), 2),
        (("--id", "digit-0000", "--version", "v9"), 3),
        (("--id", "digit-0000", "-k", "0"), 2),
        (("--id", "digit-0000", "--columns", "colour"), 2),
        (("--vector", "no-such.npy"), 3),
    ],
)
def test_searches_that_cannot_be(run, gallery, words, code):
    found = run("search", gallery, *words)
    assert (found.code, found.out) == (code, "")
    assert found.err.startswith("Error: ")


@pytest.mark.parametrize("content", ["[]", "{}", "[[1, 2], [3]]", "[1, 2", '["a"]'])
def test_queries_that_are_no_vectors(run, gallery, tmp_path, content):
    (tmp_path / "q.json").write_text(content)
    assert run("search", gallery, "--vector", tmp_path / "q.json").code == 2


def test_columns_are_dropped_and_every_condition_must_hold(run, gallery):
    both = ("--id", "digit-0000", "-k", 50, "--where", "label = 3 OR label = 4", "--where", "label > 3", "--json")
    assert {row["label"] for row in run("search", gallery, *both).json} == {4}
    broken = run("search", gallery, "--id", "digit-0000", "--where", "label < 3", "--where", "label = 1) OR (label = 9")
    assert (broken.code, broken.out) == (2, "")
    assert "closes nothing" in broken.err
    refused = run("drop-columns", gallery, "label", "id")
    assert refused.code == 2
    assert "metadata columns (label)" in refused.err
    assert run("drop-columns", gallery, "label", "--json").json == {"dropped": ["label"], "left": []}


def test_a_search_without_an_encoder_says_what_else_can_be_asked_with(run, gallery):
    for words in (("--text", "cat"), ("--image", "cat.jpg")):
        refused = run("search", gallery, *words)
        assert refused.code == 2
        assert "--vector, --id" in refused.err
    assert "found no item digit-9999. Check the ids" in run("search", gallery, "--id", "digit-9999").err


@pytest.mark.full
def test_doctor_names_the_next_command_once(run, tmp_path):
    told = run("doctor", tmp_path / "none.lance")
    assert told.code == 9
    assert told.out.count("compatstore init") == 1


@pytest.mark.parametrize("option", ["--nprobes", "--refine"])
def test_settings_of_an_index_that_mean_nothing_are_refused(run, gallery, option):
    refused = run("search", gallery, "--id", "digit-0000", option, "0")
    assert refused.code == 2
    assert "a number from 1" in refused.err


def test_explain_shows_the_settings_that_are_named(run, gallery):
    assert "nprobes 3, refine 2" in run("search", gallery, "--explain", "--nprobes", "3", "--refine", "2").out


@pytest.mark.full
def test_a_cascade_embeds_candidates_and_writes_them_back(run, gallery, artifact):
    for words in (("link", gallery, artifact, "--from", "v1", "--to", "v2"), ("upgrade", gallery, "v2")):
        assert run(*words).code == 0
    asked = ("search", gallery, "--id", "digit-0007", "-k", 3, "--serving", "cascade")
    explained = run(*asked[:2], *asked[6:], "--explain", "--first", 4, "--in-all", 6)
    assert "the first 4 are embedded natively in v2 and ranked by l2 in v2; 10 results" in explained.out
    assert "6 of 6 left in all" in explained.out
    found = run(*asked, "--first", 4, "--in-all", 6, "--json")
    assert [(row["_version"], row["_origin"]) for row in found.json] == [("v2", "native")] * 3
    assert "searches have embedded 4 items" in run("status", gallery).out
    assert run(*asked, "--first", 10, "--in-all", 6).code == 0
    status = run("status", gallery, "--json").json
    assert status["upgrades"][0]["searched"]["rows"] == 6
    assert status["versions"][1]["native"] == 6


def test_options_of_a_cascade_need_one(run, gallery):
    refused = run("search", gallery, "--id", "digit-0007", "--first", 4)
    assert refused.code == 2
    assert "--serving cascade" in refused.err


@pytest.mark.full
def test_results_are_ranked_by_shrunk_distances(run, digits, tmp_path):
    made, path = tmp_path / "fast.artifact", tmp_path / "unit.lance"
    unit = ("--metric", "cosine")
    for words in (
        ("init", path, "--version", "v1", "--dim", 64, *unit),
        ("add", path, digits / "v1.npz"),
        ("register", path, "v2", "--encoder", f"precomputed:{digits / 'v2.npz'}", *unit),
        ("train", "fastfill", "--gallery", path, "--pairs", "v1", digits / "v2.npz", "--to", "v2",
         "--out", made, "--set", "epochs=3", "--set", "batch_size=64", "--set", "branch_width=8",
         "--set", "mixer_width=16", "--set", "loss=l2", "--set", "holdout=0.4"),
        ("link", path, made),
        ("upgrade", path, "v2"),
    ):  # fmt: skip
        done = run(*words)
        assert done.code == 0, done.err
    asked = ("search", path, "--id", "digit-0007", "--version", "v2", "-k", 5)
    found = run(*asked, "--json").json
    assert len(found) == 5
    assert [row["_distance"] for row in found] == sorted(row["_distance"] for row in found)
    assert found == run(*asked, "--serving", "target", "--json").json
    assert "shrunk by their predicted error" in run(*asked[:2], "--version", "v2", "--explain").out
