"""Quality gates, the sample for their estimate, and their check against the worse end of a confidence interval."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from compatstore import next_step
from compatstore.boundary import checked_fields, require_all
from compatstore.errors import GateFailed, InvalidInput
from compatstore.evaluation.bootstrap import Estimate
from compatstore.evaluation.decision import DecisionRow, DecisionTable
from compatstore.evaluation.fusion import Serving
from compatstore.evaluation.sample import AGREEMENT
from compatstore.upgrade.requests.queries import Queries, has_ground_truth, named_files

Criterion = Literal["map", "cmc@1", "cmc@5", "recall@10", "ndcg@10", "mrr@10"]
JUDGED = ("recall@10", "ndcg@10", "mrr@10")  # need judgements
METRICS = ("cmc@1", "cmc@5", "map", *JUDGED, AGREEMENT[0])
_REQUIREMENT = re.compile(r"\s*([a-z0-9@]+)\s*>=\s*([0-9.]+)\s*")


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Gates:
    """Gates of an upgrade; where none of them and no sample is named, nothing is estimated.

    Args:
        target_quality: Minimum share of a full backfill's figure, above 0 and up to 1, such as 0.98. Takes
            the smallest backfill that reaches it; without labels or qrels by agreement with a full backfill.
        require: Minimum figure, such as map>=0.6, or agreement>=0.8 without labels or qrels. The upgrade
            does not begin otherwise (exit code 11).
        max_negative_flips: Largest share of queries, from 0 to 1, that are right before and wrong after the upgrade.
            The upgrade does not begin otherwise (exit code 11).
        labels: Column of labels: items of one label are correct for each other. Without one agreement with the new
            model is measured, not quality. In Python also `Queries`: application queries search in place of items.
        criterion: Figure that quality is measured by; recall, nDCG and MRR need --qrels.
        sample: Items to estimate from, 2000 by default; a number requests an estimate.
        serving: Serving mode that is estimated and enabled: target, the target alone (the default), or fused,
            a fused search over both versions; the fusion is chosen when the upgrade is ready. Self-training
            upgrades are fused by default.

    Raises:
        InvalidInput: A gate is out of its range.

    Examples:
        >>> cs.Gates(target_quality=0.98, require=("cmc@1>=0.6",), labels="category").target_quality
        0.98
    """

    target_quality: float | None = field(default=None, metadata={"unit": "SHARE"})
    require: tuple[str, ...] = field(default=(), metadata={"unit": "FIGURE>=VALUE"})
    max_negative_flips: float | None = field(default=None, metadata={"unit": "SHARE"})
    labels: str | Queries | None = field(default=None, metadata={"unit": "COLUMN"})
    criterion: Criterion = "map"
    sample: int | None = field(default=None, metadata={"unit": "ITEMS"})
    serving: Literal["target", "fused"] | None = None

    def __post_init__(self) -> None:
        required = [read_requirement(text)[0] for text in self.require]
        quality, flips = self.target_quality, self.max_negative_flips
        require_all(
            "set the gates of an upgrade",
            (quality is None or 0 < quality <= 1, "a target quality above 0, up to 1", quality),
            (flips is None or 0 <= flips <= 1, "negative flips between 0 and 1", flips),
        )
        require_judged((self.criterion, *required), self.labels)

    @property
    def asked(self) -> bool:
        """True if anything is to be estimated."""
        named = (self.sample, self.target_quality, self.max_negative_flips)
        by_queries = isinstance(self.labels, Queries)
        return bool(self.require) or self.serving is not None or by_queries or any(gate is not None for gate in named)

    @property
    def figures(self) -> tuple[str, ...]:
        """The figures that must be measured, as they were written."""
        flips = () if self.max_negative_flips is None else (f"negative flips<={self.max_negative_flips:g}",)
        return (*self.require, *flips, *(() if self.criterion == "map" else (self.criterion,)))

    @property
    def way(self) -> Serving:
        """Serving mode of an upgrade with an artifact."""
        return self.serving or "target"

    @property
    def fused(self) -> bool:
        """True if the upgrade is to be served by fused search."""
        return self.serving == "fused"


def require_ground_truth(figures: Sequence[str], labels: str | Queries | None) -> None:
    """Refuse figures of quality without ground truth, and agreement with it.

    Raises:
        InvalidInput: One of them is not measured.
    """
    known = has_ground_truth(labels)
    for figure in figures:
        if known and figure.startswith(AGREEMENT[0]):
            fix = "Require a figure of quality, such as map>=0.6, or leave labels and qrels out."
            raise InvalidInput(f"estimate {figure}", expected="no ground truth", found="labels or qrels", fix=fix)
        if not known and not figure.startswith(AGREEMENT[0]):
            agreed = next_step.either(shell="--require 'agreement>=0.8'", python='Gates(require=["agreement>=0.8"])')
            operation = f"estimate {figure}"
            fix = f"Name a column of labels, or {named_files()}; or require agreement with the new model: {agreed}."
            raise InvalidInput(operation, expected="labels or qrels that define relevance", found="none", fix=fix)


def require_judged(figures: Sequence[str], labels: str | Queries | None) -> None:
    """Refuse figures that need judgements where there are none.

    Raises:
        InvalidInput: One does, and there are none.
    """
    needed = [figure for figure in figures if figure in JUDGED]
    if needed and not (isinstance(labels, Queries) and labels.judged):
        expected = "queries, and judgements of their correct items"
        raise InvalidInput(f"measure {needed[0]}", expected=expected, found="none", fix=f"Name them: {named_files()}.")


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
        fix=next_step.either(
            shell="Put it in quotes: --require 'map>=0.6'.", python='Write it so: Gates(require=["map>=0.6"]).'
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One gate.

    Args:
        name: Name of the gate, "map>=0.6" or "negative flips<=0.02".
        estimate: The figure; its worse end decides.
        passed: Whether that end is within the bound.
    """

    name: str
    estimate: Estimate
    passed: bool


