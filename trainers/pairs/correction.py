"""Correction of a given transform by pairs that it was not trained on: a candidate of self-training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.network import Execution, Network
from compatstore.boundary import checked, checked_fields
from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.ridge import Ridge
from compatstore.trainers.training import OnEpoch

SUFFIX = "+correction"

# The largest leaves almost nothing but a shift: with few rows the transform as it is may be the best estimate.
PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Correction:
    """h'(x) = z + B [z; x] + c, scaled to unit length if the target is; z is h's output before that scaling.

    B and c are the ridge solution for the errors of h on the pairs: the fewer pairs, the smaller the correction. It
    folds into h's layers, so that the result is as fast as h. A sigma head is fitted again, on the log of the remaining
    error; sigma^2 by the length of a vector is kept.

    Args:
        current: The transform h. Pairs that it was trained on are left out.
    """

    current: Artifact = field(repr=False)

    @checked
    def fit(self, pairs: Pairs, progress: OnEpoch | None = None) -> Artifact:
        """Correct the transform.

        Args:
            pairs: Training pairs.
            progress: Not called: there are no epochs.

        Returns:
            A ForwardTransform.

        Raises:
            InvalidInput: There are too few pairs that it was not trained on, they lack side-information, or `current`
                is no forward transform.
        """
        if "h" not in self.current.manifest.networks or self.current.kind != "ForwardTransform":
            raise InvalidInput("correct a transform", expected="a ForwardTransform", found=self.current.kind)
        manifest, known = self.current.manifest, self.current.seen
        architecture = manifest.networks["h"]
        if architecture.side_dim is not None and pairs.side is None:
            raise InvalidInput("correct a transform", expected="pairs with side-information", found="none")
        new = pairs if known is None else pairs.subset(np.flatnonzero(~np.isin(pairs.seen, known)))
        rows = Pairs(new.source, new.target, side=new.side if architecture.side_dim is not None else None)
        tensors = {name[2:]: tensor for name, tensor in self.current.tensors.items() if name.startswith("h.")}
        layers = _Layers(architecture, tensors).corrected(rows).with_sigma_of(rows)
        others = {name: tensor for name, tensor in self.current.tensors.items() if not name.startswith("h.")}
        return Artifact.create(
            "ForwardTransform",
            method=f"{manifest.method.removesuffix(SUFFIX)}{SUFFIX}",
            source=manifest.source,
            target=manifest.target,
            side_source=manifest.side_source,
            side_target=manifest.side_target,
            networks={**manifest.networks, "h": layers.architecture},
            tensors=others | {f"h.{name}": tensor for name, tensor in layers.tensors.items()},
            settings={**manifest.settings, "of": self.current.id},
            seen=None if known is None else np.union1d(known, pairs.seen),
        )


@dataclass(frozen=True, eq=False)
class _Layers:
    """The network of h: its architecture, and its weights by their names in it."""

    architecture: Architecture
    tensors: Mapping[str, FloatArray]

    def raw(self, pairs: Pairs) -> FloatArray:
        """z: (n, target dim) float32."""
        by_head = self.architecture.uncertainty is True
        plain = replace(self.architecture, normalise=False, uncertainty=by_head)
        return Network(plain, dict(self.tensors)).run(pairs.source, pairs.side, Execution())[0]

    def corrected(self, pairs: Pairs) -> _Layers:
        """Add B [z; x] + c, which folds into the last layer and a linear map of the input."""
        raw, dim, layers = self.raw(pairs), self.architecture.output_dim, self.architecture
        inputs = np.concatenate([raw, pairs.source, *([] if pairs.side is None else [pairs.side])], axis=1)
        wanted = pairs.target * np.linalg.norm(raw, axis=1, keepdims=True) if layers.normalise else pairs.target
        weight, bias = _ridge(inputs, wanted - raw)
        gain: FloatArray = np.eye(dim, dtype=np.float32) + weight[:, :dim]
        last = f"mixer.{len(layers.mixer)}"
        folded: dict[str, FloatArray] = {
            f"{last}.weight": gain @ self.tensors[f"{last}.weight"],
            f"{last}.bias": gain @ self.tensors[f"{last}.bias"] + bias,
            "skip.weight": weight[:, dim : dim + layers.source_dim],
        }
        if layers.side_dim is not None:
            folded["skip_side.weight"] = weight[:, dim + layers.source_dim :]
        if layers.skip:
            folded |= {name: folded[name] + gain @ self.tensors[name] for name in folded if name.startswith("skip")}
        return _Layers(replace(layers, skip=True), {**self.tensors, **folded})

    def with_sigma_of(self, pairs: Pairs) -> _Layers:
        """Fit the sigma head again, if there is one: ridge of the log of the squared error per dimension on z."""
        if self.architecture.uncertainty is not True:
            return self
        raw = self.raw(pairs)
        made = raw / np.linalg.norm(raw, axis=1, keepdims=True) if self.architecture.normalise else raw
        errors = np.square(pairs.target - made).mean(axis=1, keepdims=True)
        weight, bias = _ridge(raw, np.log(np.maximum(errors, np.finfo(np.float32).tiny)).astype(np.float32))
        return replace(self, tensors={**self.tensors, "log_sigma2.weight": weight, "log_sigma2.bias": bias})


def _ridge(inputs: FloatArray, outputs: FloatArray) -> tuple[FloatArray, FloatArray]:
    ridge = Ridge(penalties=PENALTIES).solve(Pairs(inputs, outputs)).tensors
    return ridge["mixer.0.weight"].astype(np.float32), ridge["mixer.0.bias"].astype(np.float32)
