"""Refit while filling: correct a transform by the native vectors that a backfill has made, for what remains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from compatstore.arrays import FloatArray, Positions
from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.network import Execution, Network
from compatstore.boundary import checked, checked_fields
from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.ridge import Ridge
from compatstore.trainers.pairs.shrinking import shrinkage_figure
from compatstore.trainers.settings import OpenShare, from_to, require_settings
from compatstore.upgrade.refit import FEWEST_ROWS, FEWEST_VALIDATION_ROWS, Gathered, Refitted

SUFFIX = "+refit"

# The largest leaves almost nothing but a shift: with few rows the transform as it is may be the best estimate.
PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Refit:
    """h'(x) = z + B [z; x] + c + s u, scaled to unit length where the target is; z is h's output before that scaling.

    B and c are the ridge solution for the errors of h on the gathered rows: the fewer rows, the smaller the
    correction. s u keeps the distance: a least-squares estimate lacks the part of a native vector that does not follow
    from x, so it is nearer to a query than the native vector, and takes first ranks that native vectors fill better.
    The expected squared distance of the native vector is that of the estimate plus the held-out squared error. s^2 is
    a share of that error, as large as the native share of the gallery; u is the direction in which native vectors vary
    least, so that s u changes no order among transformed vectors. All of it folds into h's layers: the result is a
    transform like any other, and as fast. A sigma head is fitted again, on the log of the remaining error, and what
    sigma^2 says of cosines (shrinkage) is measured again, on 40 validation rows or more.

    Args:
        holdout: Share of a backfill's budget that is drawn at random first, in (0, 1), for validation: the rows that
            a backfill in the order of sigma gathers differ from those that remain.
        farthest: Largest share of the held-out squared error that is kept as distance, in [0, 1].
        seed: Of the folds.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    # Validation rows are also learned from: each is measured under a correction that was learned without its fold.
    folds: ClassVar[int] = 4

    holdout: OpenShare = 0.2
    farthest: Annotated[float, from_to(0, 1)] = 0.4
    seed: int = 0

    def __post_init__(self) -> None:
        require_settings(self)

    @checked
    def fit(self, current: Artifact, gathered: Gathered) -> Refitted:
        """Correct a transform.

        Raises:
            InvalidInput: Fewer than 20 rows or 10 validation rows, or `current` is no forward transform.
        """
        if "h" not in current.manifest.networks or current.kind != "ForwardTransform":
            raise InvalidInput("refit a transform", expected="a ForwardTransform", found=current.kind)
        if not gathered.enough:
            raise InvalidInput(
                "refit a transform",
                expected=f"{FEWEST_ROWS} rows or more, and {FEWEST_VALIDATION_ROWS} to validate by",
                found=f"{len(gathered.source)} and {len(gathered.validation_rows)}",
            )
        layers, pairs = Layers.of(current, self.seed), Pairs(gathered.source, gathered.target, side=gathered.side)
        before = _squares(layers.errors(pairs.subset(gathered.validation_rows)), about_mean=_was_refitted(current))
        folds = self._folds(layers, pairs, gathered)
        after = np.concatenate([_squares(fold.corrected.errors(fold.asked)) for fold in folds])
        before = before[np.concatenate([fold.places for fold in folds])]
        # Of "dot" the expected product is the product with the estimate.
        kept = min(gathered.native, self.farthest) * float(after.mean())
        square = 0.0 if current.manifest.target.metric == "dot" else kept
        corrected = _kept_away(layers.corrected(pairs).with_sigma_of(pairs), pairs, square)
        refitted = Refitted(
            artifact=self._artifact(current, corrected, pairs),
            before=float(before.mean()),
            after=float(after.mean()),
            standard_error=float((before - after).std() / len(after) ** 0.5),
        )
        if not refitted.improved:  # nothing is hopped by it
            return refitted
        return replace(refitted, artifact=refitted.artifact.amended(figures=_doubts(current, folds, square)))

    def _folds(self, layers: Layers, pairs: Pairs, gathered: Gathered) -> list[_Fold]:
        """The validation rows in folds, each with the correction that was learned without it."""
        fold, found = np.random.default_rng(self.seed).permutation(len(gathered.validation_rows)) % self.folds, []
        for number in range(self.folds):
            places = np.flatnonzero(fold == number)
            asked = gathered.validation_rows[places]
            rest = pairs.subset(np.setdiff1d(np.arange(len(pairs)), asked))
            found.append(_Fold(places, pairs.subset(asked), rest, layers.corrected(rest)))
        return found

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


class _Fold(NamedTuple):
    """A part of the validation rows.

    Attributes:
        places: (k,) intp, which of the validation rows.
        asked: These.
        rest: All other rows.
        corrected: Learned from the rest.
    """

    places: Positions
    asked: Pairs
    rest: Pairs
    corrected: Layers


def _doubts(current: Artifact, folds: Sequence[_Fold], square: float) -> dict[str, Mapping[str, object]]:
    """What sigma^2 lets expect of cosines, as figures: of each fold under the correction of the rest, kept as far."""
    made = []
    for fold in folds:
        layers = _kept_away(fold.corrected.with_sigma_of(fold.rest), fold.rest, square)
        side = None if layers.architecture.side_dim is None else fold.asked.side
        made.append(Network(layers.architecture, dict(layers.tensors)).run(fold.asked.source, side, Execution()))
    vectors, sigma2 = ([part for part in parts if part is not None] for parts in zip(*made, strict=True))
    if not sigma2:
        return {}
    native = np.concatenate([fold.asked.target for fold in folds])
    metric = current.manifest.target.metric
    figure = shrinkage_figure(np.concatenate(sigma2), np.concatenate(vectors), native, metric)
    return {"h": figure} if figure else {}


