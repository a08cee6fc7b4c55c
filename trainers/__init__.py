"""Trainers: artifacts from pairs of embeddings, models from images, and models of side-information.

`import compatstore.trainers` loads neither a trainer nor torch: a name is loaded on first use.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from compatstore.errors import MissingExtra
from compatstore.former import no_attribute

if TYPE_CHECKING:
    from compatstore.trainers.images.bt2 import BT2 as BT2
    from compatstore.trainers.images.classification import Independent as Independent
    from compatstore.trainers.images.compatible import CompatibleModel as CompatibleModel
    from compatstore.trainers.images.dmu import DMU as DMU
    from compatstore.trainers.images.given_vectors import ImagesOfItems as ImagesOfItems
    from compatstore.trainers.images.given_vectors import Refreshed as Refreshed
    from compatstore.trainers.images.given_vectors import images_of_items as images_of_items
    from compatstore.trainers.images.images import Augmentation as Augmentation
    from compatstore.trainers.images.images import Images as Images
    from compatstore.trainers.images.terms import BCT as BCT
    from compatstore.trainers.images.terms import RACT as RACT
    from compatstore.trainers.images.terms import FocalDistillation as FocalDistillation
    from compatstore.trainers.images.terms import LCEAlignment as LCEAlignment
    from compatstore.trainers.images.terms import Regression as Regression
    from compatstore.trainers.images.terms import UniBCT as UniBCT
    from compatstore.trainers.images.trained_model import TrainedModel as TrainedModel
    from compatstore.trainers.pairs.auto import Auto as Auto
    from compatstore.trainers.pairs.correction import Correction as Correction
    from compatstore.trainers.pairs.fastfill import FastFill as FastFill
    from compatstore.trainers.pairs.fct import FCT as FCT
    from compatstore.trainers.pairs.kernel_ridge import KernelRidge as KernelRidge
    from compatstore.trainers.pairs.pairs import Pairs as Pairs
    from compatstore.trainers.pairs.residual import RBT as RBT
    from compatstore.trainers.pairs.residual import DriftAdapter as DriftAdapter
    from compatstore.trainers.pairs.residual import QueryAdapter as QueryAdapter
    from compatstore.trainers.pairs.residual import Residual as Residual
    from compatstore.trainers.pairs.ridge import DiagonalScale as DiagonalScale
    from compatstore.trainers.pairs.ridge import LowRankAffine as LowRankAffine
    from compatstore.trainers.pairs.ridge import LowRankRidge as LowRankRidge
    from compatstore.trainers.pairs.ridge import MeanShift as MeanShift
    from compatstore.trainers.pairs.ridge import Procrustes as Procrustes
    from compatstore.trainers.pairs.ridge import Ridge as Ridge
    from compatstore.trainers.pairs.selection import Comparison as Comparison
    from compatstore.trainers.pairs.through_head import LCE as LCE
    from compatstore.trainers.pairs.through_head import DMUHead as DMUHead
    from compatstore.trainers.side import Alternate as Alternate
    from compatstore.trainers.side import Autoencoder as Autoencoder
    from compatstore.trainers.side import SideModel as SideModel
    from compatstore.trainers.side import SimCLR as SimCLR

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
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        if find_spec("torch") is None:
            raise MissingExtra("torch", "train")
        value: object = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise no_attribute(__name__, name)


def __dir__() -> list[str]:
    return __all__
