"""The rows of the table: every method of the papers, each with what it trains and how it is searched."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.methods.as_one import AS_ONE, as_one
from benchmarks.methods.measure import figures, own, searched_as_is, transformed
from benchmarks.methods.models import FOURFOLD, QUARTER, Models, embed, wider
from benchmarks.methods.other_loss import cosface, unscaled
from benchmarks.orders import SPREAD_THEN_SIGMA
from benchmarks.pairs.journal import Record
from compatstore.artifacts import Artifact
from compatstore.encoders import Encoder
from compatstore.trainers import (
    BCT,
    BT2,
    DMU,
    FCT,
    LCE,
    RACT,
    RBT,
    FastFill,
    FocalDistillation,
    KernelRidge,
    LCEAlignment,
    Regression,
    Residual,
    UniBCT,
)
from compatstore.trainers.images.compatible import CompatibleTraining

Row = Callable[[Models], Record]

# Rows whose models are all trained by cross-entropy on unit features without a scale: BT^2's authors' code, where BCT
# weighs the loss through the source's head by 10, as BT^2 does, and that head is plain means of the source's features.
UNSCALED = ", cross-entropy"
PLAIN = {"source_rows": "plain-means"}
# Rows whose models are all trained by CosFace.
BY_COSFACE = ", CosFace"
# Rows whose transform learns from images that no model was trained on, as many; none where a set has no others.
FRESH = ", fresh pairs"
# Rows whose models have twice the values.
WIDER = ", twice the values"
DIVERGENCES = ("kl", "reversed-kl")  # of FCT, through the target's head
# Orders of a backfill: one, and those that a row compares with one transform.
BY_SIGMA = ("sigma",)
ORDERS = ("random", "sigma", SPREAD_THEN_SIGMA, "spread-sigma")


def independent(models: Models) -> Record:
    """The status quo, the naive swap, and the best that a target can be on its own."""
    lesson, source, target = models.lesson, models.source, models.independent
    queries, stored = embed(target.encoder, lesson.queries), embed(source.encoder, lesson.gallery)
    return {"s/s": own(lesson, source), "t/s": figures(lesson, queries, stored), "t/t": own(lesson, target)}


def compatible(method: type[CompatibleTraining], models: Models, *, longer: bool = False, **settings: Any) -> Record:
    """Train a target on images so that it understands the source's gallery."""
    size, start = models.lesson.size, time.perf_counter()
    dim = size.dim + (size.extra if longer else 0)
    trainer = method(dim=dim, **{**models.classifier(), **settings})
    model = models.fit(trainer, models.lesson.target, models.source)
    return _measured(models, model, time.perf_counter() - start)


def bt2(models: Models, *, longer_by: float | None = None, **settings: Any) -> Record:
    """BT^2, matching the independent target that all rows share; longer than the source by a share of its values."""
    size, start = models.lesson.size, time.perf_counter()
    classified = "output" if models.lesson.setting == "architecture" else "target"
    given = {**models.classifier(), "classified": classified, **settings}
    extra = size.extra if longer_by is None else max(round(longer_by * size.dim), 1)
    trainer = BT2(dim=size.dim + extra, extra=extra, **given)
    model = models.fit(trainer, models.lesson.target, models.source, target=models.independent)
    return _measured(models, model, time.perf_counter() - start)


def dmu(models: Models, **settings: Any) -> Record:
    """DMU: t/s at once, and t/h after its adaptation head has refreshed the gallery."""
    size, start = models.lesson.size, time.perf_counter()
    given = {**models.classifier(), "adapter_width": size.adapter_width, **settings}
    trainer = DMU(dim=size.dim, **given)
    model = models.fit(trainer, models.lesson.target, models.source)
    seconds = time.perf_counter() - start
    refreshed = transformed(models.lesson, models.source, model, model.adaptation)
    weights = {name: model.figures[name] for name in ("smallest_weight", "largest_weight")}
    found = _measured(models, model, seconds)
    return {**found, **refreshed, "curves": found["curves"] | {"refreshed": refreshed["curves"]["random"]}, **weights}


