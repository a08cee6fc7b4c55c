r"""Where a loss with a margin leaves its vectors: their cosines with the rows of the head, and how they retrieve.

    python -m benchmarks.methods.margins --set cifar10 CIFAR-10 --first-seed 9 --seeds 1 --journal margins.jsonl \
        [--size standard] [--loss "ArcFace, margin 0.3"] [--page docs/results/margins.md]

ArcFace turns a vector further from its class's row by an angle m. That costs `cos a - cos(a + m)`, which is
`2 sin(m / 2) sin(a + m / 2)`: most at a right angle, and nearly nothing where a + m / 2 is near pi. CosFace takes m
from the cosine, at every angle. The target of the setting "classes" is trained by each loss; with the checkpoints of a
run its own are taken from there.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.methods.checkpoints import Checkpoints
from benchmarks.methods.data import ImageSet
from benchmarks.methods.document import add_page, line, publish
from benchmarks.methods.lesson import lesson
from benchmarks.methods.measure import own, unit
from benchmarks.methods.models import ARCFACE, Models, embed
from benchmarks.methods.origin import origin
from benchmarks.methods.other_loss import COSFACE, trained_by
from benchmarks.methods.run import add_options, checkpoints_of, seeds_of, sets_of
from benchmarks.methods.settings import SIZES, Size
from benchmarks.pairs.journal import Journal, Record

LOSSES: Mapping[str, dict[str, Any]] = {
    "ArcFace, margin 0.3": {"head": "arcface", **ARCFACE},
    "CosFace, margin 0.2": COSFACE,
    "no margin": {"head": "cosine", "scale": ARCFACE["scale"]},
}


def measure(models: Models) -> Record:
    """Train the target; cosines of gallery items with the row of their class and with all others, and t/t."""
    model, gallery = models.independent, models.lesson.gallery
    vectors, rows = unit(embed(model.encoder, gallery)), unit(model.head)
    cosines = vectors @ rows.T
    is_own = np.asarray(gallery.labels)[:, None] == np.arange(len(rows))
    right = float(np.mean(cosines.argmax(axis=1) == np.asarray(gallery.labels)))
    apart = {"own_row": float(cosines[is_own].mean()), "other_rows": float(cosines[~is_own].mean())}
    return {**apart, "mean_length": float(np.linalg.norm(vectors.mean(axis=0))), "classified": right} | {
        "t/t": own(models.lesson, model)
    }


def margins(
    data: ImageSet, size: Size, seed: int, journal: Journal, checkpoints: Checkpoints, losses: Sequence[str] = ()
) -> None:
    """Measure the target of each loss, or of the named ones."""
    models = Models(lesson(data, "classes", size, seed), checkpoints)
    for name in losses or LOSSES:
        key = {"size": size.name, "set": data.name, "setting": "classes", "seed": seed, "method": name}
        journal.once(key, partial(measure, trained_by(models, LOSSES[name])), partial(origin, size))
        print(f"{data.name}, seed {seed}, {name}", flush=True)


def table(records: Sequence[Record]) -> Iterator[str]:
    """A line for each set and loss, means over seeds."""
    yield line(["set", "loss", "seeds", "own row", "other rows", "mean", "classified", "t/t"])
    yield line(["---"] * 8)
    for group in dict.fromkeys((record["set"], record["method"]) for record in records):
        mine = [record for record in records if (record["set"], record["method"]) == group]
        cosines = (np.mean([each[name] for each in mine]) for name in ("own_row", "other_rows", "mean_length"))
        right = np.mean([each["classified"] for each in mine])
        first, precision = (np.mean([each["t/t"][name] for each in mine]) for name in ("cmc1", "map"))
        cells = [*(f"{cosine:.2f}" for cosine in cosines), f"{100 * right:.1f}"]
        yield line([*group, str(len(mine)), *cells, f"{100 * first:.1f} / {100 * precision:.1f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--size", choices=SIZES, default="standard")
    parser.add_argument("--loss", nargs="+", choices=LOSSES, default=list(LOSSES))
    add_page(parser)
    options = parser.parse_args()
    journal, size, checkpoints = Journal(options.journal), SIZES[options.size], checkpoints_of(options)
    for seed, data in itertools.product(seeds_of(options), sets_of(options, size)):
        margins(data, size, seed, journal, checkpoints, options.loss)
    publish(table(journal.records), options.page)


if __name__ == "__main__":
    main()
