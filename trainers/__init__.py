"""Trainers: what makes artifacts from pairs of embeddings, models from images, and models of side-information.

`import compatstore.trainers` loads no trainer and not torch: a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from compatstore.errors import MissingExtra
from compatstore.former import no_attribute

if TYPE_CHECKING:
    from compatstore.trainers.images.bt2 import BT2
    from compatstore.trainers.images.classification import Independent
    from compatstore.trainers.images.compatible import CompatibleModel
    from compatstore.trainers.images.dmu import DMU
    from compatstore.trainers.images.given_vectors import ImagesOfItems, Refreshed, images_of_items
    from compatstore.trainers.images.images import Augmentation, Images
    from compatstore.trainers.images.terms import BCT, RACT, FocalDistillation, LCEAlignment, Regression, UniBCT
    from compatstore.trainers.images.trained_model import TrainedModel
    from compatstore.trainers.pairs.auto import Auto
    from compatstore.trainers.pairs.correction import Correction
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
    from compatstore.trainers.side import Alternate, Autoencoder, SideModel, SimCLR

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
    "Correction",
    "DMUHead",
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

_NAMES = {
    "images.bt2": "BT2",
    "images.classification": "Independent",
    "images.compatible": "CompatibleModel",
    "images.dmu": "DMU",
    "images.given_vectors": "ImagesOfItems Refreshed images_of_items",
    "images.images": "Augmentation Images",
    "images.terms": "BCT FocalDistillation LCEAlignment RACT Regression UniBCT",
    "images.trained_model": "TrainedModel",
    "pairs.auto": "Auto",
    "pairs.correction": "Correction",
    "pairs.fastfill": "FastFill",
    "pairs.fct": "FCT",
    "pairs.kernel_ridge": "KernelRidge",
    "pairs.pairs": "Pairs",
    "pairs.residual": "DriftAdapter QueryAdapter RBT Residual",
    "pairs.ridge": "DiagonalScale LowRankAffine LowRankRidge MeanShift Procrustes Ridge",
    "pairs.selection": "Comparison",
    "pairs.through_head": "DMUHead LCE",
    "side": "Alternate Autoencoder SideModel SimCLR",
}
_HOMES = {name: f"compatstore.trainers.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        if find_spec("torch") is None:
            raise MissingExtra("torch", "train")
        value: object = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise no_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted(__all__)
