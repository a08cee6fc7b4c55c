"""--queries and --qrels, from the shell and from a process of its own, and files that are wrong."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

QUERIES = 60


@pytest.fixture(scope="module")
def files(digits, tmp_path_factory):
    """Noisy digits that ask by vectors of both models, items that ask, and what is correct for each."""
    folder = tmp_path_factory.mktemp("queries")
    random = np.random.default_rng(1)
    with np.load(digits / "v1.npz") as file:
        ids, source, labels = file["id"], file["vector"], file["label"]
    with np.load(digits / "v2.npz") as file:
        target = file["vector"]
    rows = np.arange(0, 2 * QUERIES, 2)
    names = np.array([f"frage-{row}-é" for row in rows])
    noisy = [space[rows] + 0.05 * random.normal(size=space[rows].shape) for space in (source, target)]
    np.savez(folder / "q.npz", id=names, v1=noisy[0], v2=noisy[1])
    (folder / "items.csv").write_text(
        "id,item\r\n" + "".join(f"{n},{ids[r + 1]}\r\n" for n, r in zip(names, rows, strict=True)), encoding="utf-8-sig"
    )
    judged = [
        (name, ids[other], 1 + (other == row + 1))
        for name, row in zip(names, rows, strict=True)
        for other in np.flatnonzero(labels == labels[row])[:5]
    ]
    (folder / "qrels.trec").write_text("".join(f"{q} 0 {i} {grade}\n" for q, i, grade in judged), encoding="utf-8")
    clicks = "".join(f"{q},{i},{grade}\r\n" for q, i, grade in judged)
    (folder / "clicks.csv").write_text("query-id,item-id,count\r\n" + clicks, encoding="utf-8-sig", newline="")
    return folder


def asking(files, queries="q.npz", qrels="qrels.trec"):
    return ("--queries", files / queries, "--qrels", files / qrels)


def upgrading(files, queries="q.npz", qrels="qrels.trec"):
    """The same of an upgrade."""
    return ("--set", f"gates.queries={files / queries}", "--set", f"gates.qrels={files / qrels}")


@pytest.mark.full
def test_every_verb_that_measures_takes_queries(run, linked, files):
    asked = asking(files)
    measured = run("evaluate", linked, "v2", *asked, "--criterion", "ndcg@10", "--json")
    assert (measured.json["truth"], measured.json["criterion"]) == ("qrels", "ndcg@10")
    assert measured.json["num_queries"] == QUERIES
    shown = run("evaluate", linked, "v2", *asked)
    assert {"recall@10", "ndcg@10", "mrr@10", "map"} <= set(measured.json["rows"][0]["figures"])
    for heading in ("mAP %", "gained", "fixed %", "60 queries, intervals of 95 %, correct by qrels"):
        assert heading in shown.out
    gates = ("--require", "ndcg@10>=0.05", "--backfill", 0.2)
    planned = run("upgrade", linked, "v2", *upgrading(files), *gates, "--dry-run")
    assert planned.code == 0
    assert "passed: ndcg@10>=0.05" in planned.out
    assert run("upgrade", linked, "v2", *upgrading(files), "--require", "ndcg@10>=0.99").code == 11
    assert run("upgrade", linked, "v2", *upgrading(files), *gates).code == 0
    fused = run("evaluate", linked, "v2", "--weight", "best", *asked, "--criterion", "recall@10", "--json").json
    assert fused["choices"][0]["criterion"] == "recall@10"
    assert fused["choices"][0]["truth"] == "qrels"
    told = run("report", linked, "v2", "--json").json
    assert told["measured"]["truth"] == "qrels"
    assert {row["what"] for row in told["compared"]} >= {"after a cutover: ndcg@10", "status quo: recall@10"}
    again = run("report", linked, "v2", *asking(files, "items.csv", "clicks.csv"))
    assert "application queries" in again.out


@pytest.mark.full
def test_a_log_of_clicks_says_the_same_as_grades(run, linked, files):
    by_grade, by_count = (
        run("evaluate", linked, "v2", *asking(files, qrels=qrels), "--json").json
        for qrels in ("qrels.trec", "clicks.csv")
    )
    assert by_grade["rows"] == by_count["rows"]


@pytest.mark.full
def test_without_qrels_the_targets_own_neighbours_are_right(run, linked, files):
    ended = run("evaluate", linked, "v2", "--queries", files / "q.npz", "--json").json
    assert ended["truth"] == ""


@pytest.mark.full
def test_another_process_finds_the_queries_of_the_estimate_again(run, linked, files):
    assert run("upgrade", linked, "v2", *upgrading(files), "--require", "map>=0.05", "--backfill", 0.2).code == 0
    program = "from compatstore.cli.app import main; main()"
    words = [sys.executable, "-c", program, "report", str(linked), "v2", "--json"]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout)["measured"]["num_queries"] == QUERIES


@pytest.mark.parametrize(
    ("queries", "qrels", "code", "said"),
    [
        ("id,words\na,b\n", None, 2, "one of text, path and item"),
        ("", None, 2, "empty file"),
        ("id,item\na,digit-0001\na,digit-0002\n", None, 2, "each query's id once; found a"),
        ("id,item\na,nothing\n", None, 2, "1 name items that the gallery lacks"),
        ("id,text\na,b\n", None, 7, "encoders of v1 and v2; found none of v1"),
        ("id,item\na,digit-0001\n", "query-id,score\na,1\n", 2, "columns query-id, item-id"),
        ("id,item\na,digit-0001\n", "b 0 digit-0002 1\n", 2, "1 have no correct item in the gallery"),
        ("id,item\na,digit-0001\n", "a 0 digit-0002 1\n", 7, "40 queries; found 1 application queries"),
    ],
)
def test_files_that_are_wrong_are_refused_before_anything_is_written(run, linked, tmp_path, queries, qrels, code, said):
    words = ["--set", f"gates.queries={tmp_path / 'q.csv'}"]
    (tmp_path / "q.csv").write_text(queries)
    if qrels is not None:
        (tmp_path / "qrels.csv").write_text(qrels)
        words += ["--set", f"gates.qrels={tmp_path / 'qrels.csv'}"]
    before = run("status", linked, "--json").json["table_version"]
    ended = run("upgrade", linked, "v2", *words)
    assert said in ended.err
    assert run("status", linked, "--json").json["table_version"] == before
    assert ended.code == code


def test_vectors_that_are_wrong_are_refused(run, linked, files, tmp_path):
    with np.load(files / "q.npz") as file:
        right = dict(file)
    for change, said in (
        ({"v1": np.full_like(right["v1"], np.nan)}, "NaN or infinity in v1"),
        ({"v2": right["v2"][:, :5]}, "expected 24 values; found 5 in v2"),
        ({"v1": right["v1"][:3]}, "60 of vectors of v1; found 3"),
    ):
        np.savez(tmp_path / "wrong.npz", **{**right, **change})
        ended = run("evaluate", linked, "v2", "--queries", tmp_path / "wrong.npz", "--qrels", files / "qrels.trec")
        assert ended.code != 0
        assert said in ended.err


def test_labels_and_queries_are_two_ways_to_say_one_thing(run, linked, files):
    ended = run("upgrade", linked, "v2", "--set", "gates.labels=label", *upgrading(files), "--dry-run")
    assert ended.code == 2
    assert "labels and queries say the same in two ways" in ended.err
    alone = run("upgrade", linked, "v2", "--set", f"gates.qrels={files / 'qrels.trec'}", "--dry-run")
    assert "qrels alone" in alone.err
    assert alone.code == 2
    needed = run("evaluate", linked, "v2", "--criterion", "ndcg@10")
    assert "--queries FILE --qrels FILE" in needed.err
