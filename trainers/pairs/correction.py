"""A transform's layers, and what can be done to them without training them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.network import Execution, Network
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.ridge import Ridge

# Up to where almost nothing but a shift is left: with few rows the transform as it is may be the best guess.
PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


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
        """Take those of a ForwardTransform."""
        tensors = {name[2:]: tensor for name, tensor in artifact.tensors.items() if name.startswith("h.")}
        return cls(architecture=artifact.manifest.networks["h"], tensors=tensors, seed=seed)

    def raw(self, pairs: Pairs) -> FloatArray:
        """z: (n, target dim) float32."""
        side = None if self.architecture.side_dim is None else pairs.side
        plain = replace(self.architecture, normalise=False)
        return Network(plain, dict(self.tensors)).run(pairs.source, side, Execution())[0]

    def misses(self, pairs: Pairs) -> FloatArray:
        """What the native vectors are apart from the transformed ones: (n, target dim) float32."""
        raw = self.raw(pairs)
        apart: FloatArray = pairs.target - (raw / _lengths(raw) if self.architecture.normalise else raw)
        return apart

    def corrected(self, pairs: Pairs) -> Layers:
        """Add B [z; x] + c to z, B and c being the ridge solution for what z misses on these pairs.

        It folds into the last layer and a linear map of the input.
        """
        raw = self.raw(pairs)
        inputs = np.concatenate([raw, pairs.source, *([] if pairs.side is None else [pairs.side])], axis=1)
        wanted = pairs.target * _lengths(raw) if self.architecture.normalise else pairs.target
        return self._folded(*self._ridge(inputs, wanted - raw))

    def with_sigma_of(self, pairs: Pairs) -> Layers:
        """Fit the sigma head anew, where there is one: ridge of the log of the squared error per dimension on z."""
        if not self.architecture.uncertainty:
            return self
        errors = np.square(self.misses(pairs)).mean(axis=1, keepdims=True)
        logs = np.log(np.maximum(errors, np.finfo(np.float32).tiny)).astype(np.float32)
        weight, bias = self._ridge(self.raw(pairs), logs)
        return self._with({"log_sigma2.weight": weight, "log_sigma2.bias": bias})

    def moved(self, step: FloatArray) -> Layers:
        """Add a step, (target dim,) float32, to z; sigma stays as it was."""
        bias = f"{self._last}.bias"
        changed = {bias: self.tensors[bias] + step}
        if self.architecture.uncertainty:
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
