"""A weight of a fusion, what it was chosen on, and what it gives beside the target alone."""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.boundary import require_fields
from compatstore.errors import InvalidInput
from compatstore.evaluation.bootstrap import Estimate


@dataclass(frozen=True, kw_only=True)
class WeightChoice:
    """A weight and what it was chosen on.

    Args:
        weight: Weight of the target's distance, in [0, 1].
        per_origin: Whether native and transformed vectors of the target are standardised apart.
        native_share: Share of the gallery that was native in the target, from 0 to 1.
        criterion: Figure that decided, such as "map".
        truth: What counted as right: "labels", or "the target's 10 nearest neighbours".
        num_queries: Queries that decided.
        gain: Difference of the criterion to the status quo, from -1 to 1.
        low: Lower end of its interval, which is simultaneous for all weights that were compared.
        over_target: Difference of the criterion to the target alone, each query by the weight that other queries chose:
            what is lost when the source is retired. Where queries judge an upgrade that teaches itself, the interval
            reaches up to where it ends by the weight that is served. None where it was not measured.
        target_gain: Difference of the target alone to the status quo. None where it was not measured.
        transformed_weight: Weight of the target's distance where it is not of a native vector; None for `weight`.

    Raises:
        InvalidInput: A weight or the share is out of range.
    """

    weight: float
    per_origin: bool
    native_share: float
    criterion: str
    truth: str
    num_queries: int
    gain: float
    low: float
    over_target: Estimate | None = None
    target_gain: Estimate | None = None
    transformed_weight: float | None = None

    def __post_init__(self) -> None:
        require_fields(self)
        for weight in (self.weight, self.transformed_weight or 0.0):
            require_share("choose the weight of a fusion", "a weight", weight)
        require_share("choose the weight of a fusion", "a native share", self.native_share)

    @property
    def weights(self) -> str:
        """Of native and of transformed vectors, as text: "0.5", or "0.5, 0.15 transformed"."""
        return weights_in_words(self.weight, self.transformed_weight)

    def __str__(self) -> str:
        return (
            f"{self.weights} chosen by {self.criterion} of {self.num_queries} queries, correct by {self.truth}, for "
            f"a native share of {self.native_share:.4g}: {100 * self.gain:+.1f} points to the status quo, "
            f"{100 * self.low:+.1f} at least"
        )

    @property
    def loss(self) -> str:
        """What searches lose when the source is retired, as text for people; "" where it was not measured."""
        if self.over_target is None:
            return ""
        return (
            f"{self.criterion} of the target alone is {_lost(self.over_target)} from that of both versions as one, "
            f"measured at a native share of {self.native_share:.4g}, correct by {self.truth}"
        )


def _lost(over: Estimate) -> str:
    value, low, high = (0.0 - 100 * end for end in (over.value, over.high, over.low))  # 0.0: no "-0.0"
    return f"{value:+.1f} points ({low:+.1f} to {high:+.1f})"


def weights_in_words(native: float, transformed: float | None) -> str:
    """Weights of native and of transformed vectors: "0.5", or "0.5, 0.15 transformed"."""
    return f"{native:.4g}" if transformed is None else f"{native:.4g}, {transformed:.4g} transformed"


def require_share(asked: str, what: str, value: float) -> None:
    """Refuse a share that is not from 0 to 1.

    Raises:
        InvalidInput: It is not.
    """
    if not 0 <= value <= 1:
        raise InvalidInput(asked, expected=f"{what} from 0 to 1", found=f"{value}")
