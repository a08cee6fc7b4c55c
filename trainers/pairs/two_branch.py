"""Networks on pairs: the one that is trained, its dense layers as stored, and the target's frozen classifier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from compatstore.arrays import FloatArray
from compatstore.artifacts.architecture import Architecture
from compatstore.errors import InvalidInput, first_offenders
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.training import warmup_cosine

Tensors = dict[str, torch.Tensor]


class Prediction(NamedTuple):
    """Predictions of a network for n items.

    Attributes:
        vectors: (n, output_dim), of unit length if the architecture normalises; but not in training if the length is
            the uncertainty.
        log_sigma2: (n,), or None for an architecture without uncertainty.
    """

    vectors: torch.Tensor
    log_sigma2: torch.Tensor | None


class TwoBranch(nn.Module):
    """Branches for source and side-information, a mixer on both (FCT, section 3.3 and appendix D.1).

    Every layer is Linear-BatchNorm-ReLU, except the linear output. With branches of 256, 256 and a mixer of 2048, 2048
    it is the paper's network: 5.7 million parameters at 128/128/128. Dropout and noise are active in training alone,
    so that the stored network is plain dense layers.

    Args:
        architecture: Widths and options.
        bias: True if the linear layers before a batch normalisation have a bias; the output always has one.
        norm: True if layers have a batch normalisation.
        dropout: Share of the values that each layer drops, in [0, 1).
        noise: Deviation of the Gaussian noise on the inputs, relative to their own deviation in the batch, >= 0.
        gain: Multiplies the output, > 0: the length of the vectors that a step of the optimiser moves by. sigma^2 reads
            the output before that.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        bias: bool = True,
        norm: bool = True,
        dropout: float = 0.0,
        noise: float = 0.0,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.architecture, self.noise, self.gain = architecture, noise, gain
        source_dim, side_dim, output_dim = architecture.source_dim, architecture.side_dim, architecture.output_dim

        def stack(*widths: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for fan_in, fan_out in pairwise(widths):
                layers.append(nn.Linear(fan_in, fan_out, bias=bias))
                layers += [nn.BatchNorm1d(fan_out)] if norm else []
                layers.append(nn.ReLU())
                layers += [nn.Dropout(dropout)] if dropout else []
            return nn.Sequential(*layers)

        self.source = stack(source_dim, *architecture.source_branch)
        self.side = None if side_dim is None else stack(side_dim, *architecture.side_branch)
        self.mixer = stack(architecture.joined_dim, *architecture.mixer)
        self.output = nn.Linear((architecture.joined_dim, *architecture.mixer)[-1], output_dim)
        self.skip = nn.Linear(source_dim, output_dim, bias=False) if architecture.skip else None
        has_skip_side = architecture.skip and side_dim is not None
        self.skip_side = nn.Linear(side_dim or 0, output_dim, bias=False) if has_skip_side else None
        self.log_sigma2 = nn.Linear(output_dim, 1) if architecture.uncertainty is True else None

    def forward(self, source: torch.Tensor, side: torch.Tensor | None) -> Prediction:
        """Map source vectors (n, source_dim) and side-information (n, side_dim) or None."""
        source, side = self._noisy(source), None if side is None else self._noisy(side)
        features = self.source(source)
        if self.side is not None:
            features = torch.cat([features, self.side(side)], dim=1)
        features = self.mixer(features)
        # The layers of the output stay float32 where others are bfloat16, as in the stored network.
        with torch.autocast(source.device.type, enabled=False):
            return self._output(features.float(), source, side)

    def _output(self, features: torch.Tensor, source: torch.Tensor, side: torch.Tensor | None) -> Prediction:
        vectors = self.output(features)
        if self.skip is not None:
            vectors = vectors + self.skip(source)
        if self.skip_side is not None:
            vectors = vectors + self.skip_side(side)
        log_sigma2 = None if self.log_sigma2 is None else self.log_sigma2(vectors)[:, 0]
        vectors = self.gain * vectors
        if self.architecture.uncertainty == "length":
            if self.training:  # the length is learned
                return Prediction(vectors, None)
            log_sigma2 = -2 * vectors.norm(dim=1).clamp_min(torch.finfo(torch.float32).tiny).log()
        if self.architecture.normalise:
            vectors = nn.functional.normalize(vectors, dim=1)
        return Prediction(vectors, log_sigma2)

    def _noisy(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training or not self.noise:
            return values
        return values + self.noise * values.std(dim=0) * torch.randn_like(values)


def fold(model: TwoBranch) -> Tensors:
    """Return the model in evaluation mode as dense layers: batch normalisation is folded into them, in float64.

    Returns:
        Tensors named as in `Architecture.shapes`, float64 on the CPU; weights (out, in).
    """
    parts = {"source": model.source, "mixer": model.mixer}
    if model.side is not None:
        parts["side"] = model.side
    tensors = {name: value for part, stack in parts.items() for name, value in _folded(part, stack)}
    depth = len(model.architecture.mixer)
    tensors[f"mixer.{depth}.weight"] = model.gain * _exact(model.output.weight)
    tensors[f"mixer.{depth}.bias"] = model.gain * _exact(model.output.bias)
    if model.skip is not None:
        tensors["skip.weight"] = model.gain * _exact(model.skip.weight)
    if model.skip_side is not None:
        tensors["skip_side.weight"] = model.gain * _exact(model.skip_side.weight)
    if model.log_sigma2 is not None:
        tensors["log_sigma2.weight"] = _exact(model.log_sigma2.weight) / model.gain
        tensors["log_sigma2.bias"] = _exact(model.log_sigma2.bias)
    return tensors


def _folded(part: str, stack: nn.Sequential) -> Iterator[tuple[str, torch.Tensor]]:
    linears = [module for module in stack if isinstance(module, nn.Linear)]
    norms: list[nn.BatchNorm1d | None] = [module for module in stack if isinstance(module, nn.BatchNorm1d)]
    for index, (linear, norm) in enumerate(zip(linears, norms or [None] * len(linears), strict=True)):
        weight = _exact(linear.weight)
        bias = torch.zeros(len(weight), dtype=weight.dtype) if linear.bias is None else _exact(linear.bias)
        if norm is not None:
            assert norm.running_mean is not None, "built with running statistics"
            assert norm.running_var is not None, "built with running statistics"
            scale = _exact(norm.weight) / torch.sqrt(_exact(norm.running_var) + norm.eps)
            shift = _exact(norm.bias) - _exact(norm.running_mean) * scale
            weight, bias = weight * scale[:, None], bias * scale + shift
        yield f"{part}.{index}.weight", weight
        yield f"{part}.{index}.bias", bias


def _exact(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().double()


# Class of a label that has no row in the head; the loss of its rows is 0.
UNKNOWN = -1

# Steps and rows a step of a fitted head: seconds for a thousand classes on the CPU.
_STEPS, _ROWS = 600, 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Head:
    """A classifier without bias: the logits of vectors v are `v @ rows.T`.

    Args:
        rows: (classes, target dim) float32.
        names: (classes,), sorted: the label of each row.
        origin: "given" or how it was fitted, for the manifest.
    """

    rows: FloatArray
    names: npt.NDArray[np.generic]
    origin: str

    def classes(self, labels: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
        """Return the row of each label, (n,); -1 for a label that has none."""
        if labels.dtype.kind != self.names.dtype.kind and not {labels.dtype.kind, self.names.dtype.kind} <= set("iu"):
            return np.full(len(labels), UNKNOWN, np.int64)
        found = np.minimum(np.searchsorted(self.names, labels), len(self.names) - 1)
        return np.where(self.names[found] == labels, found, UNKNOWN).astype(np.int64)


def given_head(pairs: Pairs) -> Head:
    """Return the target model's own head; label i belongs to its row i.

    Args:
        pairs: With labels and a head.

    Raises:
        InvalidInput: They lack either, or a label is no row of the head.
    """
    if pairs.labels is None or pairs.head is None:
        raise InvalidInput("train through a head", expected="pairs with labels and a head", found="neither or one")
    head = Head(rows=pairs.head, names=np.arange(len(pairs.head)), origin="given")
    strangers = np.unique(pairs.labels[head.classes(pairs.labels) == UNKNOWN]).tolist()
    if strangers:
        expected = f"labels from 0 to {len(head.rows) - 1}, rows of the head"
        fix = 'Relabel the pairs, or pass head="fitted" to fit a head on these labels.'
        found = first_offenders(strangers)
        raise InvalidInput("train through the target's head", expected=expected, found=found, fix=fix)
    return head


def class_means(pairs: Pairs) -> Head:
    """Make a head of the mean target vector of each label, of unit length: for spaces of unit vectors.

    Raises:
        InvalidInput: The pairs have no labels, or fewer than two.
    """
    names, classes = _labels(pairs)
    sums = np.zeros((len(names), pairs.target.shape[1]))
    np.add.at(sums, classes, pairs.target)
    lengths = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return Head(rows=(sums / lengths).astype(np.float32), names=names, origin="fitted: means of classes")


def logistic_regression(pairs: Pairs, *, label_smoothing: float, seed: int, device: torch.device) -> Head:
    """Fit a head on the target vectors by cross-entropy: Adam on random batches, a cosine to 0.

    Args:
        pairs: With labels.
        label_smoothing: Of the cross-entropy; above 0 it also keeps the rows finite where classes are separable.
        seed: Of the batches.
        device: Device of the fit.

    Raises:
        InvalidInput: The pairs have no labels, or fewer than two.
    """
    names, classes = _labels(pairs)
    # Divided by their root mean square, vectors of any scale take the same learning rate.
    scale = max(float(np.sqrt(np.square(pairs.target).mean())), float(np.finfo(np.float32).tiny))
    target, truth = torch.from_numpy(pairs.target / scale).to(device), torch.from_numpy(classes).to(device)
    weight = torch.zeros(len(names), target.shape[1], device=device, requires_grad=True)
    optimiser, order = torch.optim.Adam([weight]), torch.Generator().manual_seed(seed)
    for step in range(_STEPS):
        optimiser.param_groups[0]["lr"] = 0.02 * warmup_cosine(step, steps=_STEPS, warmup=_STEPS / 20)
        rows = torch.randint(len(target), (min(_ROWS, len(target)),), generator=order).to(device)
        loss = functional.cross_entropy(target[rows] @ weight.T, truth[rows], label_smoothing=label_smoothing)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return Head(rows=(weight.detach() / scale).cpu().numpy(), names=names, origin="fitted: logistic regression")


def _labels(pairs: Pairs) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.int64]]:
    if pairs.labels is None:
        raise InvalidInput("fit a head", expected="pairs with labels", found="none")
    names, classes = np.unique(pairs.labels, return_inverse=True)
    if len(names) < 2:
        raise InvalidInput("fit a head", expected="labels of two classes", found=f"{names.tolist()}")
    return names, classes.astype(np.int64)