def refreshed_by_distance(method: type[CompatibleTraining], models: Models, **settings: Any) -> Record:
    """A compatible target, and a gallery refreshed by a transform that is learned by distance; searched as one too."""
    size, start = models.lesson.size, time.perf_counter()
    model = models.fit(method(dim=size.dim, **models.classifier(), **settings), models.lesson.target, models.source)
    artifact = Residual(epochs=size.residual_epochs, seed=models.lesson.seed).fit(models.pairs(model))
    seconds = time.perf_counter() - start
    refreshed = transformed(models.lesson, models.source, model, artifact)
    both = as_one(models.lesson, models.source, model, artifact)
    curves = {"curves": refreshed["curves"] | both["curves"], "weights": both["weights"]}
    return {**refreshed, **curves, "t/t": own(models.lesson, model), "seconds": seconds}


def dmu_by_distance(models: Models) -> Record:
    """DMU's target, not refreshed by DMU's own head."""
    return refreshed_by_distance(DMU, models, adapter_width=models.lesson.size.adapter_width)


def searched_as_one(models: Models, trainer: type[Any] | None = None, *, alone: bool = False) -> Record:
    """The independent target beside the source: hopped by a transform; without one the upgrade teaches itself."""
    start = time.perf_counter()
    artifact = None if trainer is None else learned(trainer, models)
    found = as_one(models.lesson, models.source, models.independent, artifact, alone=alone)
    return {**found, "t/t": own(models.lesson, models.independent), "seconds": time.perf_counter() - start}


def doubted_as_one(models: Models, trainer: type[Any], **settings: Any) -> Record:
    """The independent target beside the source, backfilled in random order and in sigma's.

    Searched as one, by expected distances as the transform has measured them, and by a transform that has measured
    nothing.
    """
    start = time.perf_counter()
    artifact = learned(trainer, models, **settings)
    nothing = artifact.amended(figures={})
    taken: dict[str, Record] = {
        f"{way}{'' if order == 'random' else ', sigma'}": as_one(
            models.lesson, models.source, models.independent, transform, order=order
        )
        for way, transform in ((AS_ONE, artifact), (f"{AS_ONE}, plain", nothing))
        for order in ("random", "sigma")
    }
    curves = {way: found["curves"][AS_ONE] for way, found in taken.items()}
    weights = {way: found["weights"] for way, found in taken.items()}
    found = {"t/h": taken[AS_ONE]["t/h"], "curves": curves, "weights": weights}
    return {**found, "t/t": own(models.lesson, models.independent), "seconds": time.perf_counter() - start}


def transform(
    trainer: type[Any],
    models: Models,
    *,
    side: str = "",
    orders: Sequence[str] = ("random",),
    fresh: bool = False,
    expected: bool = False,
    **settings: Any,
) -> Record:
    """Train a transform from the source's embeddings to the independent target's."""
    start, lesson = time.perf_counter(), models.lesson
    encoder = models.side_encoder(side) if side else None
    artifact = learned(trainer, models, encoder, fresh=fresh, **settings)
    seconds = time.perf_counter() - start
    found = transformed(lesson, models.source, models.independent, artifact, encoder, orders, expected)
    chosen = artifact.manifest.settings.get("balance")
    found |= {"balance": chosen} if chosen else {}
    return {**found, "t/t": own(lesson, models.independent), "seconds": seconds}


def learned(
    trainer: type[Any], models: Models, side: Encoder | None = None, *, fresh: bool = False, **settings: Any
) -> Artifact:
    """A transform to the independent target, for as many epochs as the size says where it has any."""
    size = models.lesson.size
    epochs = size.residual_epochs if trainer is Residual else size.transform_epochs
    passes = {"epochs": epochs} if "epochs" in trainer.__dataclass_fields__ else {}
    branches = {"branch_width": size.branch_width, "mixer_width": size.transform_width}
    shape = branches if trainer in (FCT, FastFill) else {}
    given = {**passes, "seed": models.lesson.seed, **shape, **settings}
    pairs = models.pairs(models.independent, side, fresh=fresh)
    if settings.get("loss") in DIVERGENCES:  # of the classes that the head gives: logits, with the target's scale
        assert pairs.head is not None, "a classifier has a head"
        pairs = replace(pairs, head=pairs.head * np.float32(models.classifier()["scale"]))
    artifact: Artifact = trainer(**given).fit(pairs)
    return artifact


def fct(models: Models, side: str = "", **settings: Any) -> Record:
    """FCT, with side-information or without."""
    return transform(FCT, models, side=side, **settings)


def earlier_default_fastfill(models: Models, **settings: Any) -> Record:
    """FastFill as its default was before versions said their loss: by ArcFace with a margin of 0.5, scale chosen."""
    return transform(FastFill, models, **{"orders": BY_SIGMA, "disc": "arcface", "margin": 0.5, **settings})


