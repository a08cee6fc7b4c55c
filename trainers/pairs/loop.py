"""The training loop of every method on pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from compatstore.artifacts.network import DEVICE, Precision
from compatstore.boundary import require_fields
from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.losses import Batch, Loss
from compatstore.trainers.pairs.two_branch import TwoBranch, freeze_statistics
from compatstore.trainers.schedule import warmup_cosine

Optimiser = Literal["adam", "adamw"]

# Rows of the held-out part that the error after each epoch is taken on.
_WATCHED = 4096


@dataclass(frozen=True, kw_only=True)
class PairTraining:
    """How a network is trained on pairs; the defaults are FCT's.

    Args:
        epochs: Passes over the pairs, >= 1.
        optimiser: "adam", whose weight decay is an L2 penalty, or "adamw", whose decay is apart from the gradient.
        learning_rate: At the end of the warm-up, > 0.
        weight_decay: Of the optimiser, >= 0.
        batch_size: Largest batch, >= 2; batches of an epoch are of equal size, up to one row.
        warmup_epochs: Epochs of linear rise, before a cosine to 0; None is 1/16 of the epochs (5 of 80).
        freeze_statistics_at: Epochs after which the running statistics of batch normalisation are held, while its
            weights go on learning, >= 1; None is half of the epochs (40 of 80).
        seed: Of initial weights, order of rows and held-out rows. On the CPU, equal seeds give equal weights.
        clip_norm: Largest length of the gradient of a step, > 0; None does not clip.
        precision: "float32", or "bfloat16" for the products of the hidden layers; weights and losses stay float32.
        device: "cpu", "cuda" or "cuda:<n>"; None takes CUDA where there is one. All pairs are moved there at once.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    epochs: int = 80
    optimiser: Optimiser = "adam"
    learning_rate: float = 5e-4
    weight_decay: float = 2**-15
    batch_size: int = 1024
    warmup_epochs: float | None = None
    freeze_statistics_at: int | None = None
    seed: int = 0
    clip_norm: float | None = None
    precision: Precision = "float32"
    device: str | None = None

    def __post_init__(self) -> None:
        require_fields(self)
        rules = {
            "epochs >= 1": self.epochs >= 1,
            f"optimiser of {get_args(Optimiser)}": self.optimiser in get_args(Optimiser),
            "learning_rate > 0": self.learning_rate > 0,
            "weight_decay >= 0": self.weight_decay >= 0,
            "batch_size >= 2": self.batch_size >= 2,
            "warmup_epochs >= 0": self.warmup >= 0,
            "freeze_statistics_at >= 1": self.freeze_after >= 1,
            "clip_norm > 0": self.clip_norm is None or self.clip_norm > 0,
            f"precision of {get_args(Precision)}": self.precision in get_args(Precision),
            "device cpu, cuda or cuda:<n>": self.device is None or DEVICE.fullmatch(self.device) is not None,
        }
        require_settings(type(self).__name__, rules)

    @property
    def warmup(self) -> float:
        """Epochs of the warm-up."""
        return self.epochs / 16 if self.warmup_epochs is None else self.warmup_epochs

    @property
    def freeze_after(self) -> int:
        """Epochs after which the running statistics are held."""
        return math.ceil(self.epochs / 2) if self.freeze_statistics_at is None else self.freeze_statistics_at

    @property
    def torch_device(self) -> torch.device:
        """Where to train."""
        return torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def optimiser_of(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make the optimiser of a model's weights."""
        kind = torch.optim.Adam if self.optimiser == "adam" else torch.optim.AdamW
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        return kind(weights, lr=self.learning_rate, weight_decay=self.weight_decay, fused=True)


@dataclass(frozen=True, kw_only=True)
class PairProgress:
    """Where training is, after an epoch.

    Args:
        network: Which network is being trained, "h" or "g".
        epoch: Epochs done, from 1.
        epochs: Epochs in all.
        loss: Mean loss of this epoch.
        held_out_loss: Loss on rows held out (the first 4,096 of them), or None where none are.
        note: What the method could not do with these pairs, or "".
    """

    network: str
    epoch: int
    epochs: int
    loss: float
    held_out_loss: float | None
    note: str = ""


Report = Callable[[PairProgress], None]


def train_on_pairs(
    model: TwoBranch,
    pairs: Batch,
    training: PairTraining,
    loss: Loss,
    *,
    held_out: Batch | None = None,
    network: str = "h",
    note: str = "",
    report: Report | None = None,
) -> float:
    """Train a model in place; it ends on the CPU in evaluation mode.

    Args:
        model: What to train.
        pairs: All rows, at least 2.
        training: How.
        loss: What to minimise, of each row; a step takes the mean over its batch.
        held_out: Rows that the report measures the loss on; they change nothing.
        network: Name for the report.
        note: For the report.
        report: Called after each epoch.

    Returns:
        Mean loss of the last epoch.

    Raises:
        InvalidInput: Fewer than 2 rows, or the loss became NaN or infinite.
    """
    parts, device = _parts(len(pairs), training.batch_size), training.torch_device
    model.to(device)
    pairs = pairs.to(device)
    watched = None if held_out is None else held_out.take(torch.arange(min(len(held_out), _WATCHED))).to(device)
    optimiser = training.optimiser_of(model)
    order = torch.Generator().manual_seed(training.seed)
    steps, step, mean = training.epochs * parts, 0, math.nan
    for epoch in range(1, training.epochs + 1):
        model.train()
        if epoch > training.freeze_after:
            freeze_statistics(model)
        total = torch.zeros((), device=device)
        for rows in torch.randperm(len(pairs), generator=order).tensor_split(parts):
            share = warmup_cosine(step, steps=steps, warmup=training.warmup * parts)
            optimiser.param_groups[0]["lr"] = training.learning_rate * share
            total += _step(model, pairs.take(rows.to(device)), training, loss, optimiser) * len(rows)
            step += 1
        mean = _require_finite(total.item() / len(pairs), epoch)
        if report is not None:
            seen = None if watched is None else evaluate(model, watched, loss)
            epochs = training.epochs
            report(PairProgress(network=network, epoch=epoch, epochs=epochs, loss=mean, held_out_loss=seen, note=note))
    model.cpu().eval()
    return mean


def evaluate(model: TwoBranch, pairs: Batch, loss: Loss) -> float:
    """Return the mean loss in evaluation mode; changes no weights or statistics."""
    model.eval()
    with torch.inference_mode():
        return loss(model(pairs.source, pairs.side), pairs).mean().item()


def _step(
    model: TwoBranch, batch: Batch, training: PairTraining, loss: Loss, optimiser: torch.optim.Optimizer
) -> torch.Tensor:
    with torch.autocast(batch.source.device.type, torch.bfloat16, enabled=training.precision == "bfloat16"):
        prediction = model(batch.source, batch.side)
    value = loss(prediction, batch).mean()
    optimiser.zero_grad()
    value.backward()  # type: ignore[no-untyped-call]
    if training.clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
    optimiser.step()
    return value.detach()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch within a block, and give the caller's random state back after it."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def require_settings(owner: str, rules: dict[str, bool]) -> None:
    """Refuse settings out of their range.

    Raises:
        InvalidInput: Names the rules that do not hold.
    """
    broken = [rule for rule, holds in rules.items() if not holds]
    if broken:
        raise InvalidInput(f"set up {owner}", expected=", ".join(broken), found="other values")


def _parts(rows: int, batch_size: int) -> int:
    # Equal parts, none of one row: batch normalisation has no statistics of a single row.
    if rows < 2:
        raise InvalidInput("train on pairs", expected="at least 2 rows to train on", found=str(rows))
    return max(1, min(math.ceil(rows / batch_size), rows // 2))


def _require_finite(loss: float, epoch: int) -> float:
    if not math.isfinite(loss):
        raise InvalidInput(
            "train on pairs", expected="a finite loss", found=f"{loss} in epoch {epoch}", fix="Lower learning_rate."
        )
    return loss
