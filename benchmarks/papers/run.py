"""Claims of the four papers, each beside the differences that the records have for it: a table for each paper.

`claims.json` holds the claims: paper, sentence, place and figures in the paper, and what is compared: record, setting,
method and figure, method and figure that it must exceed, measures. The record "paper" is that of images at the size
"paper", by models in the paper's own setting. With `absolute` the smaller absolute figure is the better one: a gap may
have either sign. `why` says in a sentence why a claim does not hold in the paper's setting, with the `row` that shows
it, compared alike; without it that is open.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from benchmarks.charts import QUIET, SERIES, panels
from benchmarks.dots import legend
from benchmarks.images.tables import COSFACE
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import Interval, by_seed, cases, less, where

OF = ("images", "pairs", "chains")
FEWEST_SEEDS = 3
CLAIMS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("claims.json").read_text())
# Paper -> loss that its methods' models are trained by at the size "paper".
LOSS = {"FCT": "softmax", "FastFill": "softmax", "BT^2": "cosine", "DMU": "pooled ArcFace"}
OURS = "ours"
VERDICTS = ("holds", "in part", "mixed", "level", "does not hold", "not measured")
COLORS = (SERIES[2], SERIES[0], SERIES[3], SERIES[4], SERIES[5], SERIES[1])
TO_EXPLAIN = ("mixed", "level", "does not hold")
MEASURES = {"cmc1": "CMC-1", "cmc5": "CMC-5", "map": "mAP"}


class Found(NamedTuple):
    """A difference of one set, in points.

    Attributes:
        case: The set, with what its source knows if a claim is about two such settings.
        measure: One of `MEASURES`.
        difference: Above zero if the claim holds.
    """

    case: str
    measure: str
    difference: Interval


def differences(rows: list[Row], claim: dict[str, Any], *, own: bool) -> list[Found]:
    """The differences of a claim in its paper's setting, or in others; of 7 epochs only if no other run has any."""
    found = list(_differences(rows, claim, own))
    quick = [each for each in found if each.case.endswith("7 epochs")]
    return [each for each in found if each not in quick] or quick


def _differences(rows: list[Row], claim: dict[str, Any], own: bool) -> Iterator[Found]:
    compared = [each for each in claim["compared"] if (each[0] == "paper") == own]
    several = len({setting for _, setting, *_ in compared}) > 1
    for record, setting, left, left_figure, right, right_figure, measures in compared:
        for case in cases(_rows(rows, record, setting), "size", "set").values():
            size, name = case[0].get("size"), case[0]["set"]
            loss = f", {LOSS[claim['paper']]}" if own else _loss(rows, name) if record == "images" else ""
            about = [name + loss * (not own), *[setting] * several, *["papers' network"] * (size == "gpu")]
            title = ", ".join([*about, *["7 epochs"] * (size == "quick")])
            for measure in measures:
                sides = ((left, left_figure), (right, right_figure))
                pair = [by_seed(case, f"{figure} {measure}", method=_method(method, loss)) for method, figure in sides]
                if claim.get("absolute"):
                    pair = [{seed: abs(value) for seed, value in each.items()} for each in pair]
                one = less(*pair)
                if one and one.seeds >= FEWEST_SEEDS:
                    yield Found(title, measure, one)


def _rows(rows: list[Row], record: str, setting: str) -> list[Row]:
    """Rows of a record and setting; those of images of the size "paper" are a record of their own."""
    keys: Row = {"setting": setting} if record in ("images", "paper") else {"part": setting}
    if record == "pairs":
        keys = {"part": "methods", "classes": setting}
    elif record == "chains" and setting in ("seen", "unseen"):
        keys = {"part": "pairs", "classes": setting}
    found = where(rows, benchmark="images" if record == "paper" else record, **keys)
    return [row for row in found if (row.get("size") == "paper") == (record == "paper")]


def _loss(rows: list[Row], name: str) -> str:
    """CosFace if a set has such rows: what ArcFace has trained on it is spoilt."""
    return COSFACE if where(rows, set=name, method=f"independent{COSFACE}") else ""


def _method(method: str, loss: str) -> str:
    return method.replace("FastFill, sigma", "FastFill") + loss if loss else method


def verdict(found: list[Found]) -> str:
    """One word for the differences of a claim."""
    above, below = (any(getattr(one.difference, key) for one in found) for key in ("is_above", "is_below"))
    if not found:
        return "not measured"
    if all(one.difference.is_above for one in found):
        return "holds"
    return {(True, False): "in part", (True, True): "mixed", (False, True): "does not hold"}.get(
        (above, below), "level"
    )


def table(record: Record, paper: str) -> str:
    """Each claim: where the paper has it, and ours by set with the verdict, in the paper's setting and in others.

    Claims that are our own are of no paper's setting.
    """
    head, lines = ["claim", "in the paper", "the paper's setting", "", "other settings", ""], []
    for claim in where(CLAIMS, paper=paper):
        line = [claim["claim"], claim.get("reported")]
        for own in (True, False):
            found = differences(record.rows, claim, own=own)
            word = verdict(found)
            row = differences(record.rows, claim | {"compared": claim.get("row", [])}, own=own)
            why = f": {claim.get('why', 'open')} {_cell(row)}".rstrip() if own and word in TO_EXPLAIN else ""
            line += [_cell(found) or own * claim.get("missing", ""), f"**{word}**{why}" if found else word]
        lines.append(line)
    wanted = range(len(head)) if paper in LOSS else (0, 4, 5)
    return markdown([head[place] for place in wanted], [[line[place] for place in wanted] for line in lines])


def _cell(found: list[Found]) -> str:
    """Differences by set."""
    cells = []
    for case in dict.fromkeys(one.case for one in found):
        parts = (f"{MEASURES[one.measure]} {one.difference.signed}" for one in found if one.case == case)
        cells.append(f"{case}: {', '.join(parts)}")
    return "<br>".join(cells)


def chart(record: Record) -> Figure:
    """How many claims of each paper hold, in its own setting and in others."""
    bars = {
        f"{paper}, {way}": (paper, own) for paper in LOSS for way, own in (("its setting", True), ("others", False))
    }
    counts = {
        name: Counter(verdict(differences(record.rows, claim, own=own)) for claim in where(CLAIMS, paper=paper))
        for name, (paper, own) in bars.items()
    }
    figure, (axes,) = panels(0.4 * len(bars) + 1.2)
    starts = [0] * len(bars)
    for word, color in zip(VERDICTS, COLORS, strict=True):
        widths = [counts[name][word] for name in bars]
        drawn = axes.barh(list(bars), widths, left=starts, color=color, height=0.6, label=word)
        axes.bar_label(drawn, [str(width or "") for width in widths], label_type="center", color="white", fontsize=9)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("claims", color=QUIET)
    legend(axes)
    return figure


TABLES: Mapping[str, Callable[[Record], str]] = {
    paper.lower().replace("^", ""): partial(table, paper=paper) for paper in (*LOSS, OURS)
}
