"""Writes a session on a terminal by running it: `docs/recording.md`.

    python docs/tools/record.py

It is an upgrade that trains itself, on scikit-learn's digits; it takes a minute or two.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLUMNS = 118
PAGE = ROOT / "docs" / "recording.md"
MODELS = """\
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import compatstore as cs

images, digits = load_digits(return_X_y=True)
known = np.arange(len(images)) % 2 == 0
components = PCA(8).fit(images[known])
discriminants = LinearDiscriminantAnalysis().fit(images[known], digits[known])


def of(model):
    return lambda sources: np.asarray(model.transform(images[[int(source) for source in sources]]), np.float32)


old = cs.encoders.Function(of(components), dim=8, fingerprint="pca@1", spec="python:models:old")
new = cs.encoders.Function(of(discriminants), dim=9, fingerprint="lda@1", spec="python:models:new")

if __name__ == "__main__":
    gallery = cs.Gallery.create("digits.lance", cs.EmbeddingVersion("v1", dim=8, metric="l2", encoder=old))
    numbers = range(len(images))
    gallery.add({"id": [f"digit-{n}" for n in numbers], "source": [str(n) for n in numbers], "digit": digits})
"""
UPGRADE = "compatstore upgrade digits.lance v2 --encoder python:models:new --trust-code"
BUDGET = "--max-cost 5 --price-per-item 0.01"
SESSION = (
    "python models.py",
    f"{UPGRADE} {BUDGET}",
    "compatstore status digits.lance",
    "compatstore report digits.lance --out report --sample 400 --trust-code",
    "compatstore cutover digits.lance v2",
)
INTRODUCTION = """\
# A recording

An upgrade that trains itself, from nothing but an encoder and a budget ([guide](guides/self-teaching.md)): digits of
scikit-learn, 8 principal components as the source and 9 discriminants as the target. Both models are in `models.py`:

```
{models}
```

What a terminal shows, standard error included; {lines} commands took {seconds:.0f} s on {cores} cores, the start of
Python each time included.

```
{session}
```

Written by `python docs/tools/record.py`, which runs it.
"""


@dataclass(frozen=True)
class Recording:
    """What commands printed.

    Attributes:
        text: Each command and what it printed.
        seconds: How long they took.
    """

    text: str
    seconds: float


def record(session: Sequence[str], fill: Callable[[Path], object]) -> Recording:
    """Run commands in a folder of their own.

    Args:
        session: The commands.
        fill: Called with the folder before.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder)
        began = time.monotonic()
        text = "\n".join(_recorded(session, folder)).rstrip()
        return Recording(text, time.monotonic() - began)


def _recorded(session: Sequence[str], folder: Path) -> Iterator[str]:
    """Each command and what it printed; paths of this machine are left out."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    modules = os.pathsep.join(str(place.resolve()) for place in (folder, ROOT))
    environment = {**os.environ, "PATH": programs, "PYTHONPATH": modules, "COLUMNS": str(COLUMNS)}
    for command in session:
        done = subprocess.run(
            command.split(),
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        printed = done.stdout.replace(f"{folder}/", "")
        printed = re.sub(r"by \S+ on \S+, process \d+", "by USER on HOST, process N", printed)
        lines = printed.splitlines()
        printed = "".join(f"{part}\n" for line in lines for part in _wrapped(line.rstrip()))
        code = f"(exit code {done.returncode})\n" if done.returncode else ""
        yield f"{prompt(command)}\n{printed}{code}"


def prompt(command: str) -> str:
    """A command behind a shell's prompt; one that is too long for a line goes on in the next one."""
    return " \\\n    ".join(textwrap.wrap(f"$ {command}", COLUMNS - 2, break_on_hyphens=False))


def _wrapped(line: str) -> list[str]:
    """A line as a terminal breaks it."""
    return [line[start : start + COLUMNS].rstrip() for start in range(0, max(len(line), 1), COLUMNS)]


def page() -> str:
    """The page, with the session as it went now."""
    session = record(SESSION, lambda folder: (folder / "models.py").write_text(MODELS))
    return INTRODUCTION.format(
        models=MODELS.rstrip(),
        session=session.text,
        seconds=session.seconds,
        lines=len(SESSION),
        cores=os.cpu_count(),
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
