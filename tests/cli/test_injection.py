"""Characters that steer a terminal or make markup, in all that comes from elsewhere, over every verb that prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.html import markdown, visible

EVIL = (
    "\x1b]0;owned\x07\x1b[2J",
    "\x9b31m",
    "line\nError: forged",
    "back\rover",
    "\u202egnp.exe",
    "\u2066isolated",
    "<script>alert(1)</script>",
    "[click](http://x) | `cell` ![i](http://y)",
    "\x00\x7f\x85\u2028",
)
# Every control character but the line feed, and every mark that reorders or breaks a line.
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ITEMS = 60
IDS = [f"{EVIL[number % len(EVIL)].replace(chr(0), '')}-{number}" for number in range(ITEMS)]
NAME = "caption\u202e<b>|*x*"


def vectors(dim):
    return np.random.default_rng(dim).normal(size=(ITEMS, dim)).astype(np.float32)


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A gallery full of such text; v2 can be embedded for some items, and for others fails with their ids."""
    folder = tmp_path_factory.mktemp("evil")
    v1 = cs.EmbeddingVersion("v1", dim=4, metric="l2", model=EVIL[0])
    gallery = cs.Gallery.create(str(folder / "g.lance"), v1)
    gallery.add({"id": IDS, "vector": vectors(4), NAME: IDS, "label": IDS})
    np.savez(folder / "v2.npz", id=np.array(IDS[:50]), vector=vectors(6)[:50])
    v2 = cs.EmbeddingVersion("v2", dim=6, metric="l2", encoder=cs.encoders.Precomputed(folder / "v2.npz"))
    gallery.register(v2)
    h = Artifact.create(
        "ForwardTransform",
        method=EVIL[1],
        source=Space.of(v1),
        target=Space.of(v2),
        networks={"h": Architecture(source_dim=4, output_dim=6)},
        tensors={"h.mixer.0.weight": np.ones((6, 4), np.float32), "h.mixer.0.bias": np.zeros(6, np.float32)},
    )
    gallery.artifacts.link(h)
    return folder


def told(run, *words):
    """What a verb prints, which must be free of all that steers."""
    ended = run(*words)
    assert not STEERING.findall(ended.out + ended.err), words
    return ended


@pytest.mark.full
def test_no_verb_that_succeeds_lets_a_character_steer_the_terminal(run, evil):
    gallery = evil / "g.lance"
    for words in (
        ("status", gallery),
        ("versions", gallery),
        ("search", gallery, "--id", IDS[0], "-k", 60),
        ("search", gallery, "--id", IDS[0], "--explain"),
        ("upgrade", gallery, "v2", "--backfill", 1.0, "--dry-run"),
        ("evaluate", gallery, "v2", "--sample", 50),
        ("upgrade", gallery, "v2", "--backfill", 1.0),
        ("unbackfillable", gallery, "v2"),
        ("status", gallery),
        ("status", gallery, "--watch"),
        ("cutover", gallery, "v2", "--check"),
        ("cutover", gallery, "v2"),
        ("rollback", gallery),
        ("history", gallery),
        ("report", gallery, "v2", "--out", evil / "report"),
        ("doctor", gallery),
        ("optimize", gallery),
        ("pause", gallery, "v2"),
    ):
        assert told(run, *words).code in (0, 9), words
    assert r"\x1b]0;owned\x07\x1b[2J-0" in told(run, "search", gallery, "--id", IDS[0]).out
    assert told(run, "verify", gallery).code in (0, 9)


def test_a_line_is_a_line_whatever_an_id_holds(run, evil):
    told(run, "upgrade", evil / "g.lance", "v2", "--backfill", 1.0)
    for words in (("search", "--id", IDS[0], "-k", 60), ("unbackfillable", "v2"), ("status",)):
        verb, *more = words
        lines = run(verb, evil / "g.lance", *more).out.splitlines()
        assert not any(line.lstrip().startswith("Error: forged") for line in lines)


def test_json_is_exact(run, evil):
    found = run("search", evil / "g.lance", "--id", IDS[0], "-k", 60, "--json").json
    assert {row["id"] for row in found} == set(IDS)
    assert all(row[NAME] == row["id"] for row in found)


@pytest.mark.parametrize("text", EVIL)
def test_no_error_lets_a_character_steer_the_terminal(run, evil, text):
    gallery = evil / "g.lance"
    typed = text.replace("\0", "")
    for words in (
        ("status", evil / typed),
        (f"no-{typed}",),
        (f"--no-{typed}",),
        ("status", gallery, f"--{typed}"),
        ("search", gallery, "-k", typed),
        ("search", gallery, "--id", typed),
        ("search", gallery, "--id", IDS[0], "--where", typed),
        ("search", gallery, "--id", IDS[0], "--columns", typed),
        ("add", gallery, evil / typed),
        ("link", gallery, evil / typed),
        ("register", gallery, typed, "--dim", 4),
        ("evaluate", gallery, "v2", "--labels", typed),
        ("upgrade", gallery, "v2", "--backfill", 0.5, "--set", f"backfill.order={typed}", "--dry-run"),
        ("upgrade", gallery, typed),
        ("cutover", gallery, typed),
        ("retire", gallery, typed),
        ("unregister", gallery, typed),
        ("unlink", gallery, typed),
        ("drop-columns", gallery, typed),
        ("optimize", gallery, "--grace", typed),
        ("optimize", evil / typed),
        ("report", gallery, typed),
        ("train", typed),
        ("train", "mean-shift", "--pairs", evil / typed, evil / typed, "--out", evil / "h.compat"),
    ):
        ended = told(run, *words)
        assert ended.code not in (0, 1), words
        assert ended.err.count("\nError: forged") == 0


def test_the_report_in_markdown_shows_text_as_it_is(run, evil):
    gallery = evil / "g.lance"
    told(run, "upgrade", gallery, "v2", "--backfill", 1.0)
    told(run, "report", gallery, "v2", "--out", evil / "files")
    text = (evil / "files" / "report.md").read_text(encoding="utf-8")
    assert not STEERING.findall(text)
    assert "<script>" not in text
    assert "[click](" not in text
    rows = text.partition("## Items that cannot be embedded")[2].strip().splitlines()[2:]
    assert len(rows) == 10
    assert all(line.startswith("| ") and len(re.findall(r"(?<!\\)\|", line)) == 3 for line in rows)
    kept = json.loads((evil / "files" / "report.json").read_text(encoding="utf-8"))
    assert {item for item, _ in kept["reasons"]} == set(IDS[50:])


def test_text_that_steers_nothing_stays_as_it_is():
    for text in ("Grüße, 你好, مرحبا, שלום", "👩\u200d🔬", "a_b*c", r"C:\photos"):
        assert visible(text) == text
    assert visible("a\x1b\n\u202e\udc80") == r"a\x1b\n\u202e\udc80"
    assert markdown("a|b <i> `c` *d*") == r"a\|b &lt;i> \`c\` \*d\*"


def test_a_traceback_steers_nothing_either(evil, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import compatstore.cli.watching as watching\n"
        "def fails(*_, **__):\n"
        "    raise ZeroDivisionError('\\x1b[31mred')\n"
        "watching.open_gallery = fails\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-c", "from compatstore.cli.app import main; main()", "status", "g"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert r"ZeroDivisionError: \x1b[31mred" in ended.stderr
    assert "\x1b" not in ended.stderr
