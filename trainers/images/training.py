"""Training of a network on images: settings of all such trainers, the network, and the training loop."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast
from torch import nn
from torch.utils.data import DataLoader

from compatstore import next_step
from compatstore.artifacts.network import PrecisionRequest
from compatstore.boundary import require_fields
from compatstore.encoders.backbones import (
    Backbone,
    FinalNorm,
    FinalReLU,
    GeneralisedMean,
    SmallConvNet,
    SmallVisionTransformer,
    TimmBackbone,
    TorchvisionBackbone,
)
from compatstore.encoders.images import Mode
from compatstore.encoders.network import NetworkEncoder, Preprocessing
from compatstore.errors import InvalidInput
from compatstore.trainers.images.checkpoint import Checkpoint, Resumable
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.pretrained import load_pretrained, pixel_scale, weights_digest
from compatstore.trainers.settings import BatchRows, Count, NotNegative, Positive, at_least
from compatstore.trainers.training import EpochProgress, OnEpoch, require_finite, seeded, warmup_cosine, within_memory

Objective = TypeVar("Objective", bound=nn.Module)
Batches = DataLoader[tuple[torch.Tensor, torch.Tensor]]
# Of training alone: gradients are scaled into the range of float16.
TrainingPrecision = Literal[PrecisionRequest, "float16"]
ImagePooling = Literal["average", "gem"]
ImageOptimiser = Literal["adamw", "sgd"]
_MOMENTUM = 0.9  # of SGD, as in DMU; FCT and FastFill have 0.875


class TrainingRun(NamedTuple):
    """One run of a training: how it is followed, and where it is saved.

    Attributes:
        progress: Called after each epoch.
        checkpoint: File to save to; where it exists, training continues from it.
        fixed: Fingerprint of models and vectors that the objective holds fixed, or "".
    """

    progress: OnEpoch | None
    checkpoint: str | Path | None
    fixed: str = ""


@dataclass(frozen=True, kw_only=True)
class ImageTraining:
    """Settings of every training on images: the loop, and the network.

    Args:
        epochs: Passes over the images, >= 1.
        batch_size: Images a step, >= 2.
        learning_rate: Its peak, > 0.
        weight_decay: >= 0.
        optimiser: "adamw" (Adam if `weight_decay` is 0), or "sgd", with a momentum of 0.9, as in FCT, FastFill and DMU.
        warmup_epochs: Epochs of linear rise from 0, before the cosine back to 0, from 0 to `epochs`; fractions are
            fine.
        precision: Of the network's products; "auto" takes bfloat16 on a CUDA device that has it, and float32
            elsewhere. Weights and losses stay float32.
        workers: Processes that read files, >= 0; arrays in memory need none.
        seed: Of weights, order and augmentation. Equal seeds repeat a run on the same machine and device.
        dim: Length of an embedding, >= 1.
        size: Side of the network's input, in pixels; None takes the height of an array of images. Files need it.
        mode: "L" or "RGB"; None takes "RGB" for files and for arrays with channels, "L" for arrays without.
        width: Channels of the first stage of the small convolutional network, for images of 8 to 64 pixels; half of
            the values of a patch of the small transformer.
        architecture: "" for the small convolutional network, "small-vit" for a small vision transformer, "timm:NAME"
            (or the bare name) or "torchvision:NAME" for larger images.
        pooling: Pooling of the positions of the last stage: "average", or "gem" for their generalised mean with
            p = 3, as in DMU. Networks that end without an average have no choice.
        relu: Embed by the values after a last ReLU, as FCT and FastFill do.
        pretrained: Weights that a network of timm or torchvision starts from: a file (.safetensors, or a state dict of
            torch), a folder that holds one, "package:NAME" for an installed package that ships them, or "download" for
            the published ones, from the library's cache or the network. "" starts from random weights. The layer that
            makes the embedding is always new.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    epochs: Count = 30
    batch_size: BatchRows = 64
    learning_rate: Positive = 2e-3
    weight_decay: NotNegative = 5e-2
    optimiser: ImageOptimiser = "adamw"
    warmup_epochs: NotNegative = 2.0
    precision: TrainingPrecision = "auto"
    workers: Annotated[int, at_least(0)] = 0
    seed: int = 0
    dim: Count
    size: int | None = None
    mode: Mode | None = None
    width: Count = 32
    architecture: str = ""
    pooling: ImagePooling = "average"
    relu: bool = False
    pretrained: str = ""

    def __post_init__(self) -> None:
        small = self.architecture in ("", "small-vit")
        rules = {
            "warmup_epochs from 0 to epochs": self.warmup_epochs <= self.epochs,
            "pretrained with an architecture timm:NAME or torchvision:NAME alone": not (self.pretrained and small),
            "pooling average for small-vit": self.architecture != "small-vit" or self.pooling == "average",
        }
        require_fields(self, rules)

    def preprocessing(self, images: Images) -> Preprocessing:
        """Return the size and mode of the network's input.

        Raises:
            InvalidInput: The images are files and no size is set.
        """
        array = images.images if isinstance(images.images, np.ndarray) else None
        if self.size is None and array is None:
            fix = f"Set {next_step.setting('size', 64)}, say."
            raise InvalidInput("train on files", expected="a size in pixels", found="none", fix=fix)
        grey = array is not None and (array.ndim == 3 or array.shape[3] == 1)
        height = 0 if array is None else array.shape[1]
        plain = Preprocessing(size=self.size or height, mode=self.mode or ("L" if grey else "RGB"))
        if not self.pretrained:
            return plain
        mean, std = pixel_scale(self._network(plain))
        return replace(plain, mean=mean, std=std)

    def require_readable(self, images: Images, held_out: Images | None) -> Preprocessing:
        """Read every file once, so that a corrupt file is reported before training; return the preprocessing.

        Raises:
            SourceError: Some files cannot be read.
        """
        preprocessing = self.preprocessing(images)
        for some in (images, held_out):
            if some is not None:
                some.require_readable(preprocessing.mode)
        return preprocessing

    def backbone(self, preprocessing: Preprocessing, *, final_norm: bool = False) -> Backbone:
        """Describe the network, with a BatchNorm after it where `final_norm`."""
        network = self._network(preprocessing)
        network = GeneralisedMean(inner=network) if self.pooling == "gem" else network
        network = FinalReLU(inner=network) if self.relu else network
        return FinalNorm(inner=network) if final_norm else network

    def start(self, backbone: Backbone) -> nn.Module:
        """Build a network with the weights that training starts from.

        Raises:
            NotFound: The weights cannot be found.
            CorruptArtifact: The weights cannot be read.
            Incompatible: The weights are another network's.
        """
        network = backbone.build()
        if self.pretrained:
            load_pretrained(network, backbone, self.pretrained)
        return network

    def _network(self, preprocessing: Preprocessing) -> Backbone:
        size, dim, channels = preprocessing.size, self.dim, preprocessing.channels
        library, _, name = self.architecture.rpartition(":")
        if self.architecture == "small-vit":
            return SmallVisionTransformer(size=size, dim=dim, channels=channels, width=2 * self.width)
        if library == "torchvision":
            return TorchvisionBackbone(name=name, dim=dim, channels=channels)
        if self.architecture:
            return TimmBackbone(name=self.architecture.removeprefix("timm:"), dim=dim, channels=channels)
        return SmallConvNet(size=size, dim=dim, channels=channels, width=self.width)

    def train_network(
        self,
        make: Callable[[nn.Module], Objective],
        images: Images,
        preprocessing: Preprocessing,
        backbone: Backbone,
        run: TrainingRun,
    ) -> tuple[Objective, dict[str, float]]:
        """Train a network within an objective, from random weights or those of `pretrained`.

        Args:
            make: Makes the objective around the network: (pixels (b, c, s, s) uint8, labels (b,)) -> scalar loss.
            images: Training images.
            preprocessing: From images to the input of the network.
            backbone: Of the network.
            run: How it is followed, and where it is saved.

        Returns:
            The objective as training left it; "loss" (mean of the last epoch), "images" and "seconds".

        Raises:
            InvalidInput: The network or a batch does not fit into memory, or the loss became NaN or infinite.
            Incompatible: The checkpoint is of other settings, images or other fixed models.
            CorruptArtifact: The checkpoint is damaged, or as of `start`.
        """
        start = time.perf_counter()
        with seeded(self.seed), within_memory(f"train {type(self).__name__}"):
            objective = make(self.start(backbone))
            batches = images.batches(preprocessing, size=self.batch_size, seed=self.seed, workers=self.workers)
            saved = None
            if run.checkpoint is not None:
                belongs_to = {"trainer": type(self).__name__, **deciding_settings(self)}
                belongs_to |= {"images": images.fingerprint, "source": run.fixed}
                saved = Checkpoint(path=Path(run.checkpoint), belongs_to=belongs_to)
            loss = train(objective, batches, self, run.progress, saved)
        return objective, {"loss": loss, "images": len(images), "seconds": time.perf_counter() - start}


