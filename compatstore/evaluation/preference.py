"""Preference between two versions, from blind comparisons of their results side by side."""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput
from compatstore.evaluation.bootstrap import Estimate, wilson


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
