"""SimCLR: side-information from images alone, without labels."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from pytorch_metric_learning import losses
from torch import nn

from compatstore.encoders.network import NetworkEncoder, Preprocessing
from compatstore.trainers.augmentation import Augmentation
from compatstore.trainers.images import Images
from compatstore.trainers.loop import Report, seeded, train
from compatstore.trainers.recipe import Recipe, encoder_of


@dataclass(frozen=True, kw_only=True)
class SimCLR(Recipe):
    """Train a network so that two views of one image are close, and views of other images far (NT-Xent).

    The network ends in a BatchNorm and has no projection head after it, as the side-information models of FCT.

    Args:
        temperature: Divides the cosines, > 0.
        augmentation: How views are drawn.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    dim: int = 64
    batch_size: int = 256
    temperature: float = 0.2
    augmentation: Augmentation = field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require({"temperature > 0": self.temperature > 0})

    def fit(self, images: Images, *, report: Report | None = None) -> NetworkEncoder:
        """Train from random weights; labels are not looked at.

        Raises:
            SourceError: Some files cannot be read.
        """
        preprocessing = self.preprocessing(images)
        images.require_readable(preprocessing.mode)
        backbone = self.backbone(preprocessing, final_norm=True)
        with seeded(self.seed):
            objective = _TwoViews(self, backbone.build(), preprocessing)
            batches = images.batches(preprocessing, size=self.batch_size, seed=self.seed, workers=self.workers)
            train(objective, batches, self, report)
        return encoder_of(backbone, preprocessing, objective.network, normalise=False)


class _TwoViews(nn.Module):
    """The loss of a batch: (b, c, s, s) uint8, labels ignored -> scalar."""

    def __init__(self, settings: SimCLR, network: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.network, self.preprocessing, self.augmentation = network, preprocessing, settings.augmentation
        # With one positive an anchor SupCon is NT-Xent; the library's NTXentLoss compares every positive pair with
        # every negative pair, which costs the third power of the batch (14 s an epoch instead of 0.3 on digits).
        self.loss = losses.SelfSupervisedLoss(losses.SupConLoss(temperature=settings.temperature))

    def forward(self, pixels: torch.Tensor, _labels: torch.Tensor) -> torch.Tensor:
        views = torch.cat([self.augmentation(pixels), self.augmentation(pixels)])
        one, other = self.network(self.preprocessing.scale(views)).chunk(2)
        loss: torch.Tensor = self.loss(one, other)
        return loss
