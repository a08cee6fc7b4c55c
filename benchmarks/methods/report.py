"""Fill the tables of a document from the journal of a run.

    python -m benchmarks.methods.report methods.jsonl docs/results/methods.md [--size quick]

A table lies between `<!-- table: NAME -->` and `<!-- end -->`; its name is a setting's, or "paper".
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.methods import paper
from benchmarks.methods.document import filled, line
from benchmarks.methods.lesson import SETTINGS, STEPS
from benchmarks.methods.rows import ROWS, baseline
from benchmarks.methods.series import OF_FOUR, SERIES
from benchmarks.methods.settings import EARLIER, SIZES
from benchmarks.methods.steps import CHAINS
from benchmarks.methods.texts import ACROSS
from benchmarks.pairs.journal import Journal, Record

PAIRS = ("s/s", "t/s", "t/h", "h/h", "t/t")
HEADER = ("row", *PAIRS, "gain, mAP", "degradation, mAP", "area")
GAPS = ("gap: s/s, t/t", "gap of CMC-1 at 0, 25, 100 %", "mended, broken at 50 %")
_SHARES = ("0%", "25%", "100%")


def tables(setting: str, records: Sequence[Record]) -> Iterator[str]:
    """One table for each set: a line a row, means over seeds and their deviation."""
    mine = [record for record in records if record["setting"] == setting]
    for name in dict.fromkeys(record["set"] for record in mine):
        rows = [record for record in mine if record["set"] == name]
        seeds = len({record["seed"] for record in rows})
        yield from ("", f"#### {name}, seeds: {seeds}", "")
        if setting in (known := {"series": _series, "steps": _steps, "texts": _texts}):
            yield from known[setting](rows)
        else:
            yield from _methods(rows, grouped=setting == "subgroups")


def _methods(records: Sequence[Record], *, grouped: bool) -> Iterator[str]:
    header = (*HEADER, *(GAPS if grouped else ()))
    yield line(header)
    yield line(["---"] * len(header))
    for row in ROWS:
        alone = [record for record in records if record["method"] == baseline(row)]
        found = [record for record in records if record["method"] == row]
        if found:
            cells = [_name(row, found, records), *(_spread(found, pair) for pair in PAIRS), *_derived(found, alone)]
            yield line([*cells, *(_gaps(found) if grouped else ())])


def _gaps(found: Sequence[Record]) -> Iterator[str]:
    """Between subgroups: of each model alone, and along each curve; and what half of a backfill mends and breaks."""
    alone = [(pair, [record[pair]["gap"] for record in found if pair in record]) for pair in ("s/s", "t/t")]
    yield ", ".join(_mean(gaps, "cmc1") for _, gaps in alone if gaps)
    names = dict.fromkeys(curve for record in found for curve in record.get("curves", {}))
    curves = {name: [record["curves"][name] for record in found] for name in names}
    yield "; ".join(
        f"{name}: {', '.join(_mean([one['gap'][share] for one in of], 'cmc1') for share in _SHARES)}"
        for name, of in curves.items()
    )
    yield "; ".join(
        f"{name}: {', '.join(_halfway([one['flips'][kind] for one in of]) for kind in ('mended', 'broken'))}"
        for name, of in curves.items()
    )


def _halfway(shares: Sequence[Sequence[float]]) -> str:
    """In points, in the middle of a curve whose steps lie evenly on both sides of it but for one at 25 %."""
    return f"{100 * np.mean([steps[len(steps) // 2] for steps in shares]):.1f}"


def _name(row: str, found: Sequence[Record], records: Sequence[Record]) -> str:
    seeds = len({record["seed"] for record in records})
    return row if len(found) == seeds else f"{row} ({len(found)} of {seeds} seeds)"


def _derived(found: Sequence[Record], alone: Sequence[Record]) -> list[str]:
    """Gain and degradation by mAP (DMU, section 3.2), seed by seed; and the area of each curve."""
    oracle = {record["seed"]: record for record in alone}
    gains, losses = [], []
    for record in found:
        base = oracle.get(record["seed"])
        cross = record.get("t/h", record.get("t/s"))
        if base is not None and cross is not None:
            gains.append(cross["map"] / base["s/s"]["map"] - 1)
            losses.append(1 - record["t/t"]["map"] / base["t/t"]["map"])
    areas = []
    for name in dict.fromkeys(curve for record in found for curve in record.get("curves", {})):
        values = [record["curves"][name]["area"] for record in found if name in record["curves"]]
        areas.append(f"{name}: {_mean(values, 'cmc1')} / {_mean(values, 'map')}")
    share = "{:+.0%}".format
    return [share(np.mean(gains)) if gains else "", share(np.mean(losses)) if losses else "", "; ".join(areas)]


def _series(records: Sequence[Record]) -> Iterator[str]:
    pairs = [f"{later}/{earlier}" for later in (1, 2, 3) for earlier in range(1, later + 1)]
    refreshes = ("3/h(h(1))", "3/h(2)", "3/h(1), direct", "3/h(h(1)), from both", "3/h(2), from both")
    four = [name for record in records for name in record if name.startswith(OF_FOUR)]
    extra = [name for name in (*refreshes, *dict.fromkeys(four)) if any(name in record for record in records)]
    yield from _searches(SERIES, (*pairs, *extra), records)


def _steps(records: Sequence[Record]) -> Iterator[str]:
    numbers = range(1, STEPS + 1)
    yield from _searches(
        CHAINS, (*(f"{n}/{n}" for n in numbers), f"{STEPS}/1", *(f"{n}/h(1)" for n in numbers[1:])), records
    )


def _texts(records: Sequence[Record]) -> Iterator[str]:
    yield from _searches(ACROSS, ("t/s", "s/t", "t/t"), records)


def _searches(rows: Iterable[str], pairs: Sequence[str], records: Sequence[Record]) -> Iterator[str]:
    """A column for each pair of what is searched with and what is searched."""
    yield line(["row", *pairs])
    yield line(["---"] * (1 + len(pairs)))
    for row in rows:
        found = [record for record in records if record["method"] == row]
        if found:
            yield line([_name(row, found, records), *(_spread(found, pair) for pair in pairs)])


def reported(_records: Sequence[Record]) -> Iterator[str]:
    """What the papers report for the rows that they have."""
    papers = list(paper.SOURCE)
    yield line(["row", *(f"{name}: t/s (t/h for FCT and DMU), t/t" for name in papers)])
    yield line(["---"] * (1 + len(papers)))
    yield line(["s/s", *(paper.SOURCE[name] for name in papers)])
    for row, values in paper.REPORTED.items():
        yield line([row, *(", ".join(filter(None, values.get(name, ()))) for name in papers)])


def _spread(records: Sequence[Record], pair: str) -> str:
    values = [record[pair] for record in records if pair in record]
    if not values:
        return ""
    deviation = f" ± {100 * np.std([value['cmc1'] for value in values], ddof=1):.1f}" if len(values) > 1 else ""
    return f"{_mean(values, 'cmc1')}{deviation} / {_mean(values, 'map')}"


def _mean(values: Sequence[Record], metric: str) -> str:
    return f"{100 * np.mean([value[metric] for value in values]):.1f}"


def fill(document: str, records: Sequence[Record]) -> str:
    """Return a document with its tables replaced."""
    return filled(document, lambda name: reported(records) if name == "paper" else tables(name, records))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journal", type=Path)
    parser.add_argument("document", type=Path)
    parser.add_argument("--size", choices=SIZES, default="quick")
    options = parser.parse_args()
    records = [record for record in Journal(options.journal, EARLIER).records if record["size"] == options.size]
    options.document.write_text(fill(options.document.read_text(), records))
    settings = [name for name in SETTINGS if any(record["setting"] == name for record in records)]
    print(f"filled {options.document} from {len(records)} measurements: {', '.join(settings)}")


if __name__ == "__main__":
    main()
