"""Claims of the four papers, each beside the differences that the records have for it.

`claims.json` holds the claims: paper, sentence, place and figures in the paper, and what is compared: record, setting,
method and figure, method and figure that it must exceed, measures. With `absolute` the smaller absolute figure is the
better one: a gap may have either sign.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from benchmarks.charts import QUIET, SERIES, panels
from benchmarks.dots import legend
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import Interval, by_seed, cases, less, where

OF = ("images", "pairs", "chains")
FEWEST_SEEDS = 3
COSFACE = ", CosFace"
CLAIMS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("claims.json").read_text())
VERDICTS = ("holds", "in part", "mixed", "level", "does not hold", "not measured")
COLORS = (SERIES[2], SERIES[0], SERIES[3], SERIES[4], SERIES[5], SERIES[1])


class Found(NamedTuple):
    """A difference of one set, in points.

    Attributes:
        case: The set, with what its source knows if a claim is about two such settings.
        measure: "cmc1" or "map".
        difference: Above zero if the claim holds.
    """

    case: str
    measure: str
    difference: Interval


def differences(rows: list[Row], claim: dict[str, Any]) -> list[Found]:
    """The differences of a claim; those of 7 epochs only if no other run has any."""
    found = [each for large in (True, False) for each in _differences(rows, claim, large)]
    quick = [each for each in found if each.case.endswith("7 epochs")]
    return [each for each in found if each not in quick] or quick


def _differences(rows: list[Row], claim: dict[str, Any], large: bool) -> Iterator[Found]:
    several = len({setting for _, setting, *_ in claim["compared"]}) > 1
    for record, setting, left, left_figure, right, right_figure, measures in claim["compared"]:
        keys: Row = {"setting": setting} if record == "images" else {"part": setting}
        if record == "pairs":
            keys = {"part": "methods", "classes": setting}
        elif record == "chains" and setting in ("seen", "unseen"):
            keys = {"part": "pairs", "classes": setting}
        own = [row for row in where(rows, benchmark=record, **keys) if (row.get("size") != "quick") == large]
        for case in cases(own, "size", "set").values():
            size, name = case[0].get("size"), case[0]["set"]
            loss = _loss(rows, case, name) if record == "images" else ""
            about = [name + loss, *[setting] * several, *["papers' network"] * (size == "gpu")]
            title = ", ".join([*about, *["7 epochs"] * (not large)])
            for measure in measures:
                sides = ((left, left_figure), (right, right_figure))
                pair = [by_seed(case, f"{figure} {measure}", method=_method(method, loss)) for method, figure in sides]
                if claim.get("absolute"):
                    pair = [{seed: abs(value) for seed, value in each.items()} for each in pair]
                one = less(*pair)
                if one and one.seeds >= FEWEST_SEEDS:
                    yield Found(title, measure, one)


def _loss(rows: list[Row], case: list[Row], name: str) -> str:
    """CosFace if a set has such rows: what ArcFace has trained on it is spoilt."""
    method = f"independent{COSFACE}"
    enough = len(where(case, method=method)) >= FEWEST_SEEDS
    return COSFACE if enough or where(rows, set=name, method=method, size="standard") else ""


def _method(method: str, loss: str) -> str:
    return f"{method.removesuffix(', sigma')}{loss}" if loss else method


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


def table(record: Record) -> str:
    """Each claim: where the paper has it, ours by set (CMC-1, mAP), and whether it holds."""
    lines = []
    for claim in CLAIMS:
        found = differences(record.rows, claim)
        cells = []
        for case in dict.fromkeys(one.case for one in found):
            own = [one for one in found if one.case == case]
            names = "" if len(claim["compared"][0][-1]) == 2 else {"cmc1": "CMC-1 ", "map": "mAP "}[own[0].measure]
            cells.append(f"{case}: {names}" + ", ".join(one.difference.signed for one in own))
        ours = "<br>".join(cells) or claim.get("missing", "no row")
        lines.append([claim["paper"], claim["claim"], claim["reported"], ours, verdict(found)])
    return markdown(["paper", "claim", "in the paper", "here: difference in points, CMC-1, mAP", ""], lines)


def chart(record: Record) -> Figure:
    """How many claims of each paper hold."""
    papers = list(dict.fromkeys(claim["paper"] for claim in CLAIMS))
    counts = Counter((claim["paper"], verdict(differences(record.rows, claim))) for claim in CLAIMS)
    figure, (axes,) = panels(0.5 * len(papers) + 1.2)
    starts = [0] * len(papers)
    for word, color in zip(VERDICTS, COLORS, strict=True):
        widths = [counts[paper, word] for paper in papers]
        axes.barh(papers, widths, left=starts, color=color, height=0.55, label=word)
        for place, (start, width) in enumerate(zip(starts, widths, strict=True)):
            if width:
                axes.text(start + width / 2, place, str(width), ha="center", va="center", color="white", fontsize=9)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("claims", color=QUIET)
    legend(axes)
    return figure


TABLES = {"claims": table}