def require_measurable(gates: Gates, share: float | None, *, complete: bool) -> None:
    """Refuse gates that no estimate measures, before anything is embedded for it.

    Without ground truth that is agreement alone. With it a sample gives mAP of every budget, and the other figures of
    a hop alone, which needs no native vector that does not exist yet.

    Args:
        gates: The gates.
        share: The budget that is checked; None if the estimate is to pick it.
        complete: Whether the sample is the whole gallery.

    Raises:
        InvalidInput: A figure is required that the sample does not give.
    """
    require_ground_truth(gates.figures, gates.labels)
    if not has_ground_truth(gates.labels):
        return
    wanted = [text for text in gates.require if read_requirement(text)[0] != "map"]
    if gates.max_negative_flips is not None:
        wanted.append(f"negative flips<={gates.max_negative_flips:g}")
    hop_alone = not share and not gates.fused
    if gates.criterion != "map" and gates.target_quality is not None:
        wanted, hop_alone = [f"the criterion {gates.criterion}"], False
    if wanted and not complete and not hop_alone:
        needs = "a full backfill" if share is None else f"a backfill of {share:g}"
        raise _not_measurable(wanted[0], "a fused search" if gates.fused else needs)


def _not_measurable(wanted: str, found: str) -> InvalidInput:
    return InvalidInput(
        f"estimate {wanted}",
        expected="a figure that a sample can give: map of any budget; cmc@k and negative flips of a hop alone "
        "(backfill 0) with labels or qrels, or of a sample that is the whole gallery",
        found=f"{found}, which cannot be measured on a sample",
        fix=f"Use map, take a sample of the whole gallery ({next_step.option('sample')}), or measure it after the "
        f"upgrade: {next_step.call('report')}",
    )


def check_gates(row: DecisionRow, gates: Gates) -> tuple[Gate, ...]:
    """Check the gates of one strategy to serve the gallery by the worse ends of its intervals.

    Raises:
        InvalidInput: A gate is of a figure that is not known of this way.
    """
    checked = []
    for text in gates.require:
        metric, bound = read_requirement(text)
        if metric not in row.figures:
            raise _not_measurable(f"{metric} of a {row.name}", f"a backfill of {row.share:g}")
        figure = row.figures[metric]
        checked.append(Gate(name=f"{metric}>={bound:g}", estimate=figure, passed=figure.low >= bound))
    most = gates.max_negative_flips
    if most is not None:
        if row.broken is None:
            raise _not_measurable(f"negative flips of a {row.name}", f"a backfill of {row.share:g}")
        checked.append(Gate(name=f"negative flips<={most:g}", estimate=row.broken, passed=row.broken.high <= most))
    return tuple(checked)


def gate_of_advice(table: DecisionTable, serving: Serving) -> Gate:
    """The gate of an upgrade that picks its own budget: something must beat the status quo."""
    gain = table.best_of(serving).gains[table.criterion]
    passed = table.advice.verdict == "upgrade" if serving == "target" else gain.is_gain
    return Gate(name=f"{table.criterion} above the status quo", estimate=gain, passed=passed)


def require_passed(target: str, gates: Sequence[Gate], *, fix: str | None = None) -> None:
    """Refuse to go on where a gate failed.

    Args:
        target: Version upgraded to.
        gates: The gates.
        fix: The fix; by default for an upgrade that has not begun.

    Raises:
        GateFailed: One did.
    """
    failed = [gate for gate in gates if not gate.passed]
    if failed:
        raise GateFailed(
            f"upgrade to {target}",
            expected=" and ".join(gate.name for gate in failed) + ", for the whole confidence interval",
            found=", ".join(_in_words(gate.estimate) for gate in failed),
            fix=fix
            or f"Nothing was written. A larger sample narrows the intervals, and a table of all budgets shows what can "
            f"be reached: {next_step.call('evaluate', target)}",
        )


def _in_words(estimate: Estimate) -> str:
    return f"{estimate.value:.4f} ({estimate.low:.4f} to {estimate.high:.4f})"
