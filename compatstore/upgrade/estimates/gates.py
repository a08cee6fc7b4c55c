"""Gates: what an upgrade must be sure to reach, judged on the estimate of one budget."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from compatstore.errors import GateFailed, InvalidInput
from compatstore.evaluation import DecisionRow, DecisionTable, Estimate

METRICS = ("cmc@1", "cmc@5", "map")
_REQUIREMENT = re.compile(r"\s*([a-z0-9@]+)\s*>=\s*([0-9.]+)\s*")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """On what terms an upgrade is made; without any, nothing is estimated.

    Args:
        sample: Items to estimate from, 2000 where only other terms are named.
        labels: Column that says which items are correct for each other, or None for the target's own neighbours.
        criterion: The figure that the target quality is a share of: "map", "cmc@1" or "cmc@5".
        target_quality: Share of the full backfill's figure to be kept for certain, in (0, 1].
        require: Lowest figures, such as "map>=0.6".
        max_negative_flips: Largest share of queries that are right before and wrong after, in [0, 1].

    Raises:
        InvalidInput: A term is out of its range.
    """

    sample: int | None = None
    labels: str | None = None
    criterion: str = "map"
    target_quality: float | None = None
    require: tuple[str, ...] = ()
    max_negative_flips: float | None = None

    def __post_init__(self) -> None:
        for text in self.require:
            read_requirement(text)
        quality, flips = self.target_quality, self.max_negative_flips
        for holds, expected, found in (
            (self.criterion in METRICS, f"a criterion of {', '.join(METRICS)}", self.criterion),
            (quality is None or 0 < quality <= 1, "a target quality above 0, up to 1", quality),
            (flips is None or 0 <= flips <= 1, "negative flips between 0 and 1", flips),
        ):
            if not holds:
                raise InvalidInput("set the terms of an upgrade", expected=expected, found=f"{found}")

    @property
    def asked(self) -> bool:
        """Whether anything is to be estimated."""
        named = (self.sample, self.target_quality, self.max_negative_flips)
        return bool(self.require) or any(term is not None for term in named)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One gate.

    Args:
        name: What was asked, "map>=0.6" or "negative flips<=0.02".
        estimate: The figure; its worse end decides.
        passed: Whether that end is within the bound.
    """

    name: str
    estimate: Estimate
    passed: bool


def require_measurable(terms: Terms, share: float | None, *, complete: bool) -> None:
    """Refuse terms that no estimate can tell, before anything is embedded for it.

    Of a sample of the gallery, CMC and negative flips are known where labels say what is correct and no native vector
    is needed that does not exist yet: for a hop alone. mAP can be told of every budget.

    Args:
        terms: What is asked.
        share: The budget that is judged; None where the estimate is to pick it.
        complete: Whether the sample is the whole gallery.

    Raises:
        InvalidInput: A figure that nobody can tell is asked for.
    """
    wanted = [text for text in terms.require if read_requirement(text)[0] != "map"]
    if terms.max_negative_flips is not None:
        wanted.append(f"negative flips<={terms.max_negative_flips:g}")
    hop_alone = terms.labels is not None and not share
    if terms.criterion != "map" and (terms.labels is None or terms.target_quality is not None):
        wanted, hop_alone = [f"the criterion {terms.criterion}"], False
    if wanted and not complete and not hop_alone:
        needs = "a full backfill" if share is None else f"a backfill of {share:g}"
        raise _not_measurable(wanted[0], "the target's own neighbours" if terms.labels is None else needs)


def _not_measurable(wanted: str, found: str) -> InvalidInput:
    return InvalidInput(
        f"estimate {wanted}",
        expected="a figure that a sample can tell: map of any budget; cmc@k and negative flips of a hop alone "
        "(backfill 0) with labels, or of a sample that is the whole gallery",
        found=f"{found}, which needs native vectors that do not exist yet",
        fix="Ask for map, or measure CMC after the upgrade: compatstore report GALLERY",
    )


def judge_gates(row: DecisionRow, terms: Terms) -> tuple[Gate, ...]:
    """Judge one way to serve the gallery by the worse ends of its intervals.

    Raises:
        InvalidInput: A gate is of a figure that is not known of this way.
    """
    gates = []
    for text in terms.require:
        metric, bound = read_requirement(text)
        if metric not in row.figures:
            raise _not_measurable(f"{metric} of a {row.name}", f"a backfill of {row.share:g}")
        figure = row.figures[metric]
        gates.append(Gate(name=f"{metric}>={bound:g}", estimate=figure, passed=figure.low >= bound))
    most = terms.max_negative_flips
    if most is not None:
        if row.broken is None:
            raise _not_measurable(f"negative flips of a {row.name}", f"a backfill of {row.share:g}")
        gates.append(Gate(name=f"negative flips<={most:g}", estimate=row.broken, passed=row.broken.high <= most))
    return tuple(gates)


def gate_of_advice(table: DecisionTable) -> Gate:
    """The gate of an upgrade that picks its own budget: something must beat the status quo."""
    gain = table.best.gains[table.criterion]
    passed = table.advice.verdict != "do not upgrade"
    return Gate(name=f"{table.criterion} above the status quo", estimate=gain, passed=passed)


def require_passed(target: str, gates: Sequence[Gate]) -> None:
    """Refuse to go on where a gate failed.

    Raises:
        GateFailed: One did.
    """
    failed = [gate for gate in gates if not gate.passed]
    if failed:
        raise GateFailed(
            f"upgrade to {target}",
            expected=" and ".join(f"{gate.name} for certain" for gate in failed),
            found=", ".join(_in_words(gate.estimate) for gate in failed),
            fix=f"Nothing was written. A larger sample narrows the intervals, and a table of all budgets says what can "
            f"be reached: compatstore evaluate GALLERY {target}",
        )


def read_requirement(text: str) -> tuple[str, float]:
    """Read "map>=0.6".

    Raises:
        InvalidInput: It is something else.
    """
    match = _REQUIREMENT.fullmatch(text)
    try:
        if match and match[1] in METRICS and 0 <= float(match[2]) <= 1:
            return match[1], float(match[2])
    except ValueError:
        pass
    raise InvalidInput(
        "read a requirement",
        expected=f"a figure of {', '.join(METRICS)} and its lowest value between 0 and 1, such as map>=0.6",
        found=repr(text),
    )


def _in_words(estimate: Estimate) -> str:
    return f"{estimate.value:.4f} ({estimate.low:.4f} to {estimate.high:.4f})"
