"""How large a run of the benchmark on pairs is: one size for all methods of a run."""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.artifacts.network import Precision
from compatstore.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class Size:
    """What every method of a run gets.

    Args:
        name: What the journal calls it.
        pairs: Pairs to learn from at most, None for all that are left.
        queries: Queries at most.
        gallery: Items in the gallery at most.
        epochs: Passes over the pairs.
        batch_size: Pairs a step, for FCT's network. The residual network keeps its own batch and schedule.
        branch_width: Of FCT's network.
        mixer_width: Of FCT's network, and width of the residual network.
        precision: Of the hidden layers' products.
        alphas: Shares of native vectors that the backfilling curve is measured at.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    name: str
    pairs: int | None
    queries: int
    gallery: int
    epochs: int
    batch_size: int
    branch_width: int
    mixer_width: int
    precision: Precision = "float32"
    alphas: int = 11

    def __post_init__(self) -> None:
        if min(self.queries, self.gallery, 2 if self.pairs is None else self.pairs) < 2 or self.alphas < 2:
            raise InvalidInput("size the benchmark", expected="2 or more of each", found=repr(self))


SIZES = {
    size.name: size
    for size in (
        Size(
            name="tiny", pairs=200, queries=40, gallery=80, epochs=2, batch_size=64, branch_width=8, mixer_width=16,
            alphas=3,
        ),
        Size(
            name="cpu", pairs=6000, queries=1000, gallery=3000, epochs=30, batch_size=256, branch_width=256,
            mixer_width=512, precision="bfloat16",
        ),
        # Four times the pairs and nothing else, to see what a small set of pairs decides.
        Size(
            name="many", pairs=24_000, queries=1000, gallery=3000, epochs=30, batch_size=256, branch_width=256,
            mixer_width=512, precision="bfloat16",
        ),
        Size(
            name="paper", pairs=None, queries=10_000, gallery=50_000, epochs=80, batch_size=1024, branch_width=256,
            mixer_width=2048,
        ),
    )
}  # fmt: skip
