"""plan, upgrade and pause, with the limits of a backfill, and the verbs that change the version."""

from __future__ import annotations

import pytest

import compatstore as cs


def state(run, gallery, name):
    return next(v for v in run("status", gallery, "--json").json["versions"] if v["name"] == name)


def test_a_whole_life(run, gallery, artifact):
    upgraded = run("upgrade", gallery, "v2", "--transform", artifact, "--backfill", 0.25, "--json")
    assert upgraded.code == 0
    assert f"Linked {artifact} as " in upgraded.err
    report = upgraded.json
    assert (report["transformed"], report["backfilled"], report["missing"], report["state"]) == (300, 75, 0, "ready")
    assert run("cutover", gallery, "v2", "--check", "--json").json == {"target": "v2", "missing": 0}
    assert run("status", gallery, "--json").json["active"] == "v1"
    assert run("cutover", gallery, "v2", "--json").json["active"] == "v2"
    assert run("status", gallery, "--json").json["active"] == "v2"
    assert run("rollback", gallery, "--json").json == {
        "active": "v1",
        "previous": "v2",
        "serving": "v1 alone",
        "served_before": "v2 alone",
        "missing": 0,
        "changed": True,
        "dropped": [],
        "fusion_ended": None,
        "store": "",
    }
    said = run("status", gallery).out
    assert "rolled back" in said
    assert "waiting for nothing" not in said
    assert run("upgrade", gallery, "v2", "--cutover", "--json").json["cutover"]["active"] == "v2"
    retired = run("retire", gallery, "v1", "--json")
    assert "v1" in retired.json["dropped"]
    steps = [entry["step"] for entry in run("history", gallery, "--json").json]
    assert steps[:5] == ["create", "register", "link", "expand", "hop"]
    assert steps[-1] == "retire"


@pytest.mark.full
def test_twice_the_same_command_does_nothing(run, linked):
    words = ("upgrade", linked, "v2", "--backfill", 0.25, "--json")
    assert run(*words).json["transformed"] == 300
    table_version = run("status", linked, "--json").json["table_version"]
    again = run(*words)
    assert again.code == 0
    assert (again.json["transformed"], again.json["backfilled"]) == (0, 0)
    assert run("status", linked, "--json").json["table_version"] == table_version


def test_plan_is_what_a_dry_run_shows_and_writes_nothing(run, linked):
    before = run("status", linked, "--json").json
    words = ("v2", "--backfill", 0.25, "--set", "backfill.seed=4", "--json")
    planned = run("upgrade", linked, *words, "--dry-run").json
    assert {step["name"]: step["rows"] for step in planned["steps"]} == {
        "expand": 0,
        "hop": 300,
        "backfill": 75,
        "catch-up": 0,
        "cutover": 0,
    }
    assert run("status", linked, "--json").json == before


@pytest.mark.full
def test_an_improvement_is_planned_tried_and_not_tried_twice(run, linked):
    words = ("v2", "--backfill", 0.25, "--set", "backfill.order=random", "--set", "learn=improve", "--json")
    planned = run("upgrade", linked, *words, "--dry-run").json
    assert {step["name"]: step["rows"] for step in planned["steps"]}["learn"] == 225
    assert run("upgrade", linked, *words).json["backfilled"] == 75
    found = [entry for entry in run("history", linked, "--json").json if entry["step"] == "learn"]
    assert len(found) == 1
    table_version = run("status", linked, "--json").json["table_version"]
    assert run("upgrade", linked, *words).json["transformed"] == 0
    assert run("status", linked, "--json").json["table_version"] == table_version


def test_an_artifact_by_the_first_digits_of_its_id(run, linked, artifact):
    short = cs.Artifact.load(artifact).short_id
    planned = run("upgrade", linked, "v2", "--transform", short[:6], "--json", "--dry-run")
    assert planned.json["path"] == [short]
    assert planned.err == ""
    assert run("upgrade", linked, "v2", "--transform", "0" * 9, "--dry-run").code == 3


@pytest.mark.full
def test_an_encoder_that_the_gallery_cannot_build(run, digits, linked):
    """Registered by its identity alone, the model is handed over on the command line."""
    encoder = cs.encoders.Precomputed(digits / "v2.npz")
    words = ("--dim", 24, "--metric", "l2", "--model", encoder.fingerprint)
    assert run("register", linked, "v3", *words).code == 0
    assert run("upgrade", linked, "v3", "--backfill", 1.0).code == 7
    spec = f"precomputed:{digits / 'v2.npz'}"
    assert run("upgrade", linked, "v3", "--backfill", 1.0, "--encoder", spec, "--json").json["backfilled"] == 300
    assert run("upgrade", linked, "v2", "--encoder", f"precomputed:{digits / 'v1.npz'}").code in (2, 4)


