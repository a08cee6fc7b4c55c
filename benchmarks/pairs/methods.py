"""The rows of the benchmark: what is trained, and in which orders its transformed vectors are backfilled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.orders import BY_HEAD
from benchmarks.pairs.settings import Size
from compatstore.trainers import FCT, FastFill, Residual, Ridge
from compatstore.trainers.pairs.fastfill import AlignmentLoss
from compatstore.trainers.pairs.trainer import PairTrainer

RANDOM, SIGMA, ORACLE = "random", "sigma", "oracle"
SPREAD_SIGMA = "spread-sigma"
INVERSE_LAMBDAS = (0.01, 0.03, 0.1, 0.3, 3.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Method:
    """One training.

    Args:
        name: What the journal calls it.
        trainer: Makes the trainer for a size and a seed.
        orders: Orders of the backfill to measure.
        target_scale: Multiplies the target space for training, and is taken off again after it: distances keep
            their order, and the squared distance changes its weight beside the loss through the head.
    """

    name: str
    trainer: Callable[[Size, int], PairTrainer]
    orders: tuple[str, ...]
    target_scale: float = 1.0


def fct(size: Size, seed: int) -> FCT:
    """FCT at the size of the run."""
    return FCT(
        epochs=size.epochs,
        batch_size=size.batch_size,
        branch_width=size.branch_width,
        mixer_width=size.mixer_width,
        precision=size.precision,
        seed=seed,
    )


def fastfill(size: Size, seed: int, loss: AlignmentLoss = "l2+disc", uncertainty: bool = True) -> FastFill:
    """FastFill at the size of the run, its losses as in the paper."""
    return FastFill(
        scale=64.0,
        disc_weight=1.0,
        loss=loss,
        uncertainty=uncertainty,
        epochs=size.epochs,
        batch_size=size.batch_size,
        branch_width=size.branch_width,
        mixer_width=size.mixer_width,
        precision=size.precision,
        seed=seed,
    )


def residual(size: Size, seed: int) -> Residual:
    """The residual start at the size of the run, with its own batch and rate; rows are held out as of the others."""
    return Residual(
        loss="l2+disc",
        epochs=size.epochs,
        width=size.mixer_width,
        precision=size.precision,
        seed=seed,
        holdout_by="row",
    )


def _residual_by_distance(size: Size, seed: int) -> Residual:
    return replace(residual(size, seed), loss="l2")


def _low_scale(size: Size, seed: int) -> FastFill:
    return replace(fastfill(size, seed), scale=4.0)


def ridge(size: Size, seed: int) -> Ridge:
    """The best linear map: what the networks have to beat."""
    return Ridge(seed=seed)


def _ablation(loss: AlignmentLoss, uncertainty: bool, *orders: str) -> Method:
    name = f"FastFill {loss}{' + sigma' if uncertainty else ''}"
    return Method(name=name, trainer=lambda size, seed: fastfill(size, seed, loss, uncertainty), orders=orders)


def _sweep(inverse_lambda: float) -> Method:
    swept = type("FastFill", (FastFill,), {"inverse_lambda": inverse_lambda})

    def trainer(size: Size, seed: int) -> FastFill:
        made: FastFill = swept(**vars(fastfill(size, seed)))
        return made

    return Method(name=f"FastFill 1/lambda {inverse_lambda:g}", trainer=trainer, orders=(RANDOM, SIGMA))


# FCT is the ablation "L2 alone, in random order": the networks and schedules are one.
METHODS = (
    Method(name="FCT", trainer=fct, orders=(RANDOM, ORACLE)),
    Method(name="FastFill", trainer=fastfill, orders=(RANDOM, SIGMA, *BY_HEAD, ORACLE)),
    Method(name="Residual", trainer=residual, orders=(RANDOM, SIGMA, ORACLE)),
    Method(name="Residual l2 + sigma", trainer=_residual_by_distance, orders=(RANDOM, SIGMA)),
    Method(name="Ridge", trainer=ridge, orders=(RANDOM,)),
    _ablation("disc", False, RANDOM),
    _ablation("l2+disc", False, RANDOM),
    _ablation("l2", True, RANDOM, SIGMA),
    _ablation("disc", True, SIGMA),
)
SWEEP = tuple(_sweep(value) for value in INVERSE_LAMBDAS)
# The two losses made of one size: on unit vectors by a lower scale of ArcFace, on others by a smaller target space.
BALANCE_UNIT = Method(name="FastFill balanced", trainer=_low_scale, orders=(RANDOM, SIGMA, *BY_HEAD, ORACLE))
BALANCE = Method(name="FastFill balanced", trainer=fastfill, orders=BALANCE_UNIT.orders, target_scale=0.1)


def by_default(size: Size, seed: int) -> FastFill:
    """FastFill at the size of the run, which chooses the balance of its losses and its batches."""
    return replace(fastfill(size, seed), scale=None, disc_weight=None, batch_size=None)


def _scaled(scale: float) -> Method:
    def trainer(size: Size, seed: int) -> FastFill:
        return replace(fastfill(size, seed), scale=scale)

    return Method(name=f"FastFill scale {scale:g}", trainer=trainer, orders=(RANDOM, SIGMA, SPREAD_SIGMA))


FIXED_SCALES = tuple(_scaled(scale) for scale in (64.0, 16.0, 4.0))  # on unit vectors alone
CHOSEN = (
    Method(name="FCT", trainer=fct, orders=(RANDOM,)),
    Method(name="Residual by distance", trainer=_residual_by_distance, orders=(RANDOM, SIGMA)),
    Method(name="FastFill default", trainer=by_default, orders=(RANDOM, SIGMA, SPREAD_SIGMA, *BY_HEAD)),
)
