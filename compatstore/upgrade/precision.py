"""The precision that a hop runs in: float32, bfloat16, or the faster of the two on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np

from compatstore.artifacts.network import Precision, PrecisionRequest
from compatstore.storage.columns import VersionValues
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.requests.run_settings import require_precision
from compatstore.upgrade.transform import Transformer

TRIAL_ROWS = 1024
FEWEST_ROWS = 32_768  # a hop of fewer rows ends before a trial has paid for itself
FASTER = 1.1  # a smaller gain is not told from noise
CLOSE = 0.999  # bfloat16 keeps 8 bits of a product; a network that loses more than this loses neighbours


@dataclass(frozen=True, kw_only=True)
class PrecisionTrial:
    """What a trial of both precisions on rows of the gallery measured.

    Args:
        speed: Rows per second in bfloat16, as a multiple of float32's.
        cosine: Smallest cosine between a row's two outputs, in [-1, 1].
    """

    speed: float
    cosine: float

    @property
    def gains(self) -> bool:
        """Whether bfloat16 is faster for sure and gives the vectors that float32 gives."""
        return self.speed >= FASTER and self.cosine >= CLOSE


@dataclass(frozen=True, kw_only=True)
class PrecisionChoice:
    """The precision of one hop.

    Args:
        precision: "float32" or "bfloat16".
        warning: Why the precision that was asked for is a bad choice here; "" where it is not.
    """

    precision: Precision
    warning: str = ""

    def applied_to(self, transformer: Transformer) -> Transformer:
        """The hop in this precision."""
        return replace(transformer, precision=self.precision)


def choose_precision(
    context: UpgradeContext,
    transformer: Transformer | None,
    asked: PrecisionRequest,
    rows: int,
) -> PrecisionChoice:
    """Try both precisions on rows of the source where the answer can matter.

    Args:
        context: The upgrade, resolved.
        transformer: Its hop, or None where nothing is transformed.
        asked: "float32" is never tried. "auto" takes bfloat16 where it is at least 1.1 times as fast and no output's
            cosine with float32's is below 0.999. "bfloat16" is taken, with a warning where it is slower or less exact.
        rows: Rows that are to be transformed; of fewer than 32,768 bfloat16 is not tried.

    Returns:
        The precision to run in, and what to warn of.
    """
    require_precision(asked)
    taken: Precision = "bfloat16" if asked == "bfloat16" else "float32"
    if transformer is None or asked == "float32" or rows < FEWEST_ROWS:
        return PrecisionChoice(precision=taken)
    if asked == "auto" and find_spec("torch") is None:
        return PrecisionChoice(precision="float32")
    sample = sample_source(context, transformer, TRIAL_ROWS)
    if not len(sample.valid):
        return PrecisionChoice(precision=taken)
    trial = try_precisions(transformer, sample)
    if asked == "auto":
        return PrecisionChoice(precision="bfloat16" if trial.gains else "float32")
    return PrecisionChoice(precision="bfloat16", warning=_warning(trial))


def try_precisions(transformer: Transformer, sample: VersionValues) -> PrecisionTrial:
    """Transform the same rows in both precisions.

    Args:
        transformer: The hop; its own precision is ignored.
        sample: Rows of the source, all of which can be transformed.
    """
    exact, exact_seconds = _timed(replace(transformer, precision="float32"), sample)
    rough, rough_seconds = _timed(replace(transformer, precision="bfloat16"), sample)
    products = np.einsum("nd,nd->n", exact.vectors, rough.vectors, dtype=np.float64)
    lengths = np.linalg.norm(exact.vectors, axis=1) * np.linalg.norm(rough.vectors, axis=1)
    cosines = np.divide(products, lengths, out=np.ones_like(products), where=lengths > 0)
    return PrecisionTrial(speed=exact_seconds / rough_seconds, cosine=float(cosines.min()))


def sample_source(context: UpgradeContext, transformer: Transformer, limit: int) -> VersionValues:
    """The first rows of the source, `limit` at most, less those that cannot be transformed."""
    columns = context.source
    rows = context.snapshot.to_table(columns=columns.item_names, filter=columns.present, limit=limit)
    sample = columns.read_items(rows)
    return sample.take(transformer.possible(sample))


def _timed(transformer: Transformer, sample: VersionValues) -> tuple[VersionValues, float]:
    """What the transformer makes of a sample, and the seconds of the faster of two runs, the first one left out."""
    made, seconds = transformer.apply(sample), []
    for _ in range(2):
        started = time.perf_counter()
        made = transformer.apply(sample)
        seconds.append(time.perf_counter() - started)
    return made, min(seconds)


def _warning(trial: PrecisionTrial) -> str:
    """What speaks against bfloat16 here."""
    found = []
    if trial.speed < 1:
        found.append(f"runs at {trial.speed:.2f} times the speed of float32")
    if trial.cosine < CLOSE:
        found.append(f"gives vectors with a cosine of {trial.cosine:.3f} with those of float32")
    if not found:
        return ""
    return f'on this machine the hop in bfloat16 {" and ".join(found)}; precision "auto" takes the better one'