def _was_refitted(artifact: Artifact) -> bool:
    return artifact.manifest.method.endswith(SUFFIX)


def _squares(errors: FloatArray, *, about_mean: bool = False) -> FloatArray:
    """Squared lengths: (n,) float32. About the mean, the distance that an earlier refit keeps does not count."""
    squares: FloatArray = np.square(errors - errors.mean(axis=0) if about_mean else errors).sum(axis=1)
    return squares


def _kept_away(layers: Layers, pairs: Pairs, square: float) -> Layers:
    """Move all vectors by the root of `square` in the direction along which natives vary least."""
    if not square:
        return layers
    step = _least_direction(pairs.target) * np.float32(square**0.5)
    return layers.moved(
        step * np.linalg.norm(layers.raw(pairs), axis=1).mean() if layers.architecture.normalise else step
    )


def _least_direction(vectors: FloatArray) -> FloatArray:
    """The unit vector along which (n, d) vectors vary least: (d,) float32."""
    direction: FloatArray = np.linalg.eigh(np.atleast_2d(np.cov(vectors.T)))[1][:, 0].astype(np.float32)
    return direction


@dataclass(frozen=True, kw_only=True, eq=False)
class Layers:
    """The network of h: z is its output before that is scaled to unit length (where the target space is).

    Args:
        architecture: Its description.
        tensors: Its weights, by their names in the description.
        seed: Of the rows that choose a ridge penalty.
    """

    architecture: Architecture
    tensors: Mapping[str, FloatArray]
    seed: int = 0

    @classmethod
    def of(cls, artifact: Artifact, seed: int) -> Layers:
        """Take the layers of a ForwardTransform."""
        tensors = {name[2:]: tensor for name, tensor in artifact.tensors.items() if name.startswith("h.")}
        return cls(architecture=artifact.manifest.networks["h"], tensors=tensors, seed=seed)

    def raw(self, pairs: Pairs) -> FloatArray:
        """z: (n, target dim) float32."""
        side = None if self.architecture.side_dim is None else pairs.side
        told = self.architecture.uncertainty
        plain = replace(self.architecture, normalise=False, uncertainty=False if told == "length" else told)
        return Network(plain, dict(self.tensors)).run(pairs.source, side, Execution())[0]

    def errors(self, pairs: Pairs) -> FloatArray:
        """Native minus transformed vectors: (n, target dim) float32."""
        raw = self.raw(pairs)
        apart: FloatArray = pairs.target - (raw / _lengths(raw) if self.architecture.normalise else raw)
        return apart

    def corrected(self, pairs: Pairs) -> Layers:
        """Add B [z; x] + c to z, B and c being the ridge solution for the errors of z on these pairs.

        It folds into the last layer and a linear map of the input.
        """
        raw = self.raw(pairs)
        inputs = np.concatenate([raw, pairs.source, *([] if pairs.side is None else [pairs.side])], axis=1)
        wanted = pairs.target * _lengths(raw) if self.architecture.normalise else pairs.target
        return self._folded(*self._ridge(inputs, wanted - raw))

    def with_sigma_of(self, pairs: Pairs) -> Layers:
        """Fit the sigma head again, where there is one: ridge of the log of the squared error per dimension on z."""
        if self.architecture.uncertainty is not True:  # a length says it, and is kept
            return self
        errors = np.square(self.errors(pairs)).mean(axis=1, keepdims=True)
        logs = np.log(np.maximum(errors, np.finfo(np.float32).tiny)).astype(np.float32)
        weight, bias = self._ridge(self.raw(pairs), logs)
        return self._with({"log_sigma2.weight": weight, "log_sigma2.bias": bias})

    def moved(self, step: FloatArray) -> Layers:
        """Add a step, (target dim,) float32, to z; sigma is not changed."""
        bias = f"{self._last}.bias"
        changed = {bias: self.tensors[bias] + step}
        if self.architecture.uncertainty is True:
            changed["log_sigma2.bias"] = self.tensors["log_sigma2.bias"] - self.tensors["log_sigma2.weight"] @ step
        return self._with(changed)

    @property
    def _last(self) -> str:
        return f"mixer.{len(self.architecture.mixer)}"

    def _with(self, tensors: Mapping[str, FloatArray]) -> Layers:
        return replace(self, tensors={**self.tensors, **tensors})

    def _ridge(self, inputs: FloatArray, outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
        solution = Ridge(penalties=PENALTIES, seed=self.seed).solve(Pairs(inputs, outputs))
        return solution.weight.astype(np.float32), solution.bias.astype(np.float32)

    def _folded(self, weight: FloatArray, bias: FloatArray) -> Layers:
        """Fold z + B [z; x] + c, weight being B and bias c."""
        dim, source_dim = self.architecture.output_dim, self.architecture.source_dim
        gain: FloatArray = np.eye(dim, dtype=np.float32) + weight[:, :dim]
        folded = {
            f"{self._last}.weight": gain @ self.tensors[f"{self._last}.weight"],
            f"{self._last}.bias": gain @ self.tensors[f"{self._last}.bias"] + bias,
        }
        parts = {"skip.weight": weight[:, dim : dim + source_dim]}
        if self.architecture.side_dim is not None:
            parts["skip_side.weight"] = weight[:, dim + source_dim :]
        for name, part in parts.items():
            folded[name] = part + gain @ self.tensors[name] if self.architecture.skip else part
        return replace(self._with(folded), architecture=replace(self.architecture, skip=True))


def _lengths(vectors: FloatArray) -> FloatArray:
    lengths: FloatArray = np.linalg.norm(vectors, axis=1, keepdims=True)
    return lengths
