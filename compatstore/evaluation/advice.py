"""The verdict on an upgrade: one sentence, the same in a terminal, JSON, the report and Python.

With ground truth it recommends a way to serve the gallery, with its gain and interval. Without it nothing is better or
worse: the sentence says how much of the new model's answers is served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput, first_offenders
from compatstore.evaluation.bootstrap import Estimate, Resampled, gains_together, wilson
from compatstore.evaluation.metrics import Flips

MORE = "Name labels or qrels, or compare about 100 queries, to measure whether that is better."
MOST_OF_THE_GAIN = 0.9  # of a cheaper way that is named beside the best
ENOUGH = 0.9  # agreement with the full backfill of the budget that is named without ground truth
WHOLE_SAMPLE = "take a sample of the whole gallery, or decide by map"
_NAMES = {"map": "mAP", "cmc": "CMC", "ndcg": "nDCG", "mrr": "MRR"}


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Advice on the serving of a gallery.

    Args:
        verdict: "upgrade"; "do not upgrade", when no way is significantly better than the status quo; "undecided",
            without ground truth, or when some ways were not measured and none of the measured ones is better.
        row: Name of the way that is advised; the status quo for "do not upgrade"; without ground truth the cheapest
            one that agrees with the full backfill in 9 of 10 results; None when there is none.
        share: Share of the gallery that it embeds natively, or None.
        text: The verdict, in one or two sentences.

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
        flips: Shares of queries that it fixes and breaks; None if they are not measured.
    """

    name: str
    share: float
    figure: Resampled
    flips: Flips | None = None

    @property
    def value(self) -> float:
        """The figure, over all queries."""
        return self.figure.value


def metric_name(metric: str) -> str:
    """A figure as the field writes it: "map" -> "mAP", "ndcg@10" -> "nDCG@10"."""
    name, at, k = metric.partition("@")
    return _NAMES.get(name, name) + at + k


def change_in(metric: str, before: float, after: float, gain: Estimate, confidence: float, flips: Flips | None) -> str:
    """A change of quality: "mAP 55.5 -> 96.5 % (+41.0; 95 % CI 37.6 to 44.3), 26 % of queries fixed, 0.2 % broken"."""
    value, low, high = (0.0 + 100 * end for end in (gain.value, gain.low, gain.high))
    interval = f"{value:+.1f}; {confidence:.0%} CI {low:+.1f} to {high:+.1f}".replace("%", " %")
    fixed = ""
    if flips is not None:
        fixed = f", {_percent(flips.positive)} of queries fixed, {_percent(flips.negative)} broken"
    return f"{metric_name(metric)} {100 * before:.1f} -> {100 * after:.1f} % ({interval}){fixed}"


def _percent(share: float) -> str:
    """A share: "26 %", "0.2 %"."""
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def advise(status_quo: Option, options: Sequence[Option], metric: str, unmeasured: Sequence[str] = ()) -> Advice:
    """Choose the best of the options that are significantly better than the status quo.

    The intervals of the gains are paired, and hold for all options together.

    Args:
        status_quo: The gallery as it is.
        options: All else that was measured.
        metric: Name of the figure.
        unmeasured: Names of the ways without that figure: on a sample some figures are known only of vectors that the
            whole gallery has. A missing figure is no reason against an upgrade.
    """
    gains = gains_together([option.figure for option in options], status_quo.figure)
    better = [option for option, gain in zip(options, gains, strict=True) if gain.is_gain]
    best = max(better or options, key=_worth)
    gain, confidence = gains[options.index(best)], best.figure.confidence
    change = change_in(metric, status_quo.value, best.value, gain, confidence, best.flips)
    unknown = f" {metric} of {first_offenders(unmeasured, 3)} was not measured: {WHOLE_SAMPLE}." if unmeasured else ""
    if not better and unmeasured:
        text = f"Not decided: {best.name} has {change}, and no measured way is significantly better.{unknown}"
        return Advice(verdict="undecided", row=None, share=None, text=text)
    if not better:
        text = f"Do not upgrade: the best way, {best.name}, has {change}: no significant gain."
        return Advice(verdict="do not upgrade", row=status_quo.name, share=0.0, text=text)
    text = f"Upgrade by {best.name}: {change}."
    text += _worse_though_larger(best, options, metric)
    text += _nearly_as_good(best, better, {option.name: gain for option, gain in zip(options, gains, strict=True)})
    text += unknown
    return Advice(verdict="upgrade", row=best.name, share=best.share, text=text)


def fused_better(fused: Sequence[Option], options: Sequence[Option], advice: Advice, metric: str) -> str:
    """A sentence about fused searches that are significantly better than what is advised; or "".

    They are no reason for or against an upgrade: a fused search needs both models for every query.

    Args:
        fused: Fused searches at some shares of natives.
        options: The other strategies, including the advised one.
        advice: The advice.
        metric: Name of the figure.
    """
    advised = next((option for option in options if option.name == advice.row), None)
    if advised is None or not fused:
        return ""
    gains = gains_together([way.figure for way in fused], advised.figure)
    better = [way for way, gain in zip(fused, gains, strict=True) if gain.is_gain]
    if not better:
        return ""
    first = min(better, key=lambda way: way.share)
    return (
        f" Fused search ({first.name}) has {metric_name(metric)} {first.value:.1%}, for two embeddings and two "
        "searches a query."
    )


