r"""How long a size has to train: CMC-1 and mAP of source and target, each in its own gallery, by epochs.

    python -m benchmarks.methods.rise --set glyphs.npz Glyphs --journal rise.jsonl --size standard \
        [--epochs 10 20 40] [--seeds 1] [--page docs/results/rise.md]

Every number of epochs is a training of its own, since the learning rate falls to 0 over all of its epochs. A model no
longer rises at the fewest epochs that no longer training improves on by more than `TOLERANCE` of mAP. With the
checkpoints of a run the trainings of its own length are taken from there, and are there for it.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.methods.checkpoints import Checkpoints
from benchmarks.methods.data import ImageSet
from benchmarks.methods.document import add_page, line, publish
from benchmarks.methods.lesson import lesson
from benchmarks.methods.measure import own
from benchmarks.methods.models import Models
from benchmarks.methods.origin import origin
from benchmarks.methods.run import add_options, checkpoints_of, seeds_of, sets_of
from benchmarks.methods.settings import SIZES, Size
from benchmarks.pairs.journal import Journal, Record

TOLERANCE = 0.01
EPOCHS = (10, 20, 40)
MODELS = ("source", "target")


def measure(models: Models, which: str) -> Record:
    """Train one of the two and search its own gallery."""
    start = time.perf_counter()
    model = models.source if which == "source" else models.independent
    seconds = time.perf_counter() - start
    return {"model": which, "epochs": models.lesson.size.epochs, "own": own(models.lesson, model), "seconds": seconds}


def rise(
    data: ImageSet, size: Size, epochs: Sequence[int], seed: int, journal: Journal, checkpoints: Checkpoints
) -> None:
    """Measure source and target of the setting "classes" for each number of epochs."""
    for count, which in itertools.product(epochs, MODELS):
        longer = replace(size, epochs=count)
        models = Models(lesson(data, "classes", longer, seed), checkpoints)
        method = f"{which}, {count} epochs"
        key = {"size": size.name, "set": data.name, "setting": "classes", "seed": seed, "method": method}
        journal.once(key, partial(measure, models, which), partial(origin, longer))
        print(f"{data.name}, seed {seed}, {method}", flush=True)


def enough(by_epochs: dict[int, float]) -> int | None:
    """The fewest epochs that none of the longer trainings improves on by more than the tolerance.

    Args:
        by_epochs: mAP, 0 to 1, by epochs.

    Returns:
        None where the longest training is the first of which that can be said: it may still rise.
    """
    last = max(by_epochs)
    for epochs in sorted(by_epochs):
        if epochs < last and max(by_epochs.values()) - by_epochs[epochs] <= TOLERANCE:
            return epochs
    return None


def table(records: Sequence[Record]) -> Iterator[str]:
    """A line for each size, set and model: CMC-1 / mAP by epochs, means over seeds, and how many are enough."""
    counts = sorted({record["epochs"] for record in records})
    yield line(["size", "set", "model", "seeds", *(f"{count} epochs" for count in counts), "no longer rises from"])
    yield line(["---"] * (len(counts) + 5))
    groups = dict.fromkeys((record["size"], record["set"], record["model"]) for record in records)
    for group in groups:
        mine = [record for record in records if (record["size"], record["set"], record["model"]) == group]
        cells, by_epochs = [], dict[int, float]()
        for count in counts:
            found = [record["own"] for record in mine if record["epochs"] == count]
            means = {name: float(np.mean([own[name] for own in found])) for name in ("cmc1", "map")} if found else {}
            cells.append(f"{100 * means['cmc1']:.1f} / {100 * means['map']:.1f}" if found else "")
            by_epochs |= {count: means["map"]} if found else {}
        seeds = len({record["seed"] for record in mine})
        yield line([*group, str(seeds), *cells, str(enough(by_epochs) or "not found")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--size", choices=SIZES, default="standard")
    parser.add_argument("--epochs", type=int, nargs="+", default=EPOCHS)
    add_page(parser)
    options = parser.parse_args()
    journal, size, checkpoints = Journal(options.journal), SIZES[options.size], checkpoints_of(options)
    for seed, data in itertools.product(seeds_of(options), sets_of(options, size)):
        rise(data, size, options.epochs, seed, journal, checkpoints)
    publish(table(journal.records), options.page)


if __name__ == "__main__":
    main()
