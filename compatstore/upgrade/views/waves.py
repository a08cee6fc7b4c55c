"""Waves of an upgrade that teaches itself, as a table for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compatstore.shown import view
from compatstore.tables import Table, table
from compatstore.upgrade.estimates.waves import WaveFigures, Waves


@view.register
def _(result: Waves) -> Iterator[str | Table]:
    """All lessons so far."""
    yield from waves_view(result)


def waves_view(waves: Sequence[WaveFigures]) -> Iterator[Table]:
    """What the lessons of an upgrade that teaches itself have found, and what more natives promise."""
    if not waves:
        return
    criterion, cost = waves[-1].criterion, ["cost"] if any(wave.cost for wave in waves) else []
    yield table(
        ("wave", "native", "share", *cost, f"{criterion} % before", "as served", "weight", "promised"),
        [
            (
                number,
                wave.native,
                f"{wave.share:.1%}",
                *(f"{wave.cost:g}" for _ in cost),
                wave.status_quo.percent,
                "as before" if wave.gain is None else wave.served.percent,
                f"{wave.weight:g}",
                _next_promise(wave),
            )
            for number, wave in enumerate(waves, start=1)
        ],
    )


def _next_promise(wave: WaveFigures) -> str:
    """What twice the natives, or the next larger share that was measured, were found to give."""
    ahead = next((promise for promise in wave.ahead if promise.share >= 2 * wave.share), None)
    return "" if ahead is None else f"{ahead.share:.0%}: {ahead.figure.percent}"