def describe_agreement(options: Sequence[Option]) -> Advice:
    """Say how much of the full backfill's first results each budget serves; nothing is recommended.

    Args:
        options: Budgets by ascending share, with their agreement with the full backfill.
    """
    enough = [option for option in options if option.value >= ENOUGH]
    first = min(enough, key=lambda option: option.share, default=None)
    named = [options[0], *([first] if first is not None and first.share > options[0].share else [])]
    served = ", ".join(f"{option.value:.0%} by {option.name}" for option in named).replace("%", " %")
    return Advice(
        verdict="undecided",
        row=None if first is None else first.name,
        share=None if first is None else first.share,
        text=f"Quality is not measurable without ground truth. Of the new model's first results are served {served}. "
        f"{MORE}",
    )


def more(preference: Preference | None) -> str:
    """The sentence after an agreement: what is preferred in blind comparisons, or how to know."""
    return MORE if preference is None else f"By blind comparisons: {preference}."


def with_preference(advice: Advice, preference: Preference | None) -> Advice:
    """The verdict without ground truth, with what is preferred in blind comparisons; other verdicts stay."""
    return replace(advice, text=advice.text.replace(MORE, more(preference)))


def _worth(option: Option) -> tuple[float, float]:
    """By quality; of equals the cheaper one."""
    return option.value, -option.share


def _worse_though_larger(best: Option, options: Sequence[Option], metric: str) -> str:
    full = max(options, key=lambda option: option.share)
    if full.share <= best.share or full.value > best.value:
        return ""
    return f" More is not better: {full.name} has {metric_name(metric)} {full.value:.1%}."


def _nearly_as_good(best: Option, better: Sequence[Option], gains: Mapping[str, Estimate]) -> str:
    """The cheapest option that has most of the best gain, or is not significantly worse."""
    most = MOST_OF_THE_GAIN * gains[best.name].value
    near = [
        option
        for option in better
        if option.share < best.share and (gains[option.name].value >= most or best.figure.over(option.figure).low <= 0)
    ]
    if not near:
        return ""
    least = min(near, key=lambda option: (option.share, -option.value))
    part = f"{100 * gains[least.name].value / gains[best.name].value:.0f} %"
    cost = f"{100 * least.share:.0f} % of the items" if least.share else "none of the items"
    return f" {least.name[0].upper()}{least.name[1:]} has {part} of the gain and embeds {cost}."


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Preference:
    """Answers to comparisons of the top 10 of two versions, one answer a query.

    Args:
        source: Version upgraded from.
        target: Version upgraded to.
        queries: Queries that searched both versions.
        differing: Queries whose results differ; the answered ones stand for these.
        target_wins: Answers that prefer the target.
        source_wins: Answers that prefer the source.
        same: Answers that prefer neither.

    Raises:
        InvalidInput: There is no answer.

    Examples:
        >>> preference = cs.evaluation.Preference(
        ...     source="v1", target="v2", queries=500, differing=340, target_wins=57, source_wins=33, same=10
        ... )
        >>> print(preference)
        v2 preferred in 62 % of 100 answers (95 % CI 54 to 70 %; 10 same, counted half), among the 340 of 500
        queries whose top 10 differ: v2 is better
    """

    source: str
    target: str
    queries: int
    differing: int
    target_wins: int
    source_wins: int
    same: int

    def __post_init__(self) -> None:
        if self.answered < 1:
            raise InvalidInput("estimate a preference", expected="at least one answer", found="none")

    @property
    def answered(self) -> int:
        """Number of answers."""
        return self.target_wins + self.source_wins + self.same

    @property
    def win_rate(self) -> Estimate:
        """Share of answers that prefer the target, where "same" counts half, with a 95 % interval.

        Wilson's interval with a continuity correction, for an effective number of answers. "Same" lowers the variance
        below that of wins and losses alone; a win added to each side keeps the variance above 0. The finite-population
        correction counts one more query than differ, so that even complete answers leave an interval.
        """
        n, wins = self.answered, self.target_wins + self.same / 2
        smoothed = (wins + 1) / (n + 2)
        variance = 1 - self.same / (n + 2) / (4 * smoothed * (1 - smoothed))
        population = max(self.differing, n) + 1
        effective = n / variance * population / (population - n)
        rate, step = wilson(wins / n, effective), 0.5 / effective
        return Estimate(value=rate.value, low=rate.low - step, high=rate.high + step).within(0.0, 1.0)

    @property
    def better(self) -> str | None:
        """The version that wins significantly more often; None if the interval includes 50 %."""
        rate = self.win_rate
        return self.target if rate.low > 0.5 else self.source if rate.high < 0.5 else None

    def __str__(self) -> str:
        rate = self.win_rate
        same = f"; {self.same} same, counted half" if self.same else ""
        verdict = "no significant preference" if self.better is None else f"{self.better} is better"
        return (
            f"{self.target} preferred in {100 * rate.value:.0f} % of {self.answered} answers (95 % CI "
            f"{100 * rate.low:.0f} to {100 * rate.high:.0f} %{same}), among the {self.differing} of {self.queries} "
            f"queries whose top 10 differ: {verdict}"
        )
