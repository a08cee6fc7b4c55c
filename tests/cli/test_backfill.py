"""Budgets, pace and the list of items that cannot be embedded, on the command line."""

from __future__ import annotations

import pytest

import compatstore as cs


def test_limits_are_named_as_in_the_api_and_the_same_command_spends_nothing_more(run, linked):
    words = ("upgrade", linked, "v2", "--max-rows", 40, "--price-per-item", 0.5, "--json")
    report = run(*words).json
    assert (report["backfilled"], report["ended_by"], report["spent"]["cost"]) == (40, "max_rows", 20.0)
    assert run(*words).json["backfilled"] == 0
    report = run("upgrade", linked, "v2", "--max-cost", 30.0, "--json").json
    assert (report["backfilled"], report["ended_by"]) == (20, "max_cost")
    status = run("status", linked, "--json").json["upgrades"][0]
    assert (status["ended_by"], status["spent"]["rows"]) == ("max_cost", 60)
    assert "60 items" in run("status", linked).out
    assert "its limit of money ended it" in run("status", linked).out


def test_a_plan_knows_the_limits(run, linked):
    planned = run("plan", linked, "v2", "--max-rows", 30, "--price-per-item", 0.1, "--json").json
    (step,) = (step for step in planned["steps"] if step["name"] == "backfill")
    assert step["rows"] == 30
    assert "at most 30 items, costs 3" in step["note"]


def test_batches_and_pace_are_options(run, linked, tmp_path):
    latency = tmp_path / "p99"
    latency.write_text("3.5")
    words = ("--batch-rows", 20, "--throttle", 5000, "--retries", 1, "--encoder-timeout", 60)
    paced = ("--latency-file", latency, "--latency-bound", 10)
    assert run("upgrade", linked, "v2", "--max-rows", 50, *words, *paced, "--json").json["backfilled"] == 50


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-cost", "3"), "price_per_item"),
        (("--max-rows", "-1"), "max_rows >= 0"),
        (("--max-seconds", "0"), "max_seconds > 0"),
        (("--throttle", "0"), "throttle > 0"),
        (("--latency-bound", "5"), "latency_file"),
        (("--latency-bound", "5", "--latency-file", "no/such/file"), "a number of milliseconds"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(run, linked, words, said):
    before = run("status", linked, "--json").json
    refused = run("upgrade", linked, "v2", *words)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert run("status", linked, "--json").json == before


def test_what_cannot_be_embedded_is_listed_in_full(run, linked):
    assert run("unbackfillable", linked, "v2", "--json").json == []
    strangers = [f"stranger-{number:02d}" for number in range(30)]
    cs.Gallery.open(linked).add({"id": strangers, "vector": [[0.5] * 64] * 30})
    upgraded = run("upgrade", linked, "v2", "--backfill", 1.0)
    assert upgraded.code == 0
    assert "300 items can be embedded natively, 30 cannot" in upgraded.out
    assert "and 10 more" in upgraded.out
    listed = run("unbackfillable", linked, "v2", "--json").json
    assert sorted(row["id"] for row in listed) == strangers
    assert all("no vector for id" in row["reason"] for row in listed)
    assert run("unbackfillable", linked, "v2").out.count("stranger-") >= 30
    assert run("unbackfillable", linked, "v9").code == 3
