"""Advice from measured serving strategies: whether to upgrade, and with which budget of native vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from compatstore.errors import first_offenders
from compatstore.evaluation.bootstrap import Estimate, Resampled, gains_together, kept_shares

WHOLE_SAMPLE = "take a sample of the whole gallery, or decide by map"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to do.

    Args:
        verdict: "upgrade"; "do not upgrade", when nothing is better than the status quo for certain; "undecided",
            when there are no labels to tell whether the target is better, or when some strategies were not measured
            and none of the measured ones is better.
        row: Name of the strategy that is advised; the status quo for "do not upgrade"; None when no strategy is good
            enough.
        share: Share of the gallery that it embeds natively, or None.
        text: The reasons, in one or two sentences.

    Examples:
        >>> cs.evaluation.decide(sample).advice.verdict
        'upgrade'
    """

    verdict: Literal["upgrade", "do not upgrade", "undecided"]
    row: str | None
    share: float | None
    text: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Option:
    """One strategy to serve the gallery, by the one figure that decides.

    Args:
        name: Text for people, as in "backfill 25%".
        share: Share of the gallery that it embeds natively.
        figure: The figure, resampled together with that of the other options.
    """

    name: str
    share: float
    figure: Resampled

    @property
    def value(self) -> float:
        """The figure, over all queries."""
        return self.figure.value


def advise(status_quo: Option, options: Sequence[Option], metric: str, unmeasured: Sequence[str] = ()) -> Advice:
    """Choose the best of the options that beat the status quo for certain.

    For certain means that the whole paired interval lies above zero; the intervals hold for all options together.

    Args:
        status_quo: Leaving things as they are.
        options: All else that was measured.
        metric: Name of the figure.
        unmeasured: Names of the ways to serve the gallery that have no such figure: of a sample some figures can be
            told of the vectors alone that the whole gallery has. What is not known is no reason against an upgrade.
    """
    gains = gains_together([option.figure for option in options], status_quo.figure)
    better = [option for option, gain in zip(options, gains, strict=True) if gain.low > 0]
    best = max(better or options, key=_worth)
    gain = gains[options.index(best)]
    unknown = f" {metric} of {first_offenders(unmeasured, 3)} was not measured: {WHOLE_SAMPLE}." if unmeasured else ""
    if not better and unmeasured:
        return Advice(
            verdict="undecided",
            row=None,
            share=None,
            text=f"Whether an upgrade gains is not known by {metric}.{unknown} Of what was, {best.name} has "
            f"{best.value:.1%} against {status_quo.value:.1%} as it is ({_points(gain)}).",
        )
    if not better:
        return Advice(
            verdict="do not upgrade",
            row=status_quo.name,
            share=0.0,
            text=f"Do not upgrade: the best of all, {best.name}, has {metric} {best.value:.1%} against "
            f"{status_quo.value:.1%} as it is ({_points(gain)}), "
            "no gain that other queries would confirm.",
        )
    text = (
        f"Upgrade by {best.name}: {metric} {best.value:.1%} against {status_quo.value:.1%} as it is ({_points(gain)})."
    )
    text += _worse_though_larger(best, options, metric) + _as_good_but_cheaper(best, better) + unknown
    return Advice(verdict="upgrade", row=best.name, share=best.share, text=text)


def fused_better(fused: Sequence[Option], options: Sequence[Option], advice: Advice, metric: str) -> str:
    """A sentence about fused searches that are significantly better than what is advised; or "".

    They are no reason for or against an upgrade: a fused search needs both models for every query.

    Args:
        fused: Both versions searched as one, at some shares of natives.
        options: The other strategies, the one that is advised among them.
        advice: What is advised.
        metric: Name of the figure.
    """
    advised = next((option for option in options if option.name == advice.row), None)
    if advised is None or not fused:
        return ""
    gains = gains_together([way.figure for way in fused], advised.figure)
    better = [way for way, gain in zip(fused, gains, strict=True) if gain.low > 0]
    if not better:
        return ""
    first = min(better, key=lambda way: way.share)
    return (
        f" Both versions searched as one ({first.name}) have {metric} {first.value:.1%}, for two embeddings and two "
        "searches a query."
    )


def advise_without_labels(
    full: Option, options: Sequence[Option], metric: str, keep: float, *, trust: float = 1.0
) -> Advice:
    """Name the smallest budget that keeps enough of what the target itself would answer.

    Args:
        full: Everything embedded natively.
        options: All else.
        metric: Name of the figure.
        keep: Share of the full figure to be kept for certain.
        trust: As of `DecisionSettings`.
    """
    everything = (*options, full)
    kept = kept_shares([option.figure for option in everything], full.figure)
    enough = [option for option, share in zip(everything, kept, strict=True) if share.low >= keep]
    chosen = min(enough, key=lambda option: (option.share, -option.value), default=None)
    reached = (
        f"no way keeps {keep:.0%} of it"
        if chosen is None
        else f"{chosen.name} is the cheapest to keep {keep:.0%} of it"
    )
    right = "the target's own answer" if trust == 1 else "the answer of both models together"
    return Advice(
        verdict="undecided",
        row=None if chosen is None else chosen.name,
        share=None if chosen is None else chosen.share,
        text=f"Without labels {right} counts as right, so whether it is the better one is not known; {reached} "
        f"({metric}).",
    )


def _worth(option: Option) -> tuple[float, float]:
    """By quality; of equals the cheaper one."""
    return option.value, -option.share


def _worse_though_larger(best: Option, options: Sequence[Option], metric: str) -> str:
    full = max(options, key=lambda option: option.share)
    if full.share <= best.share or full.value > best.value:
        return ""
    return f" More is not better: {full.name} has {metric} {full.value:.1%}."


def _as_good_but_cheaper(best: Option, better: Sequence[Option]) -> str:
    cheaper = [o for o in better if o.share < best.share and best.figure.over(o.figure).low <= 0]
    if not cheaper:
        return ""
    least = min(cheaper, key=lambda option: (option.share, -option.value))
    return f" {least.name[0].upper()}{least.name[1:]} costs less and cannot be told from it with these queries."


def _points(gain: Estimate) -> str:
    return f"{100 * gain.value:+.1f} points, {100 * gain.low:+.1f} to {100 * gain.high:+.1f}"
