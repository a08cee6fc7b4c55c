r"""Every method of the papers on a folder of class folders, in real galleries, over several seeds.

    python -m benchmarks.methods.run --set glyphs.npz Glyphs --set caltech101 Caltech-101 \
        --leave-out BACKGROUND_Google --journal methods.jsonl [--size quick] [--seeds 3] [--setting classes data series]
    python -m benchmarks.methods.report methods.jsonl docs/results/methods.md

Each measurement is written to the journal as it is finished and never taken again, with the settings of its size, the
commit and the hardware. Each training on images is saved to a file of its own, every 50 steps (2,000 of networks of
timm; `--checkpoints DIR`, by default beside the journal): a run that was stopped goes on within the epoch, and rows
share what they have in common, such as the source. A row's seconds are those of the process that finished it.
Checkpoints do not know the code that made them: after a change to a trainer name another folder, or pass `--no-resume`.

For 60 epochs; one core a process is used best, and a GPU serves many processes, each with a journal of its own:

    OMP_NUM_THREADS=1 python -m benchmarks.methods.run --set glyphs.npz Glyphs --size standard \
        --journal methods.jsonl --setting classes

The papers' size, on a GPU, with CIFAR-10 as folders `train` and `test` of class folders; with `--try` on a processor,
the same networks on 512 images for two epochs:

    python -m benchmarks.methods.run --set cifar10 CIFAR-10 --size gpu --journal methods.jsonl [--try]

Models that search another set than they have learned from (FCT, table 9):

    python -m benchmarks.methods.run --set caltech101 Caltech-101 --elsewhere cifar10 CIFAR-10 --journal methods.jsonl

Sources that have learned from another set than the targets, and no class of it (FCT, appendix I):

    python -m benchmarks.methods.run --set cifar10 CIFAR-10 --disjoint caltech101 Caltech-101 --journal methods.jsonl

A gallery of captions, by a text model of `benchmarks.pairs.texts`, that an image model searches (BT^2, section 4.7):

    python -m benchmarks.methods.run --set caltech101 Caltech-101 --texts minilm --journal methods.jsonl
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.methods.checkpoints import Checkpoints
from benchmarks.methods.data import ImageSet, captioned, following, read, searching
from benchmarks.methods.lesson import DISJOINT, ELSEWHERE, SETTINGS, TEXTS, Setting, lesson
from benchmarks.methods.models import Models
from benchmarks.methods.origin import origin, require_same_settings
from benchmarks.methods.rows import FRESH, ROWS
from benchmarks.methods.series import SERIES
from benchmarks.methods.settings import EARLIER, SIZES, Size
from benchmarks.methods.steps import CHAINS
from benchmarks.methods.texts import ACROSS
from benchmarks.pairs.journal import Journal, Record


def measurements(setting: Setting) -> dict[str, Callable[[Models], Record]]:
    """Name the rows of a setting's table."""
    return {"series": SERIES, "steps": CHAINS, TEXTS: ACROSS}.get(setting, ROWS)


def run(
    data: ImageSet,
    size: Size,
    seeds: Sequence[int],
    journal: Journal,
    settings: Sequence[Setting],
    rows: Sequence[str],
    checkpoints: Checkpoints | None = None,
) -> None:
    """Measure a set, row by row; models that rows share are trained when the first of them needs one."""
    require_same_settings(journal, size)
    for setting, seed in itertools.product(settings, seeds):
        models = Models(lesson(data, setting, size, seed), checkpoints or Checkpoints())
        for name, measure in measurements(setting).items():
            if (rows and name not in rows) or (FRESH in name and models.lesson.fresh is None):
                continue
            start = time.perf_counter()
            key = {"size": size.name, "set": data.name, "setting": setting, "seed": seed, "method": name}
            journal.once(key, partial(measure, models), partial(origin, size))
            seconds = time.perf_counter() - start
            print(f"{data.name}, {setting}, seed {seed}, {name}: {seconds:.0f} s", flush=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that trains models of this benchmark."""
    parser.add_argument("--set", nargs=2, action="append", required=True, metavar=("PATH", "NAME"))
    parser.add_argument("--leave-out", nargs="*", default=[], help="class folders")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, metavar="DIR", help="JOURNAL.checkpoints by default")
    parser.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="go on from checkpoints; without, train from the beginning what the journal lacks",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0, help="so that processes share the seeds of a run")


def seeds_of(options: argparse.Namespace) -> range:
    """The seeds of a command."""
    return range(options.first_seed, options.first_seed + options.seeds)


def sets_of(options: argparse.Namespace, size: Size) -> list[ImageSet]:
    """The sets of a command, read."""
    return [read(Path(path), name, size.pixels, options.leave_out) for path, name in options.set]


def checkpoints_of(options: argparse.Namespace) -> Checkpoints:
    """Where the trainings of a command are saved."""
    return Checkpoints(options.checkpoints or options.journal.with_suffix(".checkpoints"), options.resume)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--size", choices=SIZES, default="quick")
    parser.add_argument("--try", dest="tried", action="store_true", help="its networks on little data, in minutes")
    here = [name for name in SETTINGS if name not in (ELSEWHERE, DISJOINT, TEXTS)]
    parser.add_argument("--setting", choices=here, nargs="+", default=here)
    another = parser.add_mutually_exclusive_group()
    another.add_argument("--elsewhere", nargs=2, metavar=("PATH", "NAME"), help="a set that the models of --set search")
    another.add_argument("--disjoint", nargs=2, metavar=("PATH", "NAME"), help="a set that sources learn from")
    another.add_argument("--texts", metavar="MODEL", help="a model of texts, whose vectors of captions are stored")
    parser.add_argument("--row", nargs="*", default=[], help="rows, all by default")
    options = parser.parse_args()
    journal, checkpoints = Journal(options.journal, EARLIER), checkpoints_of(options)
    size = SIZES[options.size].tried() if options.tried else SIZES[options.size]
    sets = sets_of(options, size)
    settings: Sequence[Setting] = options.setting
    if second := options.elsewhere or options.disjoint:
        other = read(Path(second[0]), second[1], size.pixels, options.leave_out)
        joined, setting = (searching, ELSEWHERE) if options.elsewhere else (following, DISJOINT)
        sets, settings = [joined(data, other) for data in sets], [setting]
    elif options.texts:
        sets, settings = [captioned(data, options.texts) for data in sets], [TEXTS]
    for seed, data in itertools.product(seeds_of(options), sets):
        run(data, size, [seed], journal, settings, options.row, checkpoints)


if __name__ == "__main__":
    main()
