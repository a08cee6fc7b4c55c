"""The frozen classifier of the target space: the target model's own, or one fitted on its embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from compatstore.arrays import FloatArray
from compatstore.errors import InvalidInput, first_offenders
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.training import warmup_cosine

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
        raise InvalidInput(
            "train through the target's head",
            expected=f"labels from 0 to {len(head.rows) - 1}, rows of the head",
            found=first_offenders(strangers),
            fix='Relabel the pairs, or pass head="fitted" to fit a head on these labels.',
        )
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
        device: Where to fit.

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
