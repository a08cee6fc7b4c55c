r"""Do the intervals that each wave of a self-taught upgrade shows hold? Against queries that are not in the gallery.

    python -m benchmarks.learning_intervals characters.npz glosses.npz [--draws 50] [--labels] [--asked nouns.npz] \
        [--target] [--jobs 1] \
        --journal docs/results/learning_intervals.jsonl --page docs/results/learning_intervals.md

The sets are made by `benchmarks.pairs.images`, `benchmarks.pairs.plain` and `benchmarks.pairs.texts`. Each draw takes
another gallery and other queries of what no model was trained on, and upgrades the gallery wave by wave. What a wave
says of the status quo, of how the gallery is searched from then on, of the gain, and of larger native shares is
compared with the same figure of all the other queries in the whole gallery; also on which side of an interval's middle
that is, on average. With --target upgrades are judged by the target alone. A run that was
stopped goes on from its journal.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.fusion.page import fill
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.journal import Journal, Record, Task
from benchmarks.taught import NEW, TaughtGallery, add_options, drawn, setting_of, size_of
from compatstore.arrays import BoolArray
from compatstore.evaluation import DecisionSettings, Estimate
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.fusion_choice import Trial
from compatstore.evaluation.sample import EvaluationSample
from compatstore.evaluation.strategies import trial_of_fusions
from compatstore.upgrade.backfilling.policies import SPREAD, order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from compatstore.upgrade.estimates.waves import WaveFigures

WAVES = (100, 200, 400)
LIMIT = 0.9
SHOWN = ("status quo", "as served", "gain", "promised")


def shown_and_true(taught: TaughtGallery, wave: WaveFigures) -> Iterator[tuple[str, Estimate, float]]:
    """Each interval that a wave shows, with the truth of the queries from outside."""
    native = taught.native
    trial = _outside(taught, wave, native)
    figure = trial.settings.metrics.index(wave.criterion)

    def average(native: BoolArray, fusion: Fusion) -> float:
        found = trial.find(native, fusion)
        return float(found.values[figure, found.counted].mean())

    alone = taught.draw.gates.serving == "target"
    fusion = taught.gallery._catalog.registry().fusion_of(NEW) or Fusion(weight=0.0)
    if alone:
        fusion = Fusion(weight=1.0)
    served = fusion if wave.gain is not None else replace(fusion, weight=0.0)
    before, now = average(native, replace(fusion, weight=0.0)), average(native, served)
    yield "status quo", wave.status_quo, before
    yield "as served", wave.served, now
    if wave.gain is not None:
        yield "gain", wave.gain, now - before
    urgent = order(SPREAD, ArrayRows(ids=taught.ids, source=taught.vectors(SOURCE)), taught.seed)
    backfilled = replace(trial.sample, order=urgent)
    for share, promised, _ in wave.ahead:
        yield "promised", promised, average(backfilled.filled(share, native), fusion.at(share))


def _outside(taught: TaughtGallery, wave: WaveFigures, native: BoolArray) -> Trial:
    """The queries from outside, asking the whole gallery as it is stored."""
    outside, told = taught.draw.outside, taught.draw.gates.labels
    settings = DecisionSettings(
        source_metric="cosine",
        target_metric="cosine",
        criterion="map" if told is None else wave.criterion,  # agreement without ground truth
        depth=outside.relevance.depth,
    )
    sample = EvaluationSample(
        source_queries=outside.source,
        target_queries=outside.target,
        source=taught.vectors(SOURCE),
        transformed=taught.stored(native),
        native=taught.vectors(TARGET),
        order=np.arange(len(taught.ids)),
        query_labels=outside.labels if told == "label" else None,
        gallery_labels=taught.data.labels[taught.draw.rows] if told == "label" else None,
        judged=outside.judged,
        factors=taught.factors,
    )
    if told is None:
        settings = replace(settings, neighbours=taught.neighbours)
    return trial_of_fusions(sample, settings)


def measured(path: Path, seed: int, options: argparse.Namespace) -> list[Record]:
    """One upgrade: how many intervals of each kind hold, wave by wave, and where the truth is in them."""
    inside: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    places = defaultdict[str, list[float]](list)  # of the truth: -1 at the lower end, 1 at the upper one
    data = EmbeddedSet.load(path)
    taken = drawn(data, seed, options)
    if options.target:
        taken = replace(taken, gates=replace(taken.gates, serving="target"))
    with tempfile.TemporaryDirectory() as folder:
        taught = TaughtGallery(data, taken, seed, folder)
        for natives in WAVES:
            wave = taught.lesson(natives)
            for kind, interval, true in shown_and_true(taught, wave):
                cell = inside[f"{natives}|{kind}"]
                cell[0] += int(interval.low - 1e-9 <= true <= interval.high + 1e-9)
                cell[1] += 1
                if interval.high > interval.low:
                    place = (2 * true - interval.low - interval.high) / (interval.high - interval.low)
                    places[f"{natives}|{kind}"].append(round(place, 3))
    return [{"inside": dict(inside), "places": dict(places)}]


def tables(records: Sequence[Record]) -> str:
    """Markdown: how many intervals hold, by set, truth, wave and kind."""
    counts, draws = defaultdict[tuple[str, ...], Counter[str]](Counter), Counter[tuple[str, str]]()
    for record in records:
        draws[record["set"], record["setting"]] += 1
        for key, (inside, asked) in record["inside"].items():
            natives, kind = key.split("|")
            case = (record["set"], record["setting"], natives)
            counts[case].update({f"{kind} in": inside, f"{kind} of": asked})
    lines = [f"| set | told | draws | natives | {' | '.join(SHOWN)} |", "|---|---|---:|---:|" + "---:|" * len(SHOWN)]
    for (name, told, natives), found in counts.items():
        cells = [f"{found[f'{kind} in']} of {found[f'{kind} of']}" if found[f"{kind} of"] else "-" for kind in SHOWN]
        lines.append(f"| {name} | {told} | {draws[name, told]} | {natives} | {' | '.join(cells)} |")
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
        "<!-- check",
        f'quoted("the table above, added", {100 * inside / asked:.1f})',
        "-->",
    ]
    return "\n".join([*lines, *_where(records)])


def _where(records: Sequence[Record]) -> list[str]:
    """Markdown: the mean place of the truth in the intervals of the draws whose places were noted."""
    places = defaultdict[tuple[str, ...], list[float]](list)
    for record in records:
        for key, found in record.get("places", {}).items():
            natives, kind = key.split("|")
            places[record["set"], record["setting"], natives, kind] += found
    if not places:
        return []
    lines = ["", "Mean place of the truth in its interval, -1 at the lower end and 1 at the upper one:", ""]
    lines += [f"| set | told | natives | {' | '.join(SHOWN)} |", "|---|---|---:|" + "---:|" * len(SHOWN)]
    for case in dict.fromkeys(key[:3] for key in places):
        means = [places.get((*case, kind)) for kind in SHOWN]
        cells = ["-" if found is None else f"{np.mean(found):+.2f}" for found in means]
        lines.append(f"| {' | '.join((*case, *cells))} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, items=1200, queries=2000)
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--target", action="store_true", help="judge the target alone")
    options = parser.parse_args()
    setting = setting_of(options) + ", target" * options.target
    journal, tasks = Journal(options.journal), []
    for path in options.sets:
        name = EmbeddedSet.load(path).name
        for seed in range(options.draws):
            key = {"size": size_of(options), "set": name, "setting": setting, "seed": seed}
            tasks.append(Task([key | {"method": "waves"}], partial(measured, path, seed, options)))
    for done in journal.measure(tasks, options.jobs):
        print(done[-1]["set"], done[-1]["seed"], flush=True)
    text = tables(journal.records)
    print(text)
    if options.page:
        fill(options.page, text)


if __name__ == "__main__":
    main()
