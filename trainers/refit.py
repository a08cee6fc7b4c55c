"""Refit while filling: correct a transform by the native vectors that a backfill has made, for what remains."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.network import Execution, Network
from compatstore.encoders.protocol import FloatArray
from compatstore.errors import InvalidInput
from compatstore.trainers.closed_form import AffineMap
from compatstore.trainers.pairs import Pairs
from compatstore.trainers.ridge import Ridge

SMALLEST = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Refitted:
    """What a refit gave.

    Args:
        artifact: The corrected transform.
        before: Mean squared distance of held-out rows to their native vectors under the transform as it was.
        after: The same under the corrected one.
        standard_error: Of the difference of the two, row by row.
    """

    artifact: Artifact
    before: float
    after: float
    standard_error: float

    @property
    def improved(self) -> bool:
        """Whether what remains is worth hopping again: the gain is more than chance would give in one case of forty."""
        return self.before - self.after > 2 * self.standard_error


@dataclass(frozen=True, kw_only=True)
class Refit:
    """h'(x) = z + B [z; x] + c, scaled to unit length where the target is; z is the output of h before that scaling.

    B and c are the ridge solution for what h misses on the gathered rows, so few rows mean a small correction and h is
    never forgotten. The correction is folded into h's last layer and a linear map of its input: the result is a
    transform like any other, and as fast. A sigma head is fitted anew on the log of the remaining error.

    Args:
        holdout: Share of the gathered rows kept out to compare the two transforms on, in (0, 1), where the caller
            names no rows for that.
        seed: Of that choice.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    holdout: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.holdout < 1:
            raise InvalidInput("set up a refit", expected="holdout between 0 and 1", found=f"{self.holdout}")

    def fit(self, current: Artifact, gathered: Pairs, check: Pairs | None = None) -> Refitted:
        """Correct a transform.

        Args:
            current: A ForwardTransform.
            gathered: Rows that were embedded natively meanwhile, side-information with them where h reads it.
            check: Rows to compare the two transforms on. What a backfill in the order of sigma gathers is not like what
                remains: it is the rows that h does worst on. Rows drawn at random are, so a backfill that is to be
                refitted spends some of its budget on them. Without `check` some of `gathered` are held out.

        Raises:
            InvalidInput: Fewer than 20 rows, or `current` is no forward transform.
        """
        if "h" not in current.manifest.networks or current.kind != "ForwardTransform":
            raise InvalidInput("refit a transform", expected="a ForwardTransform", found=current.kind)
        if len(gathered) < SMALLEST:
            raise InvalidInput("refit a transform", expected=f"{SMALLEST} rows or more", found=f"{len(gathered)}")
        learn = gathered
        if check is None:
            learn, check = gathered.split(self.holdout, self.seed)
        corrected = self._correct(current, learn)
        before, after = _errors(current, check), _errors(corrected, check)
        return Refitted(
            artifact=corrected,
            before=float(before.mean()),
            after=float(after.mean()),
            standard_error=float((before - after).std() / len(check) ** 0.5),
        )

    def _correct(self, current: Artifact, pairs: Pairs) -> Artifact:
        architecture = current.manifest.networks["h"]
        tensors = {name[2:]: tensor for name, tensor in current.tensors.items() if name.startswith("h.")}
        raw = _raw_output(architecture, tensors, pairs)
        inputs = np.concatenate([raw, pairs.source, *([] if pairs.side is None else [pairs.side])], axis=1)
        length = np.linalg.norm(raw, axis=1, keepdims=True) if architecture.normalise else np.float32(1)
        solution = Ridge(seed=self.seed).solve(Pairs(inputs, pairs.target * length - raw))
        architecture, tensors = _fold(architecture, tensors, *_single(solution))
        if architecture.uncertainty:
            tensors |= self._sigma_head(architecture, tensors, pairs)
        others = {name: tensor for name, tensor in current.tensors.items() if not name.startswith("h.")}
        manifest = current.manifest
        return Artifact.create(
            "ForwardTransform",
            method=f"{manifest.method.removesuffix('+refit')}+refit",
            source=manifest.source,
            target=manifest.target,
            side_source=manifest.side_source,
            side_target=manifest.side_target,
            networks={**manifest.networks, "h": architecture},
            tensors=others | {f"h.{name}": tensor for name, tensor in tensors.items()},
            settings={"refit": asdict(self), "of": current.id, **dict(manifest.settings)},
        )

    def _sigma_head(
        self, architecture: Architecture, tensors: dict[str, FloatArray], pairs: Pairs
    ) -> dict[str, FloatArray]:
        """Ridge regression of the log of the squared error per dimension on the corrected output."""
        raw = _raw_output(architecture, tensors, pairs)
        made = raw / np.linalg.norm(raw, axis=1, keepdims=True) if architecture.normalise else raw
        errors = np.square(made - pairs.target).mean(axis=1, keepdims=True)
        logs = np.log(np.maximum(errors, np.finfo(np.float32).tiny)).astype(np.float32)
        weight, bias = _single(Ridge(seed=self.seed).solve(Pairs(raw, logs)))
        return {"log_sigma2.weight": weight, "log_sigma2.bias": bias}


def _single(solution: AffineMap) -> tuple[FloatArray, FloatArray]:
    return solution.weight.astype(np.float32), solution.bias.astype(np.float32)


def _raw_output(architecture: Architecture, tensors: dict[str, FloatArray], pairs: Pairs) -> FloatArray:
    """z: (n, target dim) float32, the output before it is scaled to unit length."""
    plain = replace(architecture, normalise=False)
    side = None if architecture.side_dim is None else pairs.side
    return Network(plain, tensors).run(pairs.source, side, Execution())[0]


def _fold(
    architecture: Architecture, tensors: dict[str, FloatArray], weight: FloatArray, bias: FloatArray
) -> tuple[Architecture, dict[str, FloatArray]]:
    """Fold z + B [z; x] + c into the network's last layer and its linear maps of the input."""
    dim, source_dim = architecture.output_dim, architecture.source_dim
    gain: FloatArray = np.eye(dim, dtype=np.float32) + weight[:, :dim]
    last = f"mixer.{len(architecture.mixer)}"
    folded = dict(tensors)
    folded[f"{last}.weight"] = gain @ tensors[f"{last}.weight"]
    folded[f"{last}.bias"] = gain @ tensors[f"{last}.bias"] + bias
    parts = {"skip.weight": weight[:, dim : dim + source_dim]}
    if architecture.side_dim is not None:
        parts["skip_side.weight"] = weight[:, dim + source_dim :]
    for name, part in parts.items():
        folded[name] = part + gain @ tensors[name] if architecture.skip else part
    return replace(architecture, skip=True), folded


def _errors(artifact: Artifact, pairs: Pairs) -> FloatArray:
    """Squared distance of each row to its native vector: (n,) float32."""
    side = None if artifact.manifest.side_source is None else pairs.side
    errors: FloatArray = np.square(artifact.apply(pairs.source, side).vectors - pairs.target).sum(axis=1)
    return errors
