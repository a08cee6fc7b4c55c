"""evaluate and report, and the gates of plan and upgrade; exit code 11 where a gate fails."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.artifacts import Artifact, Space

TERMS = ("--labels", "label", "--sample", 200)
GATES = ("--set", "gates.labels=label", "--set", "gates.sample=200")  # the same of an upgrade


@pytest.mark.full
def test_a_plan_says_what_is_promised_and_takes_that_budget(run, linked):
    planned = run("upgrade", linked, "v2", "--set", "gates.target_quality=0.8", *GATES, "--json", "--dry-run").json
    estimate = planned["estimate"]
    assert planned["backfill"] == estimate["share"]
    assert estimate["terms"]["target_quality"] == 0.8
    told = run("upgrade", linked, "v2", "--set", "gates.target_quality=0.8", *GATES, "--dry-run")
    assert told.code == 0
    assert f"A backfill of {estimate['share']:.4g} keeps" in told.out
    asked = estimate["table"]["num_queries"]
    assert 70 < asked < 130  # every second item of the sample was learned from
    assert f"{asked} queries from 200 items drawn of 300 ({200 - asked} were learned from by the artifact)." in told.out
    assert f"{asked} queries, intervals of 95 %, correct by labels" in told.out
    assert "> budget taken, * best figure" in told.out


def test_without_terms_nothing_is_estimated(run, linked):
    assert run("upgrade", linked, "v2", "--backfill", 0.5, "--json", "--dry-run").json["estimate"] is None


@pytest.mark.full
def test_a_gate_that_fails_ends_plan_evaluate_and_upgrade_with_a_code_of_its_own(run, linked):
    before = run("status", linked, "--json").json["table_version"]
    for verb, *words in (["upgrade", "--dry-run", *GATES], ["upgrade", *GATES], ["evaluate", *TERMS]):
        ended = run(verb, linked, "v2", "--require", "map>=0.99", *words)
        assert ended.code == 11, (verb, ended)
        assert "map>=0.99" in ended.out + ended.err
    assert run("status", linked, "--json").json["table_version"] == before
    assert run("upgrade", linked, "v2", "--require", "map>=0.99", *GATES, "--json").json["error"] == "GateFailed"


@pytest.mark.full
def test_an_upgrade_takes_the_budget_of_its_plan(run, linked):
    words = (
        "v2",
        "--set",
        "gates.target_quality=0.8",
        "--require",
        "agreement>=0.2",
        "--set",
        "gates.sample=200",
        "--json",
    )
    share = run("upgrade", linked, *words, "--dry-run").json["backfill"]
    ended = run("upgrade", linked, *words)
    assert (ended.code, ended.json["backfilled"]) == (0, round(300 * share))
    assert run("upgrade", linked, *words).json["backfilled"] == 0
    [kept] = [entry for entry in run("history", linked, "--json").json if entry["step"] == "estimate"]
    assert kept["data"]["share"] == share


@pytest.mark.full
def test_an_upgrade_that_gains_nothing_picks_no_budget(run, linked):
    planned = run("upgrade", linked, "v2", "--set", "gates.target_quality=0.8", *GATES, "--json", "--dry-run")
    assert (planned.code, planned.json["estimate"]["table"]["advice"]["verdict"]) == (0, "do not upgrade")
    ended = run("upgrade", linked, "v2", "--set", "gates.target_quality=0.8", *GATES)
    assert ended.code == 11
    assert "map above the status quo, for the whole confidence interval" in ended.err


@pytest.mark.full
def test_gates_that_hold_change_nothing(run, linked):
    words = ("evaluate", linked, "v2", "--require", "cmc@1>=0.2", "--max-negative-flips", 0.9, "--labels", "label")
    words = (*words, "--sample", 300, "--json")
    ended = run(*words)
    assert ended.code == 0
    assert ended.json["rows"][0]["name"] == "status quo"
    assert ended.err.count("passed: ") == 2


def test_a_requirement_that_cannot_be_read_is_a_usage_error(run, linked):
    refused = run(
        "upgrade", linked, "v2", "--require", "map", "--dry-run"
    )  # what a shell leaves of an unquoted map>=0.5
    assert (refused.code, run("upgrade", linked, "v2", "--require", "map=0.5", "--dry-run").code) == (2, 2)
    assert "quotes: --require 'map>=0.6'" in refused.err


@pytest.mark.full
def test_a_report_for_people_for_programs_and_as_files(run, linked, tmp_path):
    run("upgrade", linked, "v2", "--set", "gates.target_quality=0.7", "--set", "gates.sample=120")
    told = run("report", linked, "--out", tmp_path / "report")
    assert told.code == 0
    assert told.out.startswith("v1 -> v2: ready\nQuality is not measurable without ground truth: ")
    assert "after a cutover: agreement" in told.out
    assert (tmp_path / "report" / "report.md").is_file()
    assert told.err.count("wrote ") == 3
    report = run("report", linked, "v2", "--no-measure", "--json").json
    assert (report["measured"], report["state"]) == (None, "ready")
    assert report["estimate"]["terms"]["target_quality"] == 0.7
    measured = run("report", linked, "v2", "--sample", 100, "--labels", "label", "--criterion", "cmc@1", "--json").json
    assert measured["measured"]["criterion"] == "cmc@1"
    asked = measured["measured"]["num_queries"]
    left = f"{asked} queries from 100 items drawn of 300 ({100 - asked} were learned from by the artifact)."
    assert measured["measured"]["provenance"] == left


def test_what_cannot_be_reported(run, linked):
    assert run("report", linked).code == 3
    assert run("report", linked, "--encoder", "precomputed:x").code == 2


@pytest.mark.full
def test_fuse_chooses_how_both_versions_are_searched_as_one(run, linked):
    assert run("evaluate", linked, "v2", "--weight", "best").code != 0
    run("upgrade", linked, "v2")
    told = run("evaluate", linked, "v2", "--weight", "best", "--labels", "label", "--sample", 200)
    assert told.code == 0
    assert "correct by labels" in told.out
    fusion = run("evaluate", linked, "v2", "--weight", 0.4, "--sample", 200, "--json").json
    assert fusion["weight"] == 0.4
    assert [choice["weight"] for choice in fusion["choices"]] == [0.4], "a named weight is measured too"
    said = run("search", linked, "--explain").out
    assert "merge: fused, 0.6 v1 + 0.4 v2" in said
    assert "price: two embeddings and two searches" in said
    found = run("search", linked, "--id", "digit-0003", "--serving", "fused", "-k", 3, "--json").json
    assert found[0]["id"] == "digit-0003"
    alone = run("search", linked, "--id", "digit-0003", "--serving", "source", "-k", 3, "--json").json
    assert {row["_version"] for row in alone} == {"v1"}
    assert {row["_version"] for row in found} == {"v2"}


@pytest.fixture
def digits_without_a_hop(run, gallery, digits, tmp_path):
    """Digits in v1, to be found by queries of v2, a model that the artifact takes for compatible and that is not."""
    with np.load(digits / "v1.npz") as file:
        np.savez(tmp_path / "turned.npz", id=file["id"], vector=file["vector"][:, ::-1])
    assert run("unregister", gallery, "v2").code == 0
    encoder = f"precomputed:{tmp_path / 'turned.npz'}"
    assert run("register", gallery, "v2", "--encoder", encoder, "--metric", "l2").code == 0
    opened = cs.Gallery.open(str(gallery))
    opened.artifacts.link(
        Artifact.create("Identity", source=Space.of(opened.version()), target=Space.of(opened.version("v2")))
    )
    assert run("upgrade", gallery, "v2").code == 0
    return gallery


@pytest.mark.full
def test_without_a_hop_a_merge_is_measured_and_status_warns_of_one_below_the_status_quo(run, digits_without_a_hop):
    told = run("evaluate", digits_without_a_hop, "v2", "--weight", "best", "--labels", "label", "--sample", 120)
    assert told.code == 0
    assert "merge: distance, against the status quo -" in told.out
    assert "correct by labels" in " ".join(told.out.split())
    merge = run(
        "evaluate", digits_without_a_hop, "v2", "--weight", "best", "--labels", "label", "--sample", 120, "--json"
    ).json
    assert (merge["calibration"], merge["criterion"]) == (None, "map")
    said = run("search", digits_without_a_hop, "--version", "v2", "--explain").out
    assert "merge distance, against the status quo -" in said
    assert "warning: v2 merged with v1 is below the status quo" in said
    assert "warning" not in run("status", digits_without_a_hop).out
    run("cutover", digits_without_a_hop, "v2")
    assert "  warning: v2 merged with v1 is below the status quo" in run("status", digits_without_a_hop).out
    assert run("status", digits_without_a_hop, "--json").json["upgrades"][0]["warnings"]


@pytest.mark.full
def test_evaluate_measures_both_versions_as_one(run, linked):
    rows = run("evaluate", linked, "v2", *TERMS, "--json").json["rows"]
    fused = [row for row in rows if row["name"].startswith("fused")]
    assert [row["name"] for row in fused] == ["fused 0%", "fused 100%"]
    assert all("two embeddings and two searches for a query" in row["note"] for row in fused)


def test_a_report_as_one_page(run, linked, tmp_path):
    run("upgrade", linked, "v2", "--backfill", 0.1)
    words = ("report", linked, "v2", "--labels", "label", "--sample", 200, "--by", "label", "--worst", 2, "--best", 1)
    told = run(*words, "--out", tmp_path / "new" / "report.html")
    assert told.code == 0, told.err
    assert f"wrote {tmp_path / 'new' / 'report.html'}" in told.err
    page = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert "Results of the queries that fell most" in page
    assert page.count('<article class="query">') == 3
    assert "label" in told.out
    assert "gap to all" in told.out
    details = run(*words, "--json").json["details"]
    assert len(details["changes"]["worst"]) == 2
    assert details["groups"]["column"] == "label"
    assert run("report", linked, "v2", "--labels", "label", "--sample", 200, "--json").json["details"] is None


@pytest.mark.full
def test_a_page_that_cannot_be_made(run, linked, tmp_path):
    run("upgrade", linked, "v2", "--backfill", 0.1)
    for words in (("--by", "nowhere"), ("--caption", "nowhere"), ("--worst", 51), ("--neighbours", 0)):
        told = run("report", linked, "v2", "--sample", 200, *words, "--out", tmp_path / "report.html")
        assert told.code == 2, (words, told.err)
    (tmp_path / "file").write_text("")
    assert run("report", linked, "v2", "--no-measure", "--out", tmp_path / "file" / "report.html").code == 6
    assert not (tmp_path / "report.html").exists()


@pytest.mark.full
def test_what_is_told_query_by_query_asks_for_a_measurement(run, linked):
    """Where nothing was estimated there is none to tell of: the option would be without effect."""
    assert run("upgrade", linked, "v2").code == 0
    told = run("report", linked, "v2", "--by", "label", "--json")
    assert told.code == 0
    assert told.json["measured"]["num_queries"] > 0
    assert told.json["details"] is not None
    refused = run("report", linked, "v2", "--by", "label", "--no-measure")
    assert (refused.code, refused.out) == (2, "")
    assert "--by needs a measurement: remove --no-measure." in refused.err
    assert run("report", linked, "v2", "--json").json["measured"] is None, "nothing was asked"


def test_no_sentence_of_a_refusal_ends_twice(run, tmp_path, digits, artifact):
    place = tmp_path / "bare.lance"
    assert run("init", place, "--version", "v1", "--dim", 64, "--metric", "l2").code == 0
    assert run("add", place, digits / "v1.npz").code == 0
    assert run("register", place, "v2", "--dim", 24, "--metric", "l2").code == 0
    assert run("link", place, artifact, "--from", "v1", "--to", "v2").code == 0
    refused = run("evaluate", place, "v2", "--sample", 200)
    assert refused.code == 7
    assert "There is no encoder. Give its model: --encoder v2=ENCODER" in refused.err
    assert ".." not in refused.err.replace("...", "")


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("--require", "map>=0.5"), "expected labels or qrels that define relevance"),
        (("--criterion", "cmc@1"), "expected labels or qrels that define relevance"),
        (("--labels", "label", "--require", "agreement>=0.5"), "expected no ground truth; found labels or qrels"),
    ],
)
def test_a_figure_that_is_not_measured_is_refused_before_anything_is_embedded(run, linked, words, refused):
    ended = run("evaluate", linked, "v2", "--sample", 100, *words)
    assert ended.code == 2
    assert refused in " ".join(ended.err.split())
    assert (ended.out, "sample: " in ended.err) == ("", False)
