"""A number for each branch of the tree of errors; Ctrl-C, SIGTERM and SIGHUP finish the batch at hand."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from compatstore import errors
from compatstore.cli.exit_codes import exit_code
from tiers import few


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidInput("x"), 2),
        (errors.NotFound("x"), 3),
        (errors.AlreadyExists("x"), 4),
        (errors.Incompatible("x"), 4),
        (errors.CorruptArtifact("x"), 5),
        (errors.StorageError("x"), 6),
        (errors.SourceError("x", {0: "y"}), 6),
        (errors.UpgradeError("x"), 7),
        (errors.MissingExtra("torch", "train"), 8),
        (errors.Interrupted("x"), 130),
        (errors.CompatStoreError("x"), 1),
    ],
)
def test_exit_codes(error, code):
    assert exit_code(error) == code


def wait_until_told(process):
    """Wait until a process has said that it heard a signal."""
    assert process.stderr is not None
    while "once more" not in process.stderr.readline():
        assert process.poll() is None


@pytest.mark.parametrize(
    ("number", "code"), few(1, [(signal.SIGHUP, 129), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
)
def test_a_signal_finishes_the_batch_and_the_same_command_goes_on(slow, run, number, code):
    slow.hold(1)
    before = signal.signal(number, signal.SIG_DFL)  # a child inherits what is ignored, as SIGHUP is under nohup
    stopped = slow.upgrade()
    signal.signal(number, before)
    slow.wait(stopped, 1)
    stopped.send_signal(number)
    wait_until_told(stopped)
    slow.release()
    out, err = stopped.communicate()
    assert stopped.returncode == code, err
    assert "Traceback" not in err
    assert json.loads(out)["error"] == "Interrupted"
    assert json.loads(out)["exit_code"] == code
    assert "the same command goes on" in json.loads(out)["fix"]
    done = len(slow.seen())
    assert 0 < done < slow.items
    assert run("status", slow.gallery, "--json").json["active"] == "v1"

    resumed = slow.upgrade()
    out, err = resumed.communicate()
    assert resumed.returncode == 0, err
    assert json.loads(out)["missing"] == 0
    assert len(slow.seen()) == len(set(slow.seen())) == slow.items  # no item was embedded twice

    again = run("upgrade", slow.gallery, "v2", "--backfill", 1.0, "--trust-code", "--json")
    assert (again.json["transformed"], again.json["backfilled"]) == (0, 0)


@pytest.mark.full
def test_a_second_signal_ends_the_process_at_once(slow, run):
    slow.hold(193)
    killed = slow.upgrade("--set", "run.batch_rows=64")
    slow.wait(killed, 193)  # the first batches are safe
    while run("status", slow.gallery, "--json").json["upgrades"][0]["activity"]["step"] != "backfill":
        assert killed.poll() is None
    killed.send_signal(signal.SIGTERM)
    wait_until_told(killed)
    killed.send_signal(signal.SIGTERM)
    killed.communicate()
    slow.release()
    assert killed.returncode == -signal.SIGTERM

    followed = run("status", slow.gallery, "--watch", "--json")
    assert followed.code == 7
    activity = followed.json["upgrades"][0]["activity"]
    assert (activity["doing"], activity["step"]) == ("interrupted", "backfill")
    assert f"process {killed.pid}" in activity["holder"]
    assert f"interrupted; go on: compatstore upgrade {slow.gallery} v2" in run("status", slow.gallery).out

    resumed = slow.upgrade()
    out, err = resumed.communicate()
    assert resumed.returncode == 0, err
    assert json.loads(out)["missing"] == 0
    steps = [entry["step"] for entry in run("history", slow.gallery, "--json").json]
    assert "interrupted" in steps
    assert steps[-1] == "ready"


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("status {gallery} >&-", 0, ""),
        ("status {gallery} 2>&-", 0, ""),
        ("status {gallery} >/dev/full", 6, "Error: write the output"),
        ("status {gallery} --json >/dev/full", 6, "Error: write the output"),
        ("--help >/dev/full", 6, "Error: write the output"),
    ],
)
@pytest.mark.full
def test_an_output_that_takes_nothing_is_no_traceback(at, command, code, said):
    line = f"{sys.executable} -m compatstore {command.format(gallery=at('ready'))}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stderr.startswith(said)
    assert "Traceback" not in done.stderr


def test_a_relative_path_from_a_folder_that_is_gone_is_refused(tmp_path, monkeypatch, run):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    for gallery in ("g.lance", "db#table"):
        result = run("status", gallery)
        assert result.code == 2
        assert "current folder that is gone" in result.err
    monkeypatch.chdir(tmp_path)
