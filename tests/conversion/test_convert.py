"""Files of vectors converted to another model: shapes, order, kills, and what is refused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import compatstore as cs
from compatstore.conversion import convert
from compatstore.errors import AlreadyExists, GateFailed, InvalidInput, NotFound

ROWS, OLD, NEW = 300, 8, 12
ALREADY_THERE = 4  # exit code; a kill after the last step leaves the whole output


@pytest.fixture(scope="module")
def spaces():
    random = np.random.default_rng(0)
    latent = random.normal(size=(ROWS, 6)).astype(np.float32)
    old, new = (latent @ random.normal(size=(6, dim)).astype(np.float32) for dim in (OLD, NEW))
    return old, new


@pytest.fixture
def versions(spaces):
    _, new = spaces
    encoder = cs.encoders.Function(
        lambda texts: np.stack([new[int(text[1:])] for text in texts]), dim=NEW, fingerprint="new@1"
    )
    return (
        cs.EmbeddingVersion("v1", dim=OLD, metric="l2", model="old@1"),
        cs.EmbeddingVersion("v2", dim=NEW, metric="l2", encoder=encoder),
    )


def texts():
    return [f"t{row}" for row in range(ROWS)]


def as_pinecone(path, old):
    described = [json.dumps({"text": text, "kind": "a"}) for text in texts()]
    ids = [f"i{row}" for row in range(ROWS)]
    pq.write_table(pa.table({"id": ids, "values": list(old), "metadata": described}), path, row_group_size=70)


def as_opensearch(path, old):
    with path.open("w") as file:
        for row, text in enumerate(texts()):
            record = {"_index": "x", "_id": f"{row}", "_source": {"text": text, "embedding": old[row].tolist()}}
            file.write(json.dumps(record) + "\n")


def as_weaviate(path, old):
    with path.open("w") as file:
        for row, text in enumerate(texts()):
            record = {"uuid": f"{row}", "properties": {"content": text}, "vectors": {"default": old[row].tolist()}}
            file.write(json.dumps(record) + "\n")


def as_langchain(path, old):
    path.write_text(
        json.dumps(
            {
                f"{row}": {"id": f"{row}", "vector": old[row].tolist(), "text": text, "metadata": {"row": row}}
                for row, text in enumerate(texts())
            }
        )
    )


def as_arrays(path, old):
    np.savez(path, vectors=old, texts=np.array(texts()), views=np.arange(ROWS))


def as_arrow(path, old):
    nested = pa.StructArray.from_arrays([pa.array(texts()), pa.array(list(old))], ["text", "vector"])
    feather.write_feather(pa.table({"pk": np.arange(ROWS), "doc": nested}), path)


def read(path):
    """Records of a file, the vector's path spelled out."""
    if path.suffix == ".npz":
        arrays = np.load(path)
        return [{name: arrays[name][row] for name in arrays.files} for row in range(ROWS)]
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".arrow":
        return feather.read_table(path).to_pylist()
    if path.suffix == ".json":
        return list(json.loads(path.read_text()).values())
    return [json.loads(line) for line in path.read_text().splitlines()]


FORMS = {
    "pinecone.parquet": (as_pinecone, "values"),
    "opensearch.jsonl": (as_opensearch, "_source.embedding"),
    "weaviate.jsonl": (as_weaviate, "vectors.default"),
    "langchain.json": (as_langchain, "vector"),
    "arrays.npz": (as_arrays, "vectors"),
    "nested.arrow": (as_arrow, "doc.vector"),
}


@pytest.mark.parametrize("name", FORMS)
def test_records_keep_their_order_and_shape(name, tmp_path, spaces, versions):
    old, new = spaces
    write, at = FORMS[name]
    path, out = tmp_path / name, tmp_path / f"new-{name}"
    write(path, old)
    before = read(path)
    converted = convert(path, out, *versions, backfill=0.2)
    assert converted.places.vector == at
    assert (converted.rows, converted.native, converted.transformed, converted.missing) == (ROWS, 60, 240, 0)
    above, _, last = at.rpartition(".")
    natives, errors = 0, []
    for row, (was, now) in enumerate(zip(before, read(out), strict=True)):
        holder, held = (now[above], was[above]) if above else (now, was)
        vector = np.array(holder.pop(last), np.float32)
        held.pop(last)
        native = holder.pop(f"{last}_origin") == "native"
        holder.pop(f"{last}_uncertainty")
        natives += native
        errors.append(np.abs(vector - new[row]).max())
        assert errors[-1] < 1e-6 or not native
        assert str(was) == str(now)
    assert natives == 60
    assert np.median(errors) < 0.2  # the right vector in each record, whatever transform was learned
    assert not list(tmp_path.glob("*.conversion"))