def deciding_settings(settings: ImageTraining) -> dict[str, object]:
    """List the settings that decide the result of a training; JSON-able.

    The number of reading processes changes no result. Of weights to start from the content counts, and not the place.
    """
    values = asdict(settings) | {"pretrained": weights_digest(settings.pretrained)}
    return {name: value for name, value in values.items() if name != "workers"}


def encoder_of(
    backbone: Backbone, preprocessing: Preprocessing, network: nn.Module, *, normalise: bool
) -> NetworkEncoder:
    """Make an encoder of a copy of a trained network's weights."""
    weights = copy.deepcopy(network.state_dict())
    return NetworkEncoder(backbone, preprocessing, weights=weights, normalise=normalise)


def train(
    objective: nn.Module,
    batches: Batches,
    settings: ImageTraining,
    progress: OnEpoch | None = None,
    checkpoint: Checkpoint | None = None,
) -> float:
    """Minimise `objective(*batch)`, a scalar, over its parameters that require a gradient, in place.

    Networks, heads and loss parameters are parts of `objective`, so that accelerate distributes all of them. With a
    checkpoint, a killed training continues after the last whole epoch, and on the CPU ends with exactly the weights of
    a training that was not killed.

    Args:
        objective: (a batch) -> scalar loss; left on the CPU, in evaluation mode.
        batches: Training batches, in an order of its own generator; each item is the arguments of one call.
        settings: How.
        progress: Called after each epoch, in the main process.
        checkpoint: Saved to after each epoch; a saved training is continued.

    Returns:
        Mean loss of the last epoch.

    Raises:
        InvalidInput: The loss became NaN or infinite, or there are more processes than batches.
        Incompatible: The checkpoint is of another training.
        CorruptArtifact: The checkpoint is damaged.
    """
    order, start = batches.generator, time.perf_counter()
    accelerator = _accelerator(settings.precision)
    # Convolutions of small networks are faster so: 1.2 times in float32 on one core, 1.4 times in bfloat16.
    objective.to(memory_format=torch.channels_last)
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    kind = partial(torch.optim.SGD, momentum=_MOMENTUM) if settings.optimiser == "sgd" else torch.optim.AdamW
    # Fused is one launch a step.
    optimiser: torch.optim.Optimizer = kind(
        trained, settings.learning_rate, weight_decay=settings.weight_decay, fused=accelerator.device.type == "cuda"
    )
    model, optimiser, batches = accelerator.prepare(objective, optimiser, batches)
    state = Resumable(objective, optimiser, order, accelerator.scaler)
    done, loss = state.resume(checkpoint) if checkpoint else (0, 0.0)
    steps = len(batches)
    if not steps:
        expected, found = f"a batch for each of {accelerator.num_processes} processes", "fewer batches an epoch"
        raise InvalidInput("train on images", expected=expected, found=found, fix="Lower the batch size.")
    for epoch in range(done, settings.epochs):
        model.train()
        losses = []
        for step, batch in enumerate(batches, epoch * steps):
            # A function of the step alone, so that it has no state to save.
            share = warmup_cosine(step, steps=settings.epochs * steps, warmup=settings.warmup_epochs * steps)
            optimiser.param_groups[0]["lr"] = settings.learning_rate * share
            with accelerator.autocast():
                of_batch: torch.Tensor = model(*batch)
            accelerator.backward(of_batch)
            optimiser.step()
            optimiser.zero_grad()
            losses.append(of_batch.detach())
        loss = accelerator.reduce(torch.stack(losses).mean(), reduction="mean").item()
        require_finite("train on images", loss, epoch + 1)
        if checkpoint and accelerator.is_main_process:
            state.save(checkpoint, epoch + 1, loss)
        if progress is not None and accelerator.is_main_process:
            seconds, epochs = time.perf_counter() - start, settings.epochs
            progress(EpochProgress("model", epoch + 1, epochs, loss, seconds))
    # After the last step each process has statistics of its own; all processes return those of the first.
    for buffer in objective.buffers():
        broadcast(buffer)
    objective.cpu().eval()
    return loss


def _accelerator(precision: TrainingPrecision) -> Accelerator:
    """Make an accelerator; it has one precision for the whole process, and later trainings may have another."""
    if precision == "auto":
        precision = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float32"
    named = {"float32": "no", "float16": "fp16", "bfloat16": "bf16"}[precision]
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != named:
        AcceleratorState._reset_state()  # processes and devices stay as they are
    return Accelerator(mixed_precision=named)
