"""The alternate model: side-information from a second source model, trained as the first from another seed."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from compatstore.boundary import checked_fields
from compatstore.encoders.network import Preprocessing
from compatstore.trainers.images.augmentation import Augmentation, Mixup
from compatstore.trainers.images.classification import Classification, Classifier, require_classes
from compatstore.trainers.images.images import Images
from compatstore.trainers.settings import Count, NotNegative
from compatstore.trainers.side.training import SideTrainer


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Alternate(Classifier, SideTrainer):
    """Train a classifier as `Independent` does, and keep its embedding as side-information (FCT, section 5.1).

    Args:
        dim: Values of side-information an item.
        seed: Of weights, order and augmentation; it must differ from the source model's, or both are one model.
        augmentation: Random views to train on; None trains on the images as they are.
        mixup: Blend each image with another one, by weights of Beta(mixup, mixup), and keep its class; 0 does not.
            Blending gives a model that differs more from the source's.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    dim: Count = 64
    seed: int = 1
    augmentation: Augmentation | None = None
    mixup: NotNegative = 0.0

    @property
    def unit_length(self) -> bool:
        """Whether the side-information has unit length, as the embeddings of its kind of head."""
        return self.normalise

    def objective(self, network: nn.Module, preprocessing: Preprocessing, images: Images) -> nn.Module:
        """Make the classification loss.

        Raises:
            InvalidInput: The images are of a single class.
        """
        require_classes(images, None)
        views = Mixup(alpha=self.mixup, views=self.augmentation) if self.mixup else self.augmentation
        return Classification(self, network, preprocessing, views, len(images.class_names))
