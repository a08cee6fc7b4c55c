"""RACT: a contrastive loss between an image's target and source embeddings, against other classes in both spaces."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from compatstore.trainers.images.class_head import ClassHead
from compatstore.trainers.images.compatible import CompatibleTraining, Views
from compatstore.trainers.images.source_model import SourceKnowledge
from compatstore.trainers.settings import NotNegative, Positive


@dataclass(frozen=True, kw_only=True)
class RACT(CompatibleTraining):
    """Regression-alleviating compatible training (Zhang et al., arXiv 2201.09724), also called Contrast.

    Its gallery is backfilled in the order of the source head's entropy: policy "entropy".

    Args:
        temperature: Of the contrast, > 0: 0.01 in public code, 0.5 in FastFill's implementation.
        weight: Of the contrast, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    temperature: Positive = 0.01
    weight: NotNegative = 1.0

    def term(self, known: SourceKnowledge, head: ClassHead) -> nn.Module:
        """Contrast with the source's embeddings of the same views."""
        return _Contrast(self.temperature, self.weight)


class _Contrast(nn.Module):
    def __init__(self, temperature: float, weight: float) -> None:
        super().__init__()
        self.temperature, self.weight = temperature, weight

    def forward(self, views: Views) -> torch.Tensor:
        return self.weight * contrast(views.embeddings, views.source, views.labels, self.temperature)


def contrast(target: torch.Tensor, source: torch.Tensor, labels: torch.Tensor, temperature: float) -> torch.Tensor:
    """InfoNCE over both spaces.

    With cosines c, `-log e^{c(t_i, s_i)/T} / (e^{c(t_i, s_i)/T} + sum_k e^{c(t_i, s_k)/T} + e^{c(t_i, t_k)/T})`, k over
    the items of other classes than i's.

    Args:
        target: (b, dim) float32.
        source: (b, dim) float32, of the same items.
        labels: (b,) int64.
        temperature: T.

    Returns:
        Mean over the batch, ().
    """
    target, source = functional.normalize(target, dim=1), functional.normalize(source, dim=1)
    across, within = target @ source.T / temperature, target @ target.T / temperature
    same = labels[:, None] == labels
    negatives = torch.cat([across, within], dim=1).masked_fill(same.repeat(1, 2), -torch.inf)
    logits = torch.cat([across.diagonal()[:, None], negatives], dim=1)
    return functional.cross_entropy(logits, torch.zeros_like(labels))
