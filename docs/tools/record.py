"""Writes `docs/recording.md`, a session on a terminal, by running it: `python docs/tools/record.py`.

The session is an upgrade that teaches itself, on scikit-learn's digits. It takes a minute or two.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

COLUMNS = 118
PAGE = Path(__file__).parents[1] / "recording.md"
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

An upgrade that teaches itself, from nothing but an encoder and a budget ([guide](guides/self-teaching.md)): digits of
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


def recorded(folder: Path) -> Iterator[str]:
    """Each command and what it printed; paths of this machine are left out."""
    (folder / "models.py").write_text(MODELS)
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": programs, "PYTHONPATH": str(folder), "COLUMNS": str(COLUMNS)}
    for command in SESSION:
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
        yield f"$ {command}\n{printed}{code}"


def _wrapped(line: str) -> list[str]:
    """A line as a terminal breaks it."""
    return [line[start : start + COLUMNS].rstrip() for start in range(0, max(len(line), 1), COLUMNS)]


def page() -> str:
    """The page, with the session as it went now."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        session = "\n".join(recorded(Path(folder))).rstrip()
        seconds = time.monotonic() - began
    return INTRODUCTION.format(
        models=MODELS.rstrip(), session=session, seconds=seconds, lines=len(SESSION), cores=os.cpu_count()
    )


if __name__ == "__main__":
    PAGE.write_text(page())
