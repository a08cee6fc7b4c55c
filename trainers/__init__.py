"""Trainers: what makes artifacts from pairs of embeddings, models from images, and models of side-information.

`import compatstore.trainers` loads no trainer and not torch: a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from compatstore.errors import MissingExtra

if TYPE_CHECKING:
    from compatstore.trainers.images.augmentation import Augmentation
    from compatstore.trainers.images.bct import BCT, UniBCT
    from compatstore.trainers.images.bt2 import BT2
    from compatstore.trainers.images.classification import Independent
    from compatstore.trainers.images.compatible import CompatibleModel
    from compatstore.trainers.images.dmu import DMU, DMUModel
    from compatstore.trainers.images.feature_alignment import RACT, FocalDistillation, LCEAlignment, Regression
    from compatstore.trainers.images.given_vectors import ImagesOfItems, Refreshed, images_of_items
    from compatstore.trainers.images.images import Images
    from compatstore.trainers.images.trained_model import TrainedModel
    from compatstore.trainers.pairs.auto import Auto
    from compatstore.trainers.pairs.fastfill import FastFill
    from compatstore.trainers.pairs.fct import FCT
    from compatstore.trainers.pairs.kernel_ridge import KernelRidge
    from compatstore.trainers.pairs.pairs import Pairs
    from compatstore.trainers.pairs.residual import RBT, DriftAdapter, QueryAdapter, Residual
    from compatstore.trainers.pairs.ridge import (
        DiagonalScale,
        LowRankAffine,
        LowRankRidge,
        MeanShift,
        Procrustes,
        Ridge,
    )
    from compatstore.trainers.pairs.selection import Comparison
    from compatstore.trainers.pairs.through_head import LCE, DMUHead
    from compatstore.trainers.side.models import Alternate, Autoencoder, SimCLR
    from compatstore.trainers.side.training import SideModel

__all__ = [
    "BCT",
    "BT2",
    "DMU",
    "FCT",
    "LCE",
    "RACT",
    "RBT",
    "Alternate",
    "Augmentation",
    "Auto",
    "Autoencoder",
    "Comparison",
    "CompatibleModel",
    "DMUHead",
    "DMUModel",
    "DiagonalScale",
    "DriftAdapter",
    "FastFill",
    "FocalDistillation",
    "Images",
    "ImagesOfItems",
    "Independent",
    "KernelRidge",
    "LCEAlignment",
    "LowRankAffine",
    "LowRankRidge",
    "MeanShift",
    "Pairs",
    "Procrustes",
    "QueryAdapter",
    "Refreshed",
    "Regression",
    "Residual",
    "Ridge",
    "SideModel",
    "SimCLR",
    "TrainedModel",
    "UniBCT",
    "images_of_items",
]

_HOMES = {
    "BCT": "compatstore.trainers.images.bct",
    "BT2": "compatstore.trainers.images.bt2",
    "DMU": "compatstore.trainers.images.dmu",
    "FCT": "compatstore.trainers.pairs.fct",
    "LCE": "compatstore.trainers.pairs.through_head",
    "RACT": "compatstore.trainers.images.feature_alignment",
    "RBT": "compatstore.trainers.pairs.residual",
    "Alternate": "compatstore.trainers.side.models",
    "Augmentation": "compatstore.trainers.images.augmentation",
    "Auto": "compatstore.trainers.pairs.auto",
    "Autoencoder": "compatstore.trainers.side.models",
    "Comparison": "compatstore.trainers.pairs.selection",
    "CompatibleModel": "compatstore.trainers.images.compatible",
    "DMUHead": "compatstore.trainers.pairs.through_head",
    "DMUModel": "compatstore.trainers.images.dmu",
    "DiagonalScale": "compatstore.trainers.pairs.ridge",
    "DriftAdapter": "compatstore.trainers.pairs.residual",
    "FastFill": "compatstore.trainers.pairs.fastfill",
    "FocalDistillation": "compatstore.trainers.images.feature_alignment",
    "Images": "compatstore.trainers.images.images",
    "ImagesOfItems": "compatstore.trainers.images.given_vectors",
    "Independent": "compatstore.trainers.images.classification",
    "KernelRidge": "compatstore.trainers.pairs.kernel_ridge",
    "LCEAlignment": "compatstore.trainers.images.feature_alignment",
    "LowRankAffine": "compatstore.trainers.pairs.ridge",
    "LowRankRidge": "compatstore.trainers.pairs.ridge",
    "MeanShift": "compatstore.trainers.pairs.ridge",
    "Pairs": "compatstore.trainers.pairs.pairs",
    "Procrustes": "compatstore.trainers.pairs.ridge",
    "QueryAdapter": "compatstore.trainers.pairs.residual",
    "Refreshed": "compatstore.trainers.images.given_vectors",
    "Regression": "compatstore.trainers.images.feature_alignment",
    "Residual": "compatstore.trainers.pairs.residual",
    "Ridge": "compatstore.trainers.pairs.ridge",
    "SideModel": "compatstore.trainers.side.training",
    "SimCLR": "compatstore.trainers.side.models",
    "TrainedModel": "compatstore.trainers.images.trained_model",
    "UniBCT": "compatstore.trainers.images.bct",
    "images_of_items": "compatstore.trainers.images.given_vectors",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        if find_spec("torch") is None:
            raise MissingExtra("torch", "train")
        value: object = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'compatstore.trainers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