def test_a_folder_of_parquet_files_becomes_one_arrow_file(tmp_path, spaces, versions):
    old, new = spaces
    folder = tmp_path / "parts"
    folder.mkdir()
    for part in range(3):
        rows = slice(100 * part, 100 * part + 100)
        pq.write_table(pa.table({"vector": list(old[rows]), "text": texts()[rows]}), folder / f"part-{part}.parquet")
    assert convert(folder, tmp_path / "new.arrow", *versions, backfill=1.0).native == ROWS
    found = np.stack(feather.read_table(tmp_path / "new.arrow")["vector"].to_numpy())
    assert np.array_equal(found, new)


def test_an_artifact_alone_converts_without_an_encoder(tmp_path, spaces):
    from compatstore.trainers import Pairs, Ridge

    old, new = spaces
    as_arrays(tmp_path / "old.npz", old)
    artifact = Ridge().fit(Pairs(old[:100], new[:100]))
    v1, v2 = (cs.EmbeddingVersion(name, dim=dim, metric="l2") for name, dim in (("v1", OLD), ("v2", NEW)))
    converted = convert(tmp_path / "old.npz", tmp_path / "new.npz", v1, v2, transform=artifact)
    assert (converted.native, converted.transformed) == (0, ROWS)
    arrays = np.load(tmp_path / "new.npz")
    assert np.abs(arrays["vectors"] - artifact.apply(old).vectors).max() < 1e-5
    assert set(arrays["vectors_origin"]) == {artifact.short_id}


def test_records_without_vector_or_text(tmp_path, spaces, versions):
    old, _ = spaces
    lists = [None if row in (3, 4) else vector for row, vector in enumerate(old.tolist())]
    said = [None if row in (4, 5) else text for row, text in enumerate(texts())]
    pq.write_table(pa.table({"vector": pa.array(lists), "text": said}), tmp_path / "old.parquet")
    converted = convert(tmp_path / "old.parquet", tmp_path / "new.parquet", *versions, backfill=0.9)
    table = pq.read_table(tmp_path / "new.parquet")
    assert (converted.native, converted.transformed, converted.missing) == (270, 29, 1)
    assert [row for row, vector in enumerate(table["vector"].to_pylist()) if vector is None] == [4]
    assert table["vector_origin"][4].as_py() is None
    assert table["vector_origin"][5].as_py() not in (None, "native")


def test_gates_read_labels_of_records(tmp_path, spaces, versions):
    old, new = spaces
    labels = [f"c{int(np.argmax(vector))}" for vector in new]
    pq.write_table(
        pa.table({"vector": list(old), "text": texts(), "meta": [{"topic": label} for label in labels]}),
        tmp_path / "old.parquet",
    )
    arguments = (tmp_path / "old.parquet", tmp_path / "new.parquet", *versions)
    strict = cs.Gates(labels="meta.topic", require=("map>=0.999",), sample=100)
    from compatstore.trainers import Pairs, Ridge

    bad = Ridge().fit(Pairs(old[:100], np.random.default_rng(1).normal(size=(100, NEW)).astype(np.float32)))
    with pytest.raises(GateFailed):
        convert(*arguments, transform=bad, gates=strict, learn=None)
    assert not (tmp_path / "new.parquet").exists()


