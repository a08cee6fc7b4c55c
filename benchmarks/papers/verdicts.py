"""Whether a journal's rows bear out what a paper says: differences by set, seed by seed, and one word for all."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

from benchmarks.claims import FEWEST_SEEDS, Figure, clear, look_up, sets_of
from benchmarks.methods.rows import BY_COSFACE
from compatstore.errors import NotFound

Measure = Literal["cmc", "map"]
MEASURES: Mapping[Measure, str] = {"cmc": "CMC-1", "map": "mAP"}
# Size of a run -> journal of a comparison -> its name in `benchmarks.claims`.
SIZES: Mapping[str, Mapping[str, str]] = {
    "standard": {"methods": "standard"},
    "gpu": {"methods": "gpu"},
    "pretrained": {"pretrained": "balanced"},
    "quick": {"methods": "methods", "chains": "chained"},
}
# Seven epochs: its rows count for sentences alone that no other size has a row for.
LAST = "quick"
# Few sentences have rows of these: the others are counted, and not listed.
SPARSE = ("gpu", "pretrained", LAST)
# Seeds that settle a difference of less than two standard errors.
ENOUGH_SEEDS = 5
HOLDS, MEAN, NOT_BELOW, LEVEL, MIXED, NOT = "holds", "by the mean", "not below", "level", "mixed", "does not"


@dataclass(frozen=True)
class Above:
    """One figure of a journal that is above another.

    Args:
        journal: "methods", "chains", or "pretrained": transforms between pretrained models of images and of texts.
        setting: Of its rows.
        above: The row, and the way into its record.
        below: The same of the other figure.
        measures: Which of the two.
    """

    journal: str
    setting: str
    above: tuple[str, ...]
    below: tuple[str, ...]
    measures: tuple[Measure, ...] = ("cmc", "map")


@dataclass(frozen=True)
class Said:
    """A sentence of a paper, or across them.

    Args:
        what: It.
        where: Table or section; across papers, the method.
        reported: The paper's own figures for it; across papers, which are compared.
        settled_by: What has to hold; none where no row of ours is about it.
        missing: What would be needed where no row is about it.
    """

    what: str
    where: str
    reported: str
    settled_by: tuple[Above, ...] = ()
    missing: str = ""


class Found(NamedTuple):
    """A difference on one set, in points."""

    setting: str
    of: str
    measure: Measure
    difference: Figure

    @property
    def clear(self) -> bool:
        """Whether it is above zero by more than chance."""
        return clear(self.difference)

    @property
    def clearly_below(self) -> bool:
        """Whether it is below zero by more than chance."""
        return clear(self.difference * -1)

    @property
    def is_open(self) -> bool:
        """Whether it is less than two standard errors from zero, on fewer seeds than settle that."""
        values = self.difference.by_seed.values()
        error = statistics.stdev(values) / len(values) ** 0.5
        return len(values) < ENOUGH_SEEDS and abs(self.difference.mean) < 2 * error


def compared(said: Said, size: str) -> tuple[Above, ...]:
    """What settles a sentence at a size: of the last one nothing, where another has rows for the sentence."""
    if size == LAST and any(found_of(said, other) for other in SIZES if other != LAST):
        return ()
    return said.settled_by


@cache
def found_of(said: Said, size: str) -> tuple[Found, ...]:
    """All differences that count for a sentence at a size."""
    return tuple(one for above in compared(said, size) for one in differences(above, size))


def differences(above: Above, size: str) -> Iterator[Found]:
    """The difference that the rows of a size have for a pair of figures, by set."""
    journal = SIZES[size].get(above.journal)
    for name in sets_of(journal) if journal else ():
        by_cosface = any(_is_by_cosface(journal, setting, name) for setting in ("classes", above.setting))
        loss = BY_COSFACE if by_cosface else ""
        try:
            rows = [_figures(journal, above.setting, name, path, loss) for path in (above.above, above.below)]
        except NotFound:
            continue
        for measure in above.measures:
            mine, other = (getattr(row, measure) for row in rows)
            if len(mine.by_seed.keys() & other.by_seed.keys()) >= FEWEST_SEEDS:
                yield Found(above.setting, f"{name}{loss}", measure, mine - other)


def _is_by_cosface(journal: str, setting: str, name: str) -> bool:
    """Whether a set counts by its rows of CosFace alone: what ArcFace has trained on it is spoilt (margins.md)."""
    try:
        own = _figures(journal, setting, name, ("independent", "t/t"), BY_COSFACE)
    except NotFound:
        return False
    return len(own.map.by_seed) >= FEWEST_SEEDS


def _figures(journal: str, setting: str, name: str, path: Sequence[str], loss: str) -> Any:
    row, *figure = path
    # Rows of CosFace have all orders of a transform in one.
    row = f"{row.removesuffix(', sigma')}{loss}" if loss else row
    return look_up(journal, set(), setting, name, row, *figure)


def verdict(found: Sequence[Found]) -> str:
    """One word for all differences: see the pages for what it means."""
    if all(one.clear for one in found):
        return HOLDS
    if all(one.difference.mean > 0 for one in found):
        return MEAN
    above, below = any(one.clear for one in found), any(one.clearly_below for one in found)
    return {(True, False): NOT_BELOW, (False, False): LEVEL, (True, True): MIXED, (False, True): NOT}[above, below]


def table(sentences: Sequence[Said], size: str) -> Iterator[str]:
    """Markdown: a line for each sentence; of a sparse size for those that it has rows for."""
    yield "| what is said | of which figures | ours: the difference in points ± 95 % interval | |"
    yield "|---|---|---|---|"
    for said in sentences:
        found = found_of(said, size)
        if size in SPARSE and not found:
            continue
        told = "<br>".join(_told(found)) if found else said.missing or "no row of this size"
        word = f"**{verdict(found)}**" if found else "cannot be run here" if said.missing else "not measured"
        yield f"| {said.what} | {said.where}: {said.reported} | {told} | {word} |"


def _told(found: Sequence[Found]) -> Iterator[str]:
    settings = {one.setting for one in found}
    for setting, name in dict.fromkeys((one.setting, one.of) for one in found):
        cells = [_cell(one) for one in found if (one.setting, one.of) == (setting, name)]
        seeds = {len(one.difference.by_seed) for one in found if (one.setting, one.of) == (setting, name)}
        where = f"{name}, {setting}" if len(settings) > 1 else name
        yield f"{where}: {', '.join(cells)} ({min(seeds)} seeds)"


def _cell(one: Found) -> str:
    by, reach = one.difference, one.difference.reach
    interval = "" if reach == float("inf") else f" ± {reach:.1f}"
    text = f"{MEASURES[one.measure]} {by.mean:+.1f}{interval}"
    return f"**{text}**" if one.clear else f"*{text}*" if one.clearly_below else text
