"""Plain text where there is no terminal, for each verb that prints tables; folded and styled where there is one."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import unicodedata

import pytest
from pseudo_terminal import read_to_the_end

pytestmark = pytest.mark.full

# One process for many verbs: to load Lance takes longer than any of them.
PROGRAM = """
import json, sys
from compatstore.cli.app import app
for words in json.loads(sys.argv[1]):
    print("=", *words[:2], flush=True)
    print("=", *words[:2], file=sys.stderr, flush=True)
    app(words, standalone_mode=False)
    sys.stdout.flush()
"""
LONG = "a note of very many words " * 500
ESCAPE, RETURN = "\x1b", "\r"


@pytest.fixture
def lines(run, linked, digits, tmp_path):
    """The command lines of all verbs that print tables, on one gallery; an item has a long text."""
    long = tmp_path / "long.npz"
    import numpy as np

    np.savez(long, id=np.array(["long"]), vector=np.full((1, 64), 9, np.float32), note=np.array([LONG]))
    assert run("add", linked, long).code == 0
    for name in ("v1.npz", "v2.npz"):  # fewer rows than the gallery has: `train auto` tries all trainers
        with np.load(digits / name) as arrays:
            np.savez(tmp_path / name, **{key: values[:100] for key, values in arrays.items()})
    train = ("train", "auto", "--pairs", tmp_path / "v1.npz", tmp_path / "v2.npz")
    return [
        [str(word) for word in words]
        for words in (
            ("status", linked),
            ("versions", linked),
            ("search", linked, "--id", "long", "-k", 2),
            ("upgrade", linked, "v2", "--backfill", 0.25, "--set", "gates.sample=250", "--dry-run"),
            ("evaluate", linked, "v2", "--sample", 250, "--labels", "label"),
            ("upgrade", linked, "v2", "--backfill", 0.1),
            ("unbackfillable", linked, "v2"),
            ("report", linked, "v2", "--labels", "label"),
            ("index", "status", linked),
            ("optimize", linked, "--dry-run"),
            ("history", linked),
            ("status", linked, "--watch"),
            ("verify", linked),
            ("doctor", linked),
            ("register", linked, "v3", "--dim", 8, "--normalised"),
            (*train, "--out", tmp_path / "h.compat"),
        )
    ]


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "TERM": "xterm-256color", **more}


def parts(text):
    """What each verb has printed, by its first words."""
    found = re.split(r"^= (.*)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def is_drawn(text):
    return any(unicodedata.name(sign, "").startswith(("BOX DRAWINGS", "BLOCK")) for sign in text)


def test_a_pipe_gets_plain_lines_however_long(lines):
    words = [sys.executable, "-c", PROGRAM, json.dumps(lines)]
    for more in ({}, {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLUMNS": "40"}):
        chosen = words if not more else [*words[:3], json.dumps(lines[:3])]
        done = subprocess.run(chosen, capture_output=True, text=True, env=environment(**more), check=True)
        for text in (done.stdout, done.stderr):
            assert ESCAPE not in text
            assert RETURN not in text
            assert not is_drawn(text)
            assert "…" not in text
        assert not re.search(r"[ \t]$", done.stdout, re.MULTILINE)
        said = parts(done.stdout)
        (row,) = [line for line in said[f"search {lines[0][1]}"].splitlines() if line.startswith("long ")]
        assert LONG.strip() in row, "one line for a row, whatever it holds"
        heading = said[f"versions {lines[0][1]}"].splitlines()[0]
        assert heading.split() == ["version", "state", "dim", "metric", "fingerprint", "encoder"]
        if not more:
            assert len(said) == len({tuple(words[:2]) for words in lines})
            assert all(said.values()), [name for name, text in said.items() if not text]


def on_a_terminal(words, columns, **more):
    """What a terminal of `columns` columns is sent."""
    import fcntl
    import pty
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    command = [sys.executable, "-c", PROGRAM, json.dumps(words)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**more)) as process:
        seen = read_to_the_end(ours, theirs)
    assert process.returncode == 0, seen
    return seen.decode().replace("\r\n", "\n")


STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_a_narrow_terminal_folds_and_loses_nothing(lines):
    shown = lines[:3]
    seen = on_a_terminal(shown, 44)
    assert ESCAPE in seen, "headings are bold"
    bare = STYLES.sub("", seen).splitlines()
    printed = [line for line in bare if not line.startswith("= ") and str(lines[0][1]) not in line]
    assert max(map(len, printed)) <= 44
    assert "".join(seen.split()).count("verymany") == LONG.count("very many")


@pytest.mark.parametrize("more", [{"TERM": "dumb"}, {"NO_COLOR": "1"}], ids=str)
def test_a_terminal_that_wants_no_styles_gets_none(lines, more):
    upgrade = [words for words in lines if words[0] in ("status", "upgrade")]
    seen = on_a_terminal(upgrade[:1] if "NO_COLOR" in more else upgrade, 80, **more)
    assert not STYLES.search(seen)
    assert RETURN not in seen
    assert not is_drawn(seen)
