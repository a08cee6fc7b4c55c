"""Vectors of a source's space that an earlier model's were adapted to: what a gallery holds that was refreshed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import nn

from compatstore.arrays import FloatArray
from compatstore.artifacts import Artifact
from compatstore.boundary import checked, checked_fields, require_fields
from compatstore.digests import fingerprint
from compatstore.errors import Incompatible, InvalidInput
from compatstore.trainers.images.images import Images
from compatstore.trainers.images.source_model import FrozenSource
from compatstore.trainers.images.trained_model import TrainedModel
from compatstore.versions import Metric


def _adapts_vectors_alone(adaptation: object) -> bool:
    """Whether it is an artifact that transforms a gallery without side-information."""
    if not isinstance(adaptation, Artifact):
        return False
    return adaptation.behaviour.acts_on == "gallery" and adaptation.manifest.side_source is None


@checked_fields
@checked
@dataclass(frozen=True, eq=False)
class Refreshed:
    """How a gallery was refreshed: `a_k(...a_1(model(x)))`, vectors of another model's space that it did not make.

    Args:
        model: The model of the gallery's natives.
        adaptations: The transforms that were applied to them, in this order, one or more; none reads side-information.

    Raises:
        InvalidInput: There is none, or one that does not transform a gallery by vectors alone.
    """

    model: TrainedModel
    adaptations: Sequence[Artifact]

    def __post_init__(self) -> None:
        require_fields(self)
        given = list(self.adaptations)
        if not given or not all(map(_adapts_vectors_alone, given)):
            found = ", ".join(getattr(one, "kind", type(one).__name__) for one in given) or "none"
            expected = "adaptations of the kind ForwardTransform that read no side-information"
            raise InvalidInput("describe a refreshed gallery", expected=expected, found=found)

    def require_into(self, source: TrainedModel, metric: Metric) -> None:
        """Refuse adaptations that do not lead, one after the other, from the model to a source's space.

        Raises:
            Incompatible: They do not.
        """
        spaces = [artifact.manifest for artifact in self.adaptations]
        begin = [self.model.space(metric), *(manifest.target for manifest in spaces)]
        end = [*(manifest.source for manifest in spaces), source.space(metric)]
        for number, (given, wanted) in enumerate(zip(begin, end, strict=True)):
            if (given.fingerprint, given.dim) != (wanted.fingerprint, wanted.dim):
                into = f"adaptation {number + 1}" if number < len(spaces) else "the source"
                raise Incompatible(
                    "train from refreshed vectors",
                    expected=f"{wanted.dim} values of {wanted.fingerprint} for {into}",
                    found=f"{given.dim} of {given.fingerprint}",
                    fix="Name the model of the gallery's natives, and the adaptations as they were applied.",
                )

    @property
    def fingerprint(self) -> str:
        """Of the model and of what the adaptations compute; an artifact's id would hold when it was made, too."""
        by = [artifact.manifest.weights_sha256 for artifact in self.adaptations]
        return fingerprint(model=self.model.encoder.fingerprint, by=by)

    def vectors(self, images: Images) -> FloatArray:
        """(n, d) float32: what the refreshed gallery holds for these images."""
        return self.adapted(self.model.encoder.encode(list(images.images)))

    def adapted(self, vectors: FloatArray) -> FloatArray:
        """The model's vectors (n, d_1) -> (n, d) float32."""
        for artifact in self.adaptations:
            vectors = artifact.apply(vectors).vectors
        return vectors


class FrozenRefreshed(nn.Module):
    """Embeds views as a refreshed gallery holds them: (b, c, s, s) -> (b, d) float32, without gradients.

    The adaptations run as they ran over the gallery, in NumPy.

    Args:
        refreshed: The model and the adaptations.
    """

    def __init__(self, refreshed: Refreshed) -> None:
        super().__init__()
        self.model = FrozenSource(refreshed.model.encoder, refreshed.model.encoder.dim)
        self._adapted = refreshed.adapted

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, views: torch.Tensor) -> torch.Tensor:
        """Embed views."""
        vectors = self.model(views).cpu().numpy()
        return torch.from_numpy(np.ascontiguousarray(self._adapted(vectors))).to(views.device)
