"""Next steps that errors advise: the next call to a program, the next command to a user of the shell."""

from __future__ import annotations

from threading import Thread

import pytest
from click.testing import CliRunner

import compatstore as cs
from compatstore import next_step
from compatstore.cli.app import app

COLUMN = next_step.COLUMN


@pytest.mark.parametrize(
    ("step", "python", "shell"),
    [
        (
            lambda: next_step.call("upgrade", "v2", backfill=1.0),
            'gallery.upgrade("v2", backfill=1.0)',
            "--backfill 1.0",
        ),
        (
            lambda: next_step.call("upgrade", "v2", backfill=next_step.made("Backfill", order="random")),
            'gallery.upgrade("v2", backfill=cs.Backfill(order="random"))',
            "compatstore upgrade GALLERY v2 --set backfill.order=random",
        ),
        (
            lambda: next_step.call("upgrade", "v2", on="shards"),
            'shards.upgrade("v2")',
            "compatstore upgrade GALLERY v2",
        ),
        (
            lambda: next_step.call("index drop", "v1", adopted=True),
            'gallery.maintenance.index("v1").drop(adopted=True)',
            "compatstore index drop GALLERY v1 --adopted",
        ),
        (lambda: next_step.call("report", measure=False), "gallery.report(measure=False)", "--no-measure"),
        (lambda: next_step.call("status", watch=next_step.IN_SHELL), "gallery.status()", "status GALLERY --watch"),
        (
            lambda: next_step.call("verify", at="my table"),
            "gallery.maintenance.verify()",
            "compatstore verify 'my table'",
        ),
        (
            lambda: next_step.call("link", next_step.ARTIFACT),
            "gallery.artifacts.link(artifact)",
            "link GALLERY ARTIFACT",
        ),
        (lambda: next_step.call("adopt", at="a", id='o"k'), 'cs.Gallery.adopt("a", id=\'o"k\')', "adopt a --id 'o\"k'"),
        (
            lambda: next_step.adopting("db#t"),
            'cs.Gallery.adopt("db#t", cs.EmbeddingVersion("v1", dim=...), vector=..., id=...)',
            "compatstore adopt 'db#t' --version v1 --vector COLUMN --id COLUMN",
        ),
        (lambda: next_step.adopting("t", again=True), "id=..., again=True)", "compatstore adopt t --again"),
        (
            lambda: next_step.finishing("v2"),
            'gallery.upgrade("v2"); gallery.cutover("v2")',
            "compatstore upgrade GALLERY v2 --cutover",
        ),
        (lambda: next_step.training("auto", out="h"), 'trainers.Auto().fit(pairs).save("h")', "train auto ... --out h"),
        (lambda: next_step.option("sample", within="Gates"), "Gates(sample=...)", "--set gates.sample=..."),
        (lambda: next_step.option("kind", "IVF_FLAT"), 'kind="IVF_FLAT"', "--kind IVF_FLAT"),
        (lambda: next_step.option("source", COLUMN), "source=...", "--source COLUMN"),
        (next_step.same, "the same call", "the same command"),
    ],
)
def test_a_step_is_a_call_or_a_command(step, python, shell):
    assert step().endswith(python)
    with next_step.speaking_shell():
        assert step().endswith(shell)
    assert step().endswith(python)


def test_threads_of_the_program_speak_as_it_does():
    said = []
    with next_step.speaking_shell():
        thread = Thread(target=lambda: said.append(next_step.same()))
        thread.start()
        thread.join()
    assert said == ["the same command"]


def test_an_error_names_the_next_call_in_python_and_the_next_command_in_the_shell(tmp_path):
    path = str(tmp_path / "g.lance")
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=2))
    gallery.register(cs.EmbeddingVersion("v2", dim=2))
    with pytest.raises(cs.errors.UpgradeError) as refusal:
        gallery.evaluate("v2", weight="best")
    assert refusal.value.fix == 'Begin it: gallery.upgrade("v2")'
    shown = CliRunner().invoke(app, ["evaluate", path, "v2", "--weight", "best"])
    assert shown.output.rstrip().endswith(f"Begin it: compatstore upgrade {path} v2")
    with pytest.raises(cs.errors.UpgradeError) as refusal:  # the program ran in this process, and has ended
        gallery.evaluate("v2", weight="best")
    assert refusal.value.fix == 'Begin it: gallery.upgrade("v2")'


def test_what_is_to_come_after_an_upgrade_is_a_call_in_a_notebook(upgradable):
    shown = upgradable.upgrade("v2")._repr_html_()
    assert "gallery.cutover(&quot;v2&quot;)" in shown or 'gallery.cutover("v2")' in shown
    assert "compatstore cutover" not in shown