@pytest.mark.full
def test_items_that_cannot_be_embedded_stand_in_the_way(run, linked, digits, tmp_path):
    """An item without a vector in v1 and unknown to v2's encoder is missing, and said to be."""
    gallery = tmp_path / "g.lance"
    run("init", gallery, "--version", "v1", "--dim", 64, "--metric", "l2")
    run("register", gallery, "v2", "--encoder", f"precomputed:{digits / 'v2.npz'}", "--metric", "l2")
    cs.Gallery.open(gallery).add({"id": ["digit-0001", "stranger"], "vector": [[0.0] * 63 + [1.0]] * 2})
    upgraded = run("upgrade", gallery, "v2", "--backfill", 1.0)
    assert upgraded.code == 0
    assert "stranger: " in upgraded.out
    checked = run("cutover", gallery, "v2", "--check", "--json")
    assert (checked.code, checked.json["missing"]) == (7, 1)
    refused = run("cutover", gallery, "v2", "--json")
    assert (refused.code, refused.json["error"]) == (7, "UpgradeError")
    forced = run("cutover", gallery, "v2", "--force")
    assert forced.code == 0
    assert "1 items have no vector in v2" in forced.out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("upgrade", "v9"), 3),
        (("upgrade", "v1"), 2),
        (("upgrade", "v2", "--backfill", "1.5"), 2),
        (("upgrade", "v2", "--backfill", "much"), 2),
        (("upgrade", "v2", "--set", "backfill.order=astrology", "--dry-run"), 2),
        (("upgrade", "v2", "--transform", "no/such.compat", "--dry-run"), 3),
        (("cutover", "v2"), 7),
        (("cutover", "v2", "--check"), 7),
        (("cutover", "v9"), 3),
        (("rollback",), 7),
        (("retire", "v1"), 7),
        (("retire", "v9"), 3),
    ],
)
def test_steps_that_cannot_be_taken(run, linked, words, code):
    verb, *rest = words
    before = run("status", linked, "--json").json
    refused = run(verb, linked, *rest)
    assert (refused.code, refused.out) == (code, "")
    assert run("status", linked, "--json").json == before
    assert run(verb, linked, *rest, "--json").json["exit_code"] == code


@pytest.mark.parametrize("verb", ["status", "history", "versions", "rollback"])
def test_no_gallery(run, tmp_path, verb):
    refused = run(verb, tmp_path / "none.lance")
    assert (refused.code, refused.out) == (3, "")
    assert "compatstore init" in refused.err


@pytest.mark.full
def test_status_says_what_an_upgrade_waits_for(run, linked):
    run("upgrade", linked, "v2")
    assert "upgrade v1 -> v2" in run("status", linked).out
    assert "ready, waiting for a cutover" in run("status", linked).out


def test_an_empty_gallery_can_be_upgraded(run, digits, tmp_path):
    gallery = tmp_path / "g.lance"
    run("init", gallery, "--version", "v1", "--dim", 4)
    run("register", gallery, "v2", "--encoder", f"precomputed:{digits / 'v2.npz'}")
    assert run("upgrade", gallery, "v2", "--backfill", 1.0, "--cutover", "--json").json["cutover"]["active"] == "v2"


@pytest.mark.full
def test_limits_are_named_as_in_the_api_and_the_same_command_spends_nothing_more(run, linked):
    words = ("upgrade", linked, "v2", "--set", "backfill.max_rows=40", "--price-per-item", "0.5", "--json")
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
    planned = run(
        "upgrade",
        linked,
        "v2",
        "--set",
        "backfill.max_rows=30",
        "--set",
        "backfill.price_per_item=0.1",
        "--json",
        "--dry-run",
    ).json
    (step,) = (step for step in planned["steps"] if step["name"] == "backfill")
    assert step["rows"] == 30
    assert "at most 30 items, costs 3" in step["note"]


def test_batches_and_pace_are_options(run, linked, tmp_path):
    latency = tmp_path / "p99"
    latency.write_text("3.5")
    words = [f"--set=run.{word}" for word in ("batch_rows=20", "throttle=5000", "retries=1", "encoder_timeout=60")]
    paced = ("--set", f"run.latency_file={latency}", "--set", "run.latency_bound=10")
    assert (
        run("upgrade", linked, "v2", "--set", "backfill.max_rows=50", *words, *paced, "--json").json["backfilled"] == 50
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--max-cost", "3"), "--price-per-item"),
        (("--set", "backfill.max_rows=-1"), "max_rows >= 0"),
        (("--set", "backfill.max_seconds=0"), "max_seconds > 0"),
        (("--set", "run.throttle=0"), "throttle > 0"),
        (("--set", "run.latency_bound=5"), "latency_file"),
        (("--set", "run.latency_bound=5", "--set", "run.latency_file=no/such/file"), "a number of milliseconds"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(run, linked, words, said):
    before = run("status", linked, "--json").json
    refused = run("upgrade", linked, "v2", *words)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert run("status", linked, "--json").json == before


@pytest.mark.full
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
