"""Files of queries and of judgements, as apps, TREC and BEIR have them, and what is wrong with others."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from safetensors.numpy import save_file

import compatstore as cs
from compatstore.errors import InvalidInput, NotFound
from compatstore.evaluation.judgements import read_qrels
from compatstore.evaluation.query_files import read_queries

LINES = [{"_id": "q1", "text": "rote Schuhe"}, {"_id": "ü/2", "text": "蓝色 \u2028 x"}]
TEXTS = (("q1", "ü/2"), ("rote Schuhe", "蓝色 \u2028 x"))


def write(path, content, encoding="utf-8"):
    path.write_bytes(content.encode(encoding) if isinstance(content, str) else content)
    return str(path)


def as_jsonl(rows):
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.jsonl", as_jsonl(LINES)),
        ("q.jsonl", "\ufeff" + as_jsonl(LINES).replace("\n", "\r\n") + "\r\n"),
        ("Q.TSV", "_id\ttext\r\nq1\trote Schuhe\r\nü/2\t蓝色 \u2028 x\r\n"),
        ("q.csv", '\ufeffid,text\nq1,rote Schuhe\n"ü/2","蓝色 \u2028 x"\n'),
        ("q.csv", "text,extra,id\nrote Schuhe,1,q1\n蓝色 \u2028 x,,ü/2\n\n"),
    ],
)
def test_texts(tmp_path, name, content):
    read = read_queries(write(tmp_path / name, content))
    assert (read.ids, read.sources) == TEXTS
    assert read.items is None
    assert not read.vectors


def test_quotes_in_a_tsv_are_text(tmp_path):
    read = read_queries(write(tmp_path / "q.tsv", 'id\ttext\n1\t"red" shoes\n2\t"half\n'))
    assert read.sources == ('"red" shoes', '"half')


def test_paths_begin_at_the_file_and_uris_stay(tmp_path):
    file = write(tmp_path / "q.csv", "id,path\na,sketches/1.png\nb,s3://bucket/2.png\nc,/there/3.png\n")
    assert read_queries(file).sources == (str(tmp_path / "sketches/1.png"), "s3://bucket/2.png", "/there/3.png")


def test_items(tmp_path):
    read = read_queries(write(tmp_path / "q.jsonl", '{"id": 1, "item": 17}\n{"id": "b", "item": "p2"}\n'))
    assert (read.ids, read.items) == (("1", "b"), ("17", "p2"))


VECTORS = {"v1": np.eye(3, 2, dtype=np.float32), "v2": np.ones((3, 4), np.float32)}


def test_vectors_of_both_models_are_the_same_from_every_kind_of_file(tmp_path):
    ids = ["0", "1", "2"]
    np.savez(tmp_path / "q.npz", id=np.array(ids), **VECTORS)
    save_file(VECTORS, tmp_path / "q.safetensors")
    table = pa.table({"id": ids, **{name: list(values) for name, values in VECTORS.items()}, "note": ["a", "b", "c"]})
    pa.parquet.write_table(table, tmp_path / "q.parquet")
    pa.feather.write_feather(table, str(tmp_path / "q.arrow"))
    read = [read_queries(tmp_path / f"q.{kind}") for kind in ("npz", "safetensors", "parquet", "arrow")]
    assert {one.digest for one in read} == {read[0].digest}
    np.testing.assert_array_equal(read[2].vectors["v1"], VECTORS["v1"])


def test_texts_of_a_parquet_file(tmp_path):
    pa.parquet.write_table(pa.table({"query_id": [7, 8], "text": ["a", "b"]}), tmp_path / "q.parquet")
    assert read_queries(tmp_path / "q.parquet").ids == ("7", "8")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("q.jsonl", "", "empty file"),
        ("q.tsv", "id\ttext\n", "lines below the header"),
        ("q.csv", "name,words\na,b\n", "expected a column id, and one of text, path and item"),
        ("q.csv", "id,text,item\na,b,c\n", "one of text, path and item"),
        ("q.csv", "id,text\na,b,c\n", "2 values a line; found 3 in line 2"),
        ("q.csv", "id,text\na,x\na,y\nb,z\nb,w\n", "found a, b"),
        ("q.csv", "id,text\na,x\n ,y\n", "found ' ' for query 2"),
        ("q.jsonl", '{"id": "a"}\n', "one of text, path and item"),
        ("q.jsonl", '{"id": "a", "text": "x"}\n{"id": "b"}\n', "None for query 2"),
        ("q.jsonl", '{"id": true, "text": "x"}\n', "True for query 1"),
        ("q.jsonl", '{"id": "a", "text": "x"}\n["b"]\n', r"\['b'\] in line 2"),
        ("q.jsonl", '{"id": "a", "text"\n', "line 1"),
        ("q.jsonl", b'{"id": "a", "text": "\xff"}\n', "text in UTF-8"),
        ("q.txt", "a\tb\n", "a file of .jsonl"),
        ("q.npz", b"no zip", "a readable file"),
        ("q.parquet", b"no parquet", "a readable file"),
        ("q.safetensors", b"no tensors", "a readable file"),
    ],
)
def test_files_of_queries_that_make_no_sense(tmp_path, name, content, said):
    with pytest.raises(InvalidInput, match=said):
        read_queries(write(tmp_path / name, content))


def test_a_file_that_is_not_there(tmp_path):
    for read in (lambda path: read_queries(path / "q.csv"), lambda path: read_qrels(path / "qrels.tsv")):
        with pytest.raises(NotFound, match="a file"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"v1": np.full((2, 3), np.nan), "v2": np.ones((2, 4))}, "in v1 of a, b"),
        ({"v1": np.ones((2, 3)), "v2": np.ones((3, 4))}, "2 of vectors of v2; found 3"),
        ({"v1": np.ones((2, 3))}, "or two of vectors"),
        ({"v1": np.ones((2, 3)), "v2": np.array(["x", "y"])}, "or two of vectors"),
        ({"v1": np.ones((0, 3)), "v2": np.ones((0, 4)), "id": np.array([], str)}, "at least one query"),
    ],
)
def test_vectors_that_make_no_sense(tmp_path, arrays, said):
    np.savez(tmp_path / "q.npz", **{"id": np.array(["a", "b"]), **arrays})
    with pytest.raises(InvalidInput, match=said):
        read_queries(tmp_path / "q.npz")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("qrels.txt", "q1 0 p1 2\nq1 0 p2 0\nü/2 0 蓝 1\n"),
        ("qrels.trec", "\ufeffq1\t0\tp1\t2\r\nq1\tQ0\tp2\t0\r\n\r\nü/2\t0\t蓝\t1\r\n"),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq1\tp1\t2\nq1\tp2\t0\nü/2\t蓝\t1\n"),
        ("clicks.csv", "query_id,item_id,count\r\nq1,p1,1\r\nq1,p2,0\r\nü/2,蓝,1\r\nq1,p1,1\r\n"),
        ("clicks.jsonl", '{"query-id": "q1", "item-id": "p1", "clicks": 2}\n'
         '{"query-id": "q1", "item-id": "p2", "clicks": 0}\n{"query-id": "ü/2", "item-id": "蓝", "clicks": 1}\n'),
    ],
)  # fmt: skip
def test_judgements_are_the_same_from_every_kind_of_file(tmp_path, name, content):
    assert read_qrels(write(tmp_path / name, content)) == {"q1": {"p1": 2.0, "p2": 0.0}, "ü/2": {"蓝": 1.0}}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("qrels.tsv", "", "empty file"),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\n", "lines below the header"),
        ("qrels.tsv", "query-id\tscore\nq\t1\n", "columns query-id, item-id"),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq\tp\tgood\n", "'good', row 1"),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq\tp\tinf\n", "a finite number"),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq\tp\n", "3 values a line; found 2 in line 2"),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq\tp\t1\nq\tp\t2\n", "item p with grades 1 and 2"),
        ("qrels.txt", "q 0 p 1\nq 0 p\n", "found 3 in line 2"),
        ("qrels.txt", "q 0 p 1\nq 0 r x\n", "'x', line 2"),
        ("qrels.txt", "q 0 p 1\nq 0 p 0\n", "with grades 1 and 0"),
        ("qrels.csv", "query-id,item-id,count\n,p,1\n", "ids of a query and an item"),
        ("qrels.txt", b"q 0 \xff 1\n", "text in UTF-8"),
    ],
)
def test_files_of_judgements_that_make_no_sense(tmp_path, name, content, said):
    with pytest.raises(InvalidInput, match=said):
        read_qrels(write(tmp_path / name, content))


def test_columns_and_judgements_that_a_program_holds():
    asked = cs.Queries(queries={"id": [1, 2], "v1": np.ones((2, 3)), "v2": np.ones((2, 4))}, qrels={1: {"p": 2}})
    assert asked.judgements == {"1": {"p": 2.0}}
    assert asked == cs.Queries(queries={"id": ["1", "2"], **asked.read.vectors}, qrels={"1": {"p": 2}})
    assert asked != cs.Queries(queries={"id": ["1", "3"], **asked.read.vectors}, qrels={"1": {"p": 2}})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: cs.Queries(), "expected queries; found none"),
        (lambda: cs.Queries(qrels="qrels.tsv"), "qrels alone: qrels.tsv"),
        (lambda: cs.Queries(queries=7), "queries"),
        (lambda: cs.Queries(queries={"id": ["a"], "text": [None]}), "None for query 1"),
        (lambda: cs.Queries(queries={"id": "ab", "text": ["a", "b"]}), "a list of id"),
        (lambda: cs.Queries(queries={"id": ["a"], "text": ["x", "y"]}), "1 of text; found 2"),
        (lambda: cs.Queries(queries={"id": ["a"], "text": ["x"]}, qrels={"a": ["p"]}), "item id -> gain"),
        (lambda: cs.Queries(queries={"id": ["a"], "text": ["x"]}, qrels={}), "at least one judgement"),
    ],
)
def test_requests_that_make_no_sense_are_refused_when_they_are_made(make, said):
    with pytest.raises(InvalidInput, match=said):
        make()


def test_a_judgement_that_is_said_twice_is_one(tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text("q 0 p 1\nq 0 p 1\nr 0 p 2\n")
    assert read_qrels(path) == {"q": {"p": 1.0}, "r": {"p": 2.0}}
