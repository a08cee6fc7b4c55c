r"""What the first items of a backfill are worth: orders of one and the same transform, on a seed that no table reports.

    python -m benchmarks.methods.orders --set cifar10 CIFAR-10 --set glyphs.npz Glyphs --first-seed 9 --seeds 1 \
        --journal docs/results/orders.jsonl [--size standard] [--page docs/results/orders.md]

Orders that depend on chance are drawn several times. With the checkpoints of a run its models are taken from there.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.methods.checkpoints import Checkpoints
from benchmarks.methods.data import ImageSet
from benchmarks.methods.document import add_page, line, publish
from benchmarks.methods.lesson import lesson
from benchmarks.methods.measure import unit
from benchmarks.methods.models import Models, embed
from benchmarks.methods.origin import origin
from benchmarks.methods.rows import learned, target_loss
from benchmarks.methods.run import add_options, checkpoints_of, seeds_of, sets_of
from benchmarks.methods.settings import SIZES, Size
from benchmarks.pairs.journal import Journal, Record
from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.evaluation import backfill_curve
from compatstore.trainers import FCT, FastFill
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows

DRAWS, COVERED = 5, 0.2
SHARES = (0.05, 0.1, 0.2)  # of the items, that come before those by sigma
TRANSFORMS = {
    "FCT": partial(learned, FCT),
    "FastFill": lambda models: learned(FastFill, models, **target_loss(models)),
    "FastFill, even": lambda models: learned(FastFill, models, **target_loss(models), beta=1.0),
}


def covering(vectors: FloatArray, count: int) -> Positions:
    """Items that stand for all: each next one raises most the sum of all items' cosines to the nearest chosen one.

    Args:
        vectors: (n, d) floats of unit length.
        count: How many.

    Returns:
        (count,) intp, the greedy order of facility location (Nemhauser et al., 1978).
    """
    alike = np.maximum(vectors @ vectors.T, 0.0)
    nearest, gains = np.zeros(len(vectors), alike.dtype), alike.sum(axis=0)
    chosen = np.empty(count, np.intp)
    for place in range(count):
        best = int(gains.argmax())
        # Gains only fall, so the first whose gain is up to date and still the largest is the best of all.
        while (now := float(np.maximum(alike[:, best] - nearest, 0.0).sum())) < gains[best]:
            gains[best] = now
            best = int(gains.argmax())
        chosen[place], gains[best] = best, -1.0
        nearest = np.maximum(nearest, alike[:, best])
    return chosen


def orders(hopped: FloatArray, sigma2: Doubles | None, source: FloatArray, draw: int) -> Mapping[str, Positions]:
    """Orders of n items: name -> (n,) intp, the first to embed first."""
    items = ArrayRows(ids=range(len(hopped)), sigma2=sigma2, source=source)
    at_random, spread = (order(policy, items, draw) for policy in ("random", "spread"))
    if sigma2 is None:
        return {"random": at_random, "spread": spread}
    falling = np.argsort(-sigma2, kind="stable")
    found = {"random": at_random, "spread": spread, "spread-sigma": order("spread-sigma", items, draw)}
    for share in SHARES:
        found[f"spread, then sigma: {share:.0%} spread"] = _then(spread[: round(share * len(spread))], falling)
    if draw:
        return found
    alike = covering(unit(hopped), round(COVERED * len(hopped)))
    alone = {"sigma": falling, "the smallest sigma first": falling[::-1]}
    return found | alone | {f"covering, then sigma: {COVERED:.0%} covering": _then(alike, falling)}


def measure(models: Models, transform: str) -> Record:
    """Areas of CMC-1 and mAP for each order, means over draws."""
    at = models.lesson
    artifact = TRANSFORMS[transform](models)
    queries, native = embed(models.independent.encoder, at.queries), embed(models.independent.encoder, at.gallery)
    source = embed(models.source.encoder, at.gallery)
    made = artifact.apply(source)
    sigma2 = None if made.uncertainty is None else np.asarray(made.uncertainty, np.float64)
    vectors = tuple(map(unit, (queries, made.vectors, native)))
    labels = at.queries.labels, at.gallery.labels
    areas: dict[str, list[tuple[float, float]]] = {}
    for draw in range(DRAWS):
        for name, ranked in orders(made.vectors, sigma2, source, draw).items():
            curve = backfill_curve(*vectors, *labels, ranked, alphas=at.size.alphas, ks=(1,), metric="dot")
            areas.setdefault(name, []).append((curve.area["cmc@1"], curve.area["map"]))
    means = {name: np.mean(values, axis=0) for name, values in areas.items()}
    return {"orders": {name: {"cmc1": float(cmc1), "map": float(map_)} for name, (cmc1, map_) in means.items()}}


def run(data: ImageSet, size: Size, seed: int, journal: Journal, checkpoints: Checkpoints) -> None:
    """Measure all orders of each transform."""
    models = Models(lesson(data, "classes", size, seed), checkpoints)
    for transform in TRANSFORMS:
        key = {"size": size.name, "set": data.name, "setting": "classes", "seed": seed, "method": transform}
        journal.once(key, partial(measure, models, transform), partial(origin, size))
        print(f"{data.name}, seed {seed}, {transform}", flush=True)


def table(records: Sequence[Record]) -> Iterator[str]:
    """A line for each order: areas of CMC-1 / mAP by set and transform, in points, means over seeds."""
    groups = dict.fromkeys((record["set"], record["method"]) for record in records)
    names = dict.fromkeys(name for record in records for name in record["orders"])
    yield line(["order", *(f"{which}, {transform}" for which, transform in groups)])
    yield line(["---"] * (1 + len(groups)))
    for name in names:
        cells = []
        for group in groups:
            found = [one["orders"].get(name) for one in records if (one["set"], one["method"]) == group]
            means = [np.mean([area[metric] for area in found if area]) for metric in ("cmc1", "map") if any(found)]
            cells.append(" / ".join(f"{100 * mean:.1f}" for mean in means))
        yield line([name, *cells])


def _then(first: Positions, rest: Positions) -> Positions:
    return np.concatenate([first, rest[~np.isin(rest, first)]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--size", choices=SIZES, default="standard")
    add_page(parser)
    options = parser.parse_args()
    journal, size, checkpoints = Journal(options.journal), SIZES[options.size], checkpoints_of(options)
    for seed, data in itertools.product(seeds_of(options), sets_of(options, size)):
        run(data, size, seed, journal, checkpoints)
    publish(table(journal.records), options.page)


if __name__ == "__main__":
    main()
