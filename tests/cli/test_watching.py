"""Several real processes on one gallery: one works, the others are told, pause it or abort it."""

from __future__ import annotations

import json
import time

import pytest

from states import UPGRADE, open_with_encoder

BATCHES = ("--set", "run.batch_rows=16")  # 80 of them


def activity(run, gallery):
    return run("status", gallery, "--json").json["upgrades"][0]["activity"]


def ending(process):
    out, err = process.communicate()
    assert "Traceback" not in err
    return process.returncode, json.loads(out)


@pytest.mark.full
def test_one_of_two_works_and_can_be_followed_paused_and_resumed(slow, run):
    slow.hold(100)
    first, second = slow.upgrade(*BATCHES), slow.upgrade(*BATCHES)
    both = {first, second}
    while all(process.poll() is None for process in both):
        time.sleep(0.01)
    loser = next(process for process in both if process.poll() is not None)
    worker = (both - {loser}).pop()
    code, refusal = ending(loser)
    assert (code, refusal["error"], refusal["exit_code"]) == (10, "LeaseHeld", 10)
    assert f"process {worker.pid}" in refusal["holder"]
    assert refusal["expires"] > refusal["since"]
    assert "compatstore pause GALLERY v2" in refusal["fix"]

    while not activity(run, slow.gallery)["rate"]:
        assert worker.poll() is None
        time.sleep(0.1)
    now = activity(run, slow.gallery)
    assert (now["doing"], now["step"], now["total"]) == ("running", "backfill", slow.items)
    assert 0 < now["done"] < slow.items
    assert now["eta"] > 0
    assert f"upgrade by {now['holder']}" in run("status", slow.gallery).out
    assert run("cutover", slow.gallery, "v2").code == 7  # it is not ready, whoever works

    slow.release_when_asked_to_stop()
    paused = run("pause", slow.gallery, "v2", "--json")
    assert paused.code == 0
    assert paused.json == {"target": "v2", "holder": now["holder"], "stopped": True}
    assert ending(worker)[0] == 130
    followed = run("status", slow.gallery, "--watch", "0.1", "--json")
    assert (followed.code, followed.json["upgrades"][0]["activity"]["doing"]) == (130, "paused")
    entry = run("history", slow.gallery, "--json").json[-1]
    assert (entry["step"], entry["rows"]) == ("pause", followed.json["upgrades"][0]["activity"]["done"])
    assert "pause requested by" in entry["note"]

    resumed = slow.upgrade()
    followed = run("status", slow.gallery, "--watch", "0.1", "--json")
    code, report = ending(resumed)
    assert (code, report["missing"], report["state"]) == (0, 0, "ready")
    assert len(slow.seen()) == len(set(slow.seen())) == slow.items, "no item was paid for twice"
    assert run("status", slow.gallery, "--watch").code == 0
    assert "ready, waiting for a cutover" in run("status", slow.gallery).out
    assert all(json.loads(line)["rows"] == slow.items for line in followed.out.splitlines())


@pytest.mark.full
def test_an_upgrade_that_runs_is_aborted(slow, run):
    slow.hold(17)
    worker = slow.upgrade(*BATCHES)
    slow.wait(worker, 17)
    busy = run("abort", slow.gallery, "v2", "--wait", "0", "--json")
    assert (busy.code, busy.json["error"]) == (10, "LeaseHeld")
    slow.release_when_asked_to_stop()
    aborted = run("abort", slow.gallery, "v2", "--json")
    assert aborted.code == 0
    assert set(aborted.json["dropped"]) >= {"v2", "v2__origin"}
    assert ending(worker)[0] == 130
    status = run("status", slow.gallery, "--json").json
    assert status["upgrades"] == []
    assert [version["state"] for version in status["versions"]] == ["active", "registered"]
    assert run("verify", slow.gallery).code == 0
    assert [entry["step"] for entry in run("history", slow.gallery, "--json").json][-1] == "abort"


@pytest.mark.full
def test_who_follows_learns_of_a_failure(run, at):
    path = at("upgradable")

    def fail(progress):
        if progress.step == "backfill":
            raise OSError("no route to the model")

    with pytest.raises(OSError, match="no route"):
        open_with_encoder(path).upgrade("v2", **UPGRADE, progress=fail)
    followed = run("status", path, "--watch")
    assert followed.code == 7
    assert f"backfill, failed; go on: compatstore upgrade {path} v2" in followed.out
    assert "OSError: no route to the model" in followed.out


def test_who_follows_a_gallery_without_upgrades_has_nothing_to_wait_for(run, at):
    assert run("status", at("upgradable"), "--watch").code == 0
