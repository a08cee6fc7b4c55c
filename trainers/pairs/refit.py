"""Refit while filling: correct a transform by the native vectors that a backfill has made, for what remains."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.artifacts.artifact import Artifact
from compatstore.boundary import checked, require_fields
from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.correction import Layers
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.upgrade.refitting.refitter import FEWEST_JUDGES, FEWEST_ROWS, Gathered, Refitted

SUFFIX = "+refit"


@dataclass(frozen=True, kw_only=True)
class Refit:
    """h'(x) = z + B [z; x] + c + s u, scaled to unit length where the target is; z is h's output before that scaling.

    B and c are the ridge solution for what h misses on the gathered rows, so few rows mean a small correction and h is
    never forgotten. s u keeps the distance: a least-squares estimate lacks the part of a native vector that cannot be
    told from x, so it lies nearer to a query than the native would, and takes first places that natives fill better.
    The expected squared distance of the native is that of the estimate plus the held-out squared error. s^2 is a share
    of that error, as large as the native share of the gallery, and u the direction in which natives vary least, where
    it separates nothing. All of it folds into h's layers: the result is a transform like any other, and as fast. A
    sigma head is fitted anew on the log of the remaining error.

    Args:
        holdout: Share of a backfill's budget that is drawn at random first, in (0, 1). They judge: what a backfill in
            the order of sigma gathers is not like what remains.
        farthest: Largest share of the held-out squared error that is kept as distance, in [0, 1].
        folds: The judges also teach: each is judged by a correction learned without its fold, >= 2.
        seed: Of the folds.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    holdout: float = 0.2
    farthest: float = 0.4
    folds: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        require_fields(self)
        rules = {
            "holdout between 0 and 1": 0 < self.holdout < 1,
            "farthest from 0 to 1": 0 <= self.farthest <= 1,
            "folds from 2 to 10": 2 <= self.folds <= FEWEST_JUDGES,
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise InvalidInput("set up a refit", expected=", ".join(broken), found=repr(self))

    @checked
    def fit(self, current: Artifact, gathered: Gathered) -> Refitted:
        """Correct a transform.

        Raises:
            InvalidInput: Fewer than 20 rows or 10 judges, or `current` is no forward transform.
        """
        if "h" not in current.manifest.networks or current.kind != "ForwardTransform":
            raise InvalidInput("refit a transform", expected="a ForwardTransform", found=current.kind)
        if not gathered.enough:
            raise InvalidInput(
                "refit a transform",
                expected=f"{FEWEST_ROWS} rows or more, and {FEWEST_JUDGES} that judge",
                found=f"{len(gathered.source)} and {len(gathered.judges)}",
            )
        layers, pairs = Layers.of(current, self.seed), Pairs(gathered.source, gathered.target, side=gathered.side)
        before = _squares(layers.misses(pairs.subset(gathered.judges)), about_mean=_was_refitted(current))
        after = self._cross_fitted(layers, pairs, gathered)
        corrected = layers.corrected(pairs).with_sigma_of(pairs)
        if current.manifest.target.metric != "dot":  # the expected product is the product with the estimate
            corrected = _kept_away(corrected, pairs, min(gathered.native, self.farthest) * float(after.mean()))
        return Refitted(
            artifact=self._artifact(current, corrected, pairs),
            before=float(before.mean()),
            after=float(after.mean()),
            standard_error=float((before - after).std() / len(after) ** 0.5),
        )

    def _cross_fitted(self, layers: Layers, pairs: Pairs, gathered: Gathered) -> FloatArray:
        """Squared distance of each judge to its native vector, corrected by what the other folds teach: (judges,)."""
        fold = np.random.default_rng(self.seed).permutation(len(gathered.judges)) % self.folds
        errors = np.zeros(len(fold), np.float32)
        for number in range(self.folds):
            asked = gathered.judges[fold == number]
            others = np.setdiff1d(np.arange(len(pairs)), asked)
            errors[fold == number] = _squares(layers.corrected(pairs.subset(others)).misses(pairs.subset(asked)))
        return errors

    def _artifact(self, current: Artifact, layers: Layers, pairs: Pairs) -> Artifact:
        manifest = current.manifest
        others = {name: tensor for name, tensor in current.tensors.items() if not name.startswith("h.")}
        return Artifact.create(
            "ForwardTransform",
            method=f"{manifest.method.removesuffix(SUFFIX)}{SUFFIX}",
            source=manifest.source,
            target=manifest.target,
            side_source=manifest.side_source,
            side_target=manifest.side_target,
            networks={**manifest.networks, "h": layers.architecture},
            tensors=others | {f"h.{name}": tensor for name, tensor in layers.tensors.items()},
            settings={**dict(manifest.settings), "refit": asdict(self), "of": current.id},
            seen=None if current.seen is None else np.union1d(current.seen, pairs.seen),
        )


def _was_refitted(artifact: Artifact) -> bool:
    return artifact.manifest.method.endswith(SUFFIX)


def _squares(misses: FloatArray, *, about_mean: bool = False) -> FloatArray:
    """Squared lengths: (n,) float32. About the mean, the distance that an earlier refit keeps does not count."""
    squares: FloatArray = np.square(misses - misses.mean(axis=0) if about_mean else misses).sum(axis=1)
    return squares


def _kept_away(layers: Layers, pairs: Pairs, square: float) -> Layers:
    """Move all vectors by the root of `square` in the direction along which natives vary least."""
    step = _least_direction(pairs.target) * np.float32(square**0.5)
    return layers.moved(
        step * np.linalg.norm(layers.raw(pairs), axis=1).mean() if layers.architecture.normalise else step
    )


def _least_direction(vectors: FloatArray) -> FloatArray:
    """The unit vector along which (n, d) vectors vary least: (d,) float32."""
    direction: FloatArray = np.linalg.eigh(np.atleast_2d(np.cov(vectors.T)))[1][:, 0].astype(np.float32)
    return direction