@pytest.mark.parametrize(
    ("columns", "given", "error", "said"),
    [
        ({"text": ["a"]}, {}, InvalidInput, "no list of numbers"),
        ({"vector": [[1.0] * 8], "other": [[1.0] * 8]}, {"vector": "othr"}, InvalidInput, "other"),
        ({"a": [[1.0] * 8], "b": [[1.0] * 8]}, {}, InvalidInput, "vector="),
        ({"vector": [[1.0] * 8, [1.0] * 7], "text": ["t0", "t1"]}, {}, InvalidInput, "7 in record 2"),
        ({"vector": [[1.0] * 7], "text": ["t0"]}, {}, InvalidInput, "8 values"),
        ({"vector": [[1.0] * 7 + [float("nan")]], "text": ["t0"]}, {}, InvalidInput, "finite"),
        ({"id": ["a", "a"], "vector": [[1.0] * 8] * 2, "text": ["t0", "t1"]}, {}, InvalidInput, "repeated ids a"),
        ({"vector": pa.array([], pa.list_(pa.float32())), "text": pa.array([], pa.string())}, {}, InvalidInput, "one"),
    ],
)
def test_wrong_files_are_refused_and_leave_no_output(columns, given, error, said, tmp_path, versions):
    pq.write_table(pa.table(columns), tmp_path / "old.parquet")
    with pytest.raises(error, match=said):
        convert(tmp_path / "old.parquet", tmp_path / "new.parquet", *versions, backfill=1.0, **given)
    assert [file.name for file in tmp_path.iterdir()] == ["old.parquet"]


def test_wrong_paths_are_refused(tmp_path, spaces, versions):
    as_arrays(tmp_path / "old.npz", spaces[0])
    with pytest.raises(NotFound):
        convert(tmp_path / "none.npz", tmp_path / "new.npz", *versions)
    with pytest.raises(InvalidInput, match="an output of"):
        convert(tmp_path / "old.npz", tmp_path / "new.jsonl", *versions)
    with pytest.raises(AlreadyExists):
        convert(tmp_path / "old.npz", tmp_path / "old.npz", *versions)
    with pytest.raises(cs.errors.StorageError):
        convert(tmp_path / "old.npz", tmp_path / "no" / "new.npz", *versions)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InvalidInput, match="readable"):
        convert(tmp_path / "broken.parquet", tmp_path / "new.parquet", *versions)
    (tmp_path / "broken.jsonl").write_text('{"vector": [1, 2]}\n[3]\n')
    with pytest.raises(InvalidInput, match="JSON objects"):
        convert(tmp_path / "broken.jsonl", tmp_path / "new.jsonl", *versions)


def test_an_unfinished_conversion_of_another_file_is_kept(tmp_path, spaces, versions):
    asked = iter(range(10_000))
    as_arrays(tmp_path / "old.npz", spaces[0])
    with pytest.raises(cs.errors.Interrupted):
        convert(
            tmp_path / "old.npz", tmp_path / "new.npz", *versions, backfill=0.5, should_stop=lambda: next(asked) > 2
        )
    as_arrays(tmp_path / "other.npz", spaces[0] + 1)
    with pytest.raises(InvalidInput, match="rm -r"):
        convert(tmp_path / "other.npz", tmp_path / "new.npz", *versions, backfill=0.5)
    assert convert(tmp_path / "old.npz", tmp_path / "new.npz", *versions, backfill=0.5).native == 150


@pytest.mark.full
def test_a_killed_conversion_goes_on_to_the_same_output(tmp_path):
    """Kill the command at random moments until it ends; the output is that of a run without kills."""
    texts = [f"the number {row} of {row % 17} in {row % 5}" for row in range(6_000)]
    model = Path(__file__).parent / "hashed_words.py"
    old = np.random.default_rng(3).normal(size=(len(texts), 16)).astype(np.float32)
    pq.write_table(pa.table({"id": texts, "vector": list(old), "text": texts}), tmp_path / "old.parquet")

    def command(out):
        line = [sys.executable, "-m", "compatstore", "convert", "old.parquet", "--out", out, "--backfill", "10%"]
        line += ["--encoder", "python:hashed_words:encoder", "--metric", "l2"]
        environment = {**os.environ, "PYTHONPATH": f"{model.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        return subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)

    assert command("whole.parquet").wait() == 0
    random, kills = np.random.default_rng(5), 0
    while True:
        running = command("killed.parquet")
        try:
            code = running.wait(timeout=0.8 + 0.8 * random.random() + 0.5 * kills)
            assert code == 0 or (code == ALREADY_THERE and (tmp_path / "killed.parquet").exists())
            break
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()
            kills += 1
    assert kills >= 2
    whole, killed = (pq.read_table(tmp_path / name) for name in ("whole.parquet", "killed.parquet"))
    assert killed["id"].equals(whole["id"])
    assert killed.num_rows == len(texts)
    natives, others = ([origin == "native" for origin in t["vector_origin"].to_pylist()] for t in (killed, whole))
    assert sum(natives) == 600
    assert natives == others  # an artifact's id holds its time
    assert killed["vector"].equals(whole["vector"])