def fastfill(models: Models, **settings: Any) -> Record:
    """FastFill, backfilled in the order of its sigma; its loss through the head is the target's own."""
    return transform(FastFill, models, **{"orders": BY_SIGMA, **target_loss(models), **settings})


def default_fastfill(models: Models, **settings: Any) -> Record:
    """FastFill with its default settings: the target's own kind of loss and margin; scale and batch are chosen."""
    return transform(FastFill, models, **{"orders": BY_SIGMA, **settings})


def target_loss(models: Models) -> dict[str, Any]:
    """FastFill's scale where it is the target's own too, as kind and margin are by default, and its batches."""
    return {"batch_size": 1024, "scale": models.classifier()["scale"]}


def _by_cosface(row: Row, models: Models) -> Record:
    return row(cosface(models))


def _measured(models: Models, model: Any, seconds: float) -> Record:
    lesson, source = models.lesson, models.source
    found = searched_as_is(lesson, source.version("v1"), embed(source.encoder, lesson.gallery), model, model.artifact)
    return {**found, "s/s": own(lesson, source), "t/t": own(lesson, model), "seconds": seconds}


ROWS: dict[str, Row] = {
    "independent": independent,
    "BCT": partial(compatible, BCT),
    "BT2": bt2,
    "DMU": dmu,
    "FCT": fct,
    "FCT + SimCLR": partial(fct, side="SimCLR"),
    "BCT(+d)": partial(compatible, BCT, longer=True),
    "BCT, weight 10": partial(compatible, BCT, weight=10.0),
    "RACT": partial(compatible, RACT, temperature=0.1),
    "UniBCT": partial(compatible, UniBCT),
    "LCE": partial(compatible, LCEAlignment),
    "FD": partial(compatible, FocalDistillation),
    "regression, cosine": partial(compatible, Regression),
    "regression, L2": partial(compatible, Regression, distance="l2"),
    "DMU, even weights": partial(dmu, selection="none"),
    "DMU, least confidence": partial(dmu, selection="least-confidence"),
    "DMU, regression": partial(dmu, compatibility="regression"),
    "DMU, refreshed by distance": dmu_by_distance,
    "FCT + autoencoder": partial(fct, side="autoencoder"),
    "FCT + another seed": partial(fct, side="another seed"),
    "FastFill, sigma": fastfill,
    "FastFill balanced, sigma": partial(fastfill, scale=4.0),
    "FastFill by default, sigma": earlier_default_fastfill,
    "FastFill by default": partial(earlier_default_fastfill, orders=ORDERS),
    "FastFill by default, even": partial(earlier_default_fastfill, beta=1.0, orders=ORDERS),
    "FastFill by default + SimCLR, sigma": partial(earlier_default_fastfill, side="SimCLR"),
    "FastFill by distance": partial(fastfill, loss="l2", orders=ORDERS),
    "FastFill by distance, even": partial(fastfill, loss="l2", beta=1.0, orders=ORDERS),
    "FastFill": partial(fastfill, orders=ORDERS),
    "FastFill, even": partial(fastfill, beta=1.0, orders=ORDERS),
    "FastFill, no sigma": partial(fastfill, uncertainty=False, orders=("random",)),
    "FastFill, no distance": partial(fastfill, loss="disc"),
    "FastFill, scale chosen": partial(default_fastfill, orders=ORDERS),
    "FastFill, margin 0": partial(fastfill, margin=0.0, orders=ORDERS),
    "FastFill, margin 0.5": partial(fastfill, margin=0.5, orders=ORDERS),
    "residual, sigma": partial(transform, Residual, orders=BY_SIGMA),
    f"FCT{FRESH}": partial(fct, fresh=True),
    f"FastFill, sigma{FRESH}": partial(fastfill, fresh=True),
    f"FastFill by default, sigma{FRESH}": partial(earlier_default_fastfill, fresh=True),
    f"residual, sigma{FRESH}": partial(transform, Residual, orders=BY_SIGMA, fresh=True),
    f"FCT + SimCLR{QUARTER}": partial(fct, side=f"SimCLR{QUARTER}"),
    f"FCT + SimCLR{FOURFOLD}": partial(fct, side=f"SimCLR{FOURFOLD}"),
    "BCT(+d), weight 10": partial(compatible, BCT, longer=True, weight=10.0),
    "BCT, rows and means": partial(compatible, BCT, source_rows="head"),
    "BT2, source's head at 1": partial(bt2, head_weight=1.0),
    "BT2, a sixteenth more": partial(bt2, longer_by=1 / 16),
    "BT2, an eighth more": partial(bt2, longer_by=1 / 8),
    "BT2, twice as long": partial(bt2, longer_by=1.0),
    "DMU, head 512 wide": partial(dmu, adapter_width=512),
    "DMU, head 2048 wide": partial(dmu, adapter_width=2048),
    "DMU, no adaptation": partial(compatible, DMU, adaptation_weight=0.0),
    "DMU, adaptation at scale 8": partial(dmu, adaptation_scale=8.0),
    "DMU, generalised mean": partial(dmu, pooling="gem"),
    f"independent{UNSCALED}": lambda models: independent(unscaled(models)),
    f"BCT{UNSCALED}": lambda models: compatible(BCT, unscaled(models), weight=10.0),
    f"BCT(+d){UNSCALED}": lambda models: compatible(BCT, unscaled(models), longer=True, weight=10.0),
    f"BT2{UNSCALED}": lambda models: bt2(unscaled(models)),
    f"BCT{UNSCALED}, plain means": lambda models: compatible(BCT, unscaled(models), weight=10.0, **PLAIN),
    f"BT2{UNSCALED}, plain means": lambda models: bt2(unscaled(models), **PLAIN),
    f"FCT{UNSCALED}": lambda models: fct(unscaled(models)),
    f"FastFill, level chosen{UNSCALED}": lambda models: ROWS["FastFill, level chosen"](unscaled(models)),
    "FCT, mixer 256 wide": partial(fct, mixer_width=256),
    "FCT, mixer 4096 wide": partial(fct, mixer_width=4096),
    "FCT, KL": partial(fct, loss=DIVERGENCES[0]),
    "FCT, reversed KL": partial(fct, loss=DIVERGENCES[1]),
    "RBT": partial(transform, RBT),
    "LCE, transform": partial(transform, LCE),
    f"independent{WIDER}": lambda models: independent(wider(models)),
    f"FCT{WIDER}": lambda models: fct(wider(models)),
    "BCT, refreshed by distance": partial(refreshed_by_distance, BCT),
    "FCT, as one": partial(searched_as_one, trainer=FCT),
    "residual, as one": partial(searched_as_one, trainer=Residual),
    "self-teaching": searched_as_one,
    "FastFill, level chosen": partial(default_fastfill, orders=("random", *BY_SIGMA), expected=True),
    "FCT, by length": partial(transform, FCT, uncertainty=True, orders=("random", *BY_SIGMA), expected=True),
    # Journaled while lessons judged by distances as they are; the same as the next today.
    "self-teaching, doubted": partial(searched_as_one, alone=True),
    "self-teaching, doubted lessons": partial(searched_as_one, alone=True),
    "kernel ridge": partial(transform, KernelRidge, orders=("random", *BY_SIGMA), expected=True),
    "kernel ridge, as one": partial(doubted_as_one, trainer=KernelRidge),
    "FastFill, level chosen, as one": partial(doubted_as_one, trainer=FastFill),
    "FastFill, even, level chosen": partial(fastfill, beta=1.0, orders=("random", *BY_SIGMA), expected=True),
}
ROWS |= {
    f"{name}{BY_COSFACE}": partial(_by_cosface, ROWS[name])
    for name in (
        "independent", "BCT", "BCT(+d)", "BT2", "DMU", "FCT", "FCT + SimCLR", "FCT + autoencoder", "FCT + another seed",
        "FastFill", "FastFill, even", "FastFill, scale chosen", "FastFill by distance, even", "residual, sigma",
        f"FCT{FRESH}", "BCT, refreshed by distance", "DMU, refreshed by distance", "FCT, as one", "residual, as one",
        "self-teaching", "FCT, mixer 256 wide", "FCT, mixer 4096 wide", "FCT, KL", "FCT, reversed KL", "RBT",
        "LCE, transform", "FastFill, level chosen", "FastFill, even, level chosen", "FCT, by length", "kernel ridge",
        "self-teaching, doubted", "self-teaching, doubted lessons", "kernel ridge, as one",
        "FastFill, level chosen, as one",
    )
}  # fmt: skip


def baseline(row: str) -> str:
    """The row of the source alone and the independent target that a row is measured against."""
    return next((f"independent{other}" for other in (UNSCALED, BY_COSFACE, WIDER) if other in row), "independent")
