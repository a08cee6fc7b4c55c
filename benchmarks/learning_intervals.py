r"""Do the intervals that each wave of a self-taught upgrade shows hold? Against queries that are not in the gallery.

    python -m benchmarks.learning_intervals characters.npz glosses.npz [--draws 50] [--labels] \
        --journal docs/results/learning_intervals.jsonl --page docs/results/learning_intervals.md

The sets are made by `benchmarks.pairs.images`, `benchmarks.pairs.plain` and `benchmarks.pairs.texts`. Each draw takes
another gallery and other queries of what no model was trained on, and upgrades the gallery wave by wave. What a wave
says of the status quo, of how the gallery is searched from then on, of the gain, and of larger native shares is
compared with the same figure of all the other queries in the whole gallery. A run that was stopped goes on from its
journal.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fusion.page import fill
from benchmarks.learning import NEW, TaughtGallery
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.journal import Journal, Record
from compatstore.arrays import BoolArray
from compatstore.evaluation import DecisionSettings, Estimate
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.fusion_choice import FusionTrial
from compatstore.evaluation.sample import EvaluationSample
from compatstore.evaluation.strategies import trial_of_fusions
from compatstore.upgrade.backfilling.policies import SPREAD, order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from compatstore.upgrade.estimates.fusing import filled
from compatstore.upgrade.estimates.trial import TRUST
from compatstore.upgrade.estimates.waves import WaveFigures

WAVES = (100, 200, 400)
LIMIT = 0.9
SHOWN = ("status quo", "as served", "gain", "promised")
TRUTHS = {False: "neighbours by both models", True: "labels"}


def shown_and_true(taught: TaughtGallery, wave: WaveFigures, *, labels: bool) -> Iterator[tuple[str, Estimate, float]]:
    """Each interval that a wave shows, with the truth of the queries from outside."""
    trial, native = _outside(taught, labels=labels)
    registry = taught.gallery._catalog.registry()
    fusion = registry.fusion_of(NEW) or Fusion(weight=0.0)
    served = fusion if wave.gain is not None else replace(fusion, weight=0.0)
    before, now = _average(trial, native, replace(fusion, weight=0.0)), _average(trial, native, served)
    yield "status quo", wave.status_quo, before
    yield "as served", wave.served, now
    if wave.gain is not None:
        yield "gain", wave.gain, now - before
    urgent = order(SPREAD, ArrayRows(ids=taught.ids, source=taught.vectors(SOURCE, taught.rows)), taught.seed)
    for share, figure in wave.ahead:
        mask = filled(native, np.asarray(urgent, np.intp), share)
        yield "promised", figure, _average(trial, mask, fusion.at(share))


def _average(trial: FusionTrial, native: BoolArray, fusion: Fusion) -> float:
    found = trial.find(native, fusion)
    return float(found.values[-1, found.counted].mean())


def _outside(taught: TaughtGallery, *, labels: bool) -> tuple[FusionTrial, BoolArray]:
    """The queries from outside, asking the whole gallery as it is stored; and which items are native."""
    native = np.isin(taught.ids, taught.gallery.native_ids(NEW))
    classes = taught.data.labels
    settings = DecisionSettings(source_metric="cosine", target_metric="cosine", trust=1.0 if labels else TRUST)
    sample = EvaluationSample(
        source_queries=taught.vectors(SOURCE, taught.asked),
        target_queries=taught.vectors(TARGET, taught.asked),
        source=taught.vectors(SOURCE, taught.rows),
        transformed=taught.stored(native),
        native=taught.vectors(TARGET, taught.rows),
        order=np.arange(len(taught.rows)),
        query_labels=classes[taught.asked] if labels else None,
        gallery_labels=classes[taught.rows] if labels else None,
    )
    if not labels:
        settings = replace(settings, neighbours=taught.neighbours)
    return trial_of_fusions(sample, settings), native


def draw(data: EmbeddedSet, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """One upgrade: how many intervals of each kind hold, wave by wave."""
    inside: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    with tempfile.TemporaryDirectory() as folder:
        taught = TaughtGallery(data, options.items, options.queries, seed, folder, labels=options.labels)
        for natives in WAVES:
            wave = taught.lesson(natives)
            for kind, interval, true in shown_and_true(taught, wave, labels=options.labels):
                cell = inside[f"{natives}|{kind}"]
                cell[0] += int(interval.low - 1e-9 <= true <= interval.high + 1e-9)
                cell[1] += 1
    return {"inside": dict(inside)}


def tables(records: Sequence[Record]) -> str:
    """Markdown: how many intervals hold, by set, truth, wave and kind."""
    counts, draws = defaultdict[tuple[str, ...], Counter[str]](Counter), Counter[tuple[str, str]]()
    for record in records:
        draws[record["set"], record["setting"]] += 1
        for key, (inside, asked) in record["inside"].items():
            natives, kind = key.split("|")
            case = (record["set"], record["setting"], natives)
            counts[case].update({f"{kind} in": inside, f"{kind} of": asked})
    lines = [f"| set | truth | draws | natives | {' | '.join(SHOWN)} |", "|---|---|---:|---:|" + "---:|" * len(SHOWN)]
    for (name, truth, natives), found in counts.items():
        cells = [f"{found[f'{kind} in']} of {found[f'{kind} of']}" if found[f"{kind} of"] else "-" for kind in SHOWN]
        lines.append(f"| {name} | {truth} | {draws[name, truth]} | {natives} | {' | '.join(cells)} |")
    shares = {
        (*case, kind): found[f"{kind} in"] / found[f"{kind} of"]
        for case, found in counts.items()
        for kind in SHOWN
        if found[f"{kind} of"]
    }
    inside = sum(found[f"{kind} in"] for found in counts.values() for kind in SHOWN)
    asked = sum(found[f"{kind} of"] for found in counts.values() for kind in SHOWN)
    lines += [
        "",
        f"{inside} of {asked} intervals hold the truth ({inside / asked:.1%}). Of the {len(shares)} kinds above, "
        f"{sum(share < LIMIT for share in shares.values())} are below {LIMIT:.0%}; the lowest is "
        f"{min(shares.values()):.0%}.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", type=Path)
    parser.add_argument("--journal", type=Path, required=True, help="one JSON line for each draw")
    parser.add_argument("--page", type=Path, help="a page whose tables are written from the journal")
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--items", type=int, default=1200)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--labels", action="store_true", help="tell the upgrade the items' labels")
    options = parser.parse_args()
    size, journal = f"{options.items} items, {options.queries} queries", Journal(options.journal)
    for data in map(EmbeddedSet.load, options.sets):
        for seed in range(options.draws):
            key = {"size": size, "set": data.name, "setting": TRUTHS[options.labels], "seed": seed, "method": "waves"}
            journal.once(key, lambda d=data, s=seed: draw(d, options, s))
            print(data.name, seed, flush=True)
    text = tables([record for record in journal.records if record["size"] == size])
    print(text)
    if options.page:
        fill(options.page, text)


if __name__ == "__main__":
    main()
