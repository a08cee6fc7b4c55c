"""Gates: what an upgrade must be sure to reach, checked on the estimate of one budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compatstore import next_step
from compatstore.errors import GateFailed, InvalidInput
from compatstore.evaluation import DecisionRow, DecisionTable, Estimate
from compatstore.evaluation.fusion import Serving
from compatstore.upgrade.requests.gates import Gates, read_requirement
from compatstore.upgrade.requests.queries import is_told


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


def require_measurable(asked: Gates, share: float | None, *, complete: bool) -> None:
    """Refuse gates that no estimate can tell, before anything is embedded for it.

    Of a sample of the gallery, mAP can be told of every budget. The other figures are known where labels or judgements
    say what is correct and no native vector is needed that does not exist yet: for a hop alone.

    Args:
        asked: What must be reached.
        share: The budget that is checked; None where the estimate is to pick it.
        complete: Whether the sample is the whole gallery.

    Raises:
        InvalidInput: A figure that nobody can tell is asked for.
    """
    wanted = [text for text in asked.require if read_requirement(text)[0] != "map"]
    if asked.max_negative_flips is not None:
        wanted.append(f"negative flips<={asked.max_negative_flips:g}")
    told = is_told(asked.labels)
    hop_alone = told and not share and not asked.fused
    if asked.criterion != "map" and (not told or asked.target_quality is not None):
        wanted, hop_alone = [f"the criterion {asked.criterion}"], False
    if wanted and not complete and not hop_alone:
        needs = "a full backfill" if share is None else f"a backfill of {share:g}"
        found = "both versions searched as one" if asked.fused else needs
        raise _not_measurable(wanted[0], found if told else "the target's own neighbours")


def _not_measurable(wanted: str, found: str) -> InvalidInput:
    return InvalidInput(
        f"estimate {wanted}",
        expected="a figure that a sample can tell: map of any budget; cmc@k and negative flips of a hop alone "
        "(backfill 0) with labels or qrels, or of a sample that is the whole gallery",
        found=f"{found}, which a sample cannot tell",
        fix=f"Ask for map, take a sample of the whole gallery ({next_step.option('sample')}), or measure it after the "
        f"upgrade: {next_step.call('report')}",
    )


def check_gates(row: DecisionRow, asked: Gates) -> tuple[Gate, ...]:
    """Judge one way to serve the gallery by the worse ends of its intervals.

    Raises:
        InvalidInput: A gate is of a figure that is not known of this way.
    """
    gates = []
    for text in asked.require:
        metric, bound = read_requirement(text)
        if metric not in row.figures:
            raise _not_measurable(f"{metric} of a {row.name}", f"a backfill of {row.share:g}")
        figure = row.figures[metric]
        gates.append(Gate(name=f"{metric}>={bound:g}", estimate=figure, passed=figure.low >= bound))
    most = asked.max_negative_flips
    if most is not None:
        if row.broken is None:
            raise _not_measurable(f"negative flips of a {row.name}", f"a backfill of {row.share:g}")
        gates.append(Gate(name=f"negative flips<={most:g}", estimate=row.broken, passed=row.broken.high <= most))
    return tuple(gates)


def gate_of_advice(table: DecisionTable, serving: Serving) -> Gate:
    """The gate of an upgrade that picks its own budget: something must beat the status quo."""
    gain = table.best_of(serving).gains[table.criterion]
    verdict = table.advice.verdict
    advised = verdict == "upgrade" or (verdict == "undecided" and not table.told)
    passed = advised if serving == "target" else gain.low > 0
    return Gate(name=f"{table.criterion} above the status quo", estimate=gain, passed=passed)


def require_passed(target: str, gates: Sequence[Gate], *, fix: str | None = None) -> None:
    """Refuse to go on where a gate failed.

    Args:
        target: Version upgraded to.
        gates: What was asked.
        fix: What to do about it; by default for an upgrade that has not begun.

    Raises:
        GateFailed: One did.
    """
    failed = [gate for gate in gates if not gate.passed]
    if failed:
        raise GateFailed(
            f"upgrade to {target}",
            expected=" and ".join(f"{gate.name} for certain" for gate in failed),
            found=", ".join(_in_words(gate.estimate) for gate in failed),
            fix=fix
            or f"Nothing was written. A larger sample narrows the intervals, and a table of all budgets says what can "
            f"be reached: {next_step.call('evaluate', target)}",
        )


def _in_words(estimate: Estimate) -> str:
    return f"{estimate.value:.4f} ({estimate.low:.4f} to {estimate.high:.4f})"
