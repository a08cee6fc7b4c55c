"""The examples of operations are what systemd and Kubernetes read, and their commands upgrade a gallery."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

import compatstore as cs
from compatstore.cli.app import app
from compatstore.cli.exit_codes import EXPLANATION
from compatstore.trainers import Pairs, Ridge

FOLDER = Path(__file__).parents[1] / "examples" / "operations"
UNIT, JOB = FOLDER / "compatstore-upgrade.service", FOLDER / "kubernetes-job.yaml"
PROGRAM = Path(sys.executable).with_name("compatstore")
NO_RETRY = {2, 3, 4, 5, 8, 10, 11}
ROWS = 40


def unit():
    """Sections of the unit; no key stands twice in one."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read_string(UNIT.read_text())
    return parser


def job():
    return yaml.safe_load(JOB.read_text())


def container():
    (found,) = job()["spec"]["template"]["spec"]["containers"]
    return found


def commands():
    """The words that each example runs, without the program's name."""
    return {
        "systemd": shlex.split(unit()["Service"]["ExecStart"])[1:],
        "Kubernetes": container()["args"],
    }


@pytest.fixture
def gallery(tmp_path):
    """A gallery that waits for its upgrade to v2, with an encoder that can be built again."""
    vectors = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)
    ids = [f"item-{number}" for number in range(ROWS)]
    np.savez(tmp_path / "v2.npz", id=np.array(ids), vector=vectors[:, :3])
    v1 = cs.EmbeddingVersion("v1", dim=4, metric="l2")
    v2 = cs.EmbeddingVersion("v2", dim=3, metric="l2", encoder=cs.encoders.Precomputed(tmp_path / "v2.npz"))
    gallery = cs.Gallery.create(tmp_path / "photos.lance", v1)
    gallery.add({"id": ids, "vector": vectors})
    gallery.register(v2)
    gallery.artifacts.link(Ridge().fit(Pairs(vectors, vectors[:, :3], source_version=v1, target_version=v2)))
    return tmp_path / "photos.lance"


@pytest.mark.full
@pytest.mark.parametrize("name", ["systemd", "Kubernetes"])
def test_the_command_of_an_example_upgrades_a_gallery_and_then_does_nothing(name, gallery):
    verb, place, *rest = commands()[name]
    assert place.endswith("/photos.lance")
    for transformed in (ROWS, 0):
        ran = CliRunner().invoke(app, [verb, str(gallery), *rest], catch_exceptions=False)
        assert ran.exit_code == 0
        report = json.loads(ran.stdout)
        assert (report["state"], report["transformed"], report["spent"]["rows"]) == ("ready", transformed, ROWS // 4)
        assert json.loads(ran.stderr.splitlines()[-1])["event"] == "ended"


def test_the_examples_run_the_same_command_but_for_the_place():
    found = [[word for word in words if not word.endswith(".lance")] for words in commands().values()]
    assert found[0] == found[1]


def test_codes_that_no_second_try_mends_are_the_same_in_both_and_in_the_guide():
    (rule,) = [rule for rule in job()["spec"]["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    assert rule["onExitCodes"]["containerName"] == container()["name"]
    assert set(rule["onExitCodes"]["values"]) == NO_RETRY
    assert {int(code) for code in unit()["Service"]["RestartPreventExitStatus"].split()} == NO_RETRY
    page = (FOLDER.parents[1] / "docs" / "guides" / "operate.md").read_text()
    first_cells = re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE)
    assert {int(code) for cell in first_cells for code in cell.split(",")} == NO_RETRY
    assert {int(code) for code in re.findall(r"^ +(\d+)  ", EXPLANATION, re.MULTILINE)} >= NO_RETRY


def test_a_job_leaves_its_pods_to_be_followed_by_others():
    spec = job()["spec"]
    assert (job()["apiVersion"], job()["kind"]) == ("batch/v1", "Job")
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "a policy for exit codes needs it"
    assert spec["backoffLimit"] > 0
    assert all(isinstance(word, str) for word in [*container()["command"], *container()["args"]])


def test_a_stop_of_the_unit_is_no_failure():
    service = unit()["Service"]
    assert service["SuccessExitStatus"] == "143"
    assert service["Restart"] == "on-failure"
    assert service["ReadWritePaths"] == str(Path(shlex.split(service["ExecStart"])[2]).parent)


def test_systemd_takes_the_unit(tmp_path):
    """By its own judgement where it is installed: paths and users of this machine stand in for the example's."""
    sections = set(unit().sections())
    assert sections == {"Unit", "Service", "Install"}
    analyse = shutil.which("systemd-analyze")
    if analyse is None:
        return
    here = UNIT.read_text().replace("/usr/local/bin/compatstore", str(PROGRAM)).replace("User=compatstore", "User=root")
    (tmp_path / UNIT.name).write_text(here)
    judged = subprocess.run([analyse, "verify", tmp_path / UNIT.name], capture_output=True, text=True, check=False)
    about = [line for line in (judged.stdout + judged.stderr).splitlines() if UNIT.name in line]
    assert about == []
