"""The rows of the benchmark on images: each method with what it trains and how it is searched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.images.measure import figures, own, searched_as_is, transformed
from benchmarks.images.models import Models, embed
from benchmarks.record import Row
from compatstore import trainers as of
from compatstore.artifacts import Artifact
from compatstore.encoders import Encoder
from compatstore.trainers import BCT, DMU, FCT, FastFill, Residual, TrainedModel
from compatstore.versions import SideDType

BOTH = ("random", "sigma")


def independent(models: Models) -> Row:
    """The baseline, a naive swap, and the new model on its own."""
    trial, source, target = models.trial, models.source, models.independent
    queries, stored = embed(target.encoder, trial.queries), embed(source.encoder, trial.gallery)
    swapped = figures(trial, queries, stored, "t/s") if queries.shape[1] == stored.shape[1] else {}
    return own(trial, source, "s/s") | swapped | own(trial, target, "t/t")


def compatible(method: Any, models: Models, *, longer: bool = False, **settings: Any) -> Row:
    """Train a target on images so that it understands the source's gallery."""
    size = models.trial.size
    shape = {"dim": size.dim + (size.extra if longer else 0), "metric": models.metric}
    trainer = method(**shape, **{**models.classifier(), **settings})
    model = models.fit(trainer, models.trial.target, models.source)
    return _as_is(models, model)


def bt2(models: Models, *, extra: float | None = None, **settings: Any) -> Row:
    """BT^2, matching the independent target; longer than the source by a share of its values."""
    size = models.trial.size
    more = size.extra if extra is None else max(round(extra * size.dim), 1)
    classified = "output" if models.loop()["architecture"] == "small-vit" else "target"
    trainer = of.BT2(dim=size.dim + more, extra=more, **{**models.classifier(), "classified": classified, **settings})
    return _as_is(models, models.fit(trainer, models.trial.target, models.source, target=models.independent))


def dmu(models: Models, **settings: Any) -> Row:
    """DMU: t/s at once, and t/h after its adaptation head, if it has one, has refreshed the gallery."""
    model = _dmu(models, **settings)
    if model.adaptation is None:
        return _as_is(models, model)
    refreshed = transformed(models, model, model.adaptation)
    renamed = {key.replace(" random ", " refreshed "): value for key, value in refreshed.items()}
    return _as_is(models, model) | renamed


def refreshed_by_distance(method: str, models: Models) -> Row:
    """A compatible target, and a gallery refreshed by a transform that is learned by distance."""
    size = models.trial.size
    trainer = BCT(dim=size.dim, **models.classifier())
    model = _dmu(models) if method == "DMU" else models.fit(trainer, models.trial.target, models.source)
    artifact = Residual(epochs=min(30, size.transform_epochs), seed=models.trial.seed).fit(models.pairs(model))
    return transformed(models, model, artifact) | own(models.trial, model, "t/t")


def transform(
    trainer: Any,
    models: Models,
    *,
    side: str = "",
    orders: Sequence[str] = ("random",),
    expected: bool = False,
    **settings: Any,
) -> Row:
    """Train a transform from the source's embeddings to the independent target's."""
    encoder = models.side(side) if side else None
    artifact = fitted(trainer, models, encoder, **settings)
    found = transformed(models, models.independent, artifact, encoder, orders, expected=expected)
    return found | own(models.trial, models.independent, "t/t")


def fitted(
    trainer: Any, models: Models, side: Encoder | None = None, dtype: SideDType = "float32", **settings: Any
) -> Artifact:
    """A transform to the independent target."""
    size, pairs = models.trial.size, models.pairs(models.independent, side, dtype)
    shape: dict[str, Any] = {"seed": models.trial.seed}
    if trainer is Residual:
        shape["epochs"] = min(30, size.transform_epochs)
    elif "epochs" in trainer.__dataclass_fields__:
        shape["epochs"] = size.transform_epochs
    if trainer in (FCT, FastFill):
        shape |= {"branch_width": size.branch_width, "mixer_width": size.transform_width}
        shape |= {"batch_size": size.transform_batch} if size.transform_batch else {}
    if "kl" in settings.get("loss", ""):  # of the classes that the head gives: logits, with the target's scale
        assert pairs.head is not None
        pairs = replace(pairs, head=pairs.head * np.float32(models.classifier()["scale"]))
    artifact: Artifact = trainer(**{**shape, **settings}).fit(pairs)
    return artifact


def _dmu(models: Models, **settings: Any) -> Any:
    size = models.trial.size
    trainer = DMU(dim=size.dim, **{**models.classifier(), "adapter_width": size.adapter_width, **settings})
    return models.fit(trainer, models.trial.target, models.source)


def _as_is(models: Models, model: TrainedModel) -> Row:
    trial, source = models.trial, models.source
    found = searched_as_is(trial, source, model, model.artifact)
    return found | own(trial, source, "s/s") | own(trial, model, "t/t")


fct = partial(transform, FCT)
fastfill = partial(transform, FastFill, orders=BOTH)

METHODS: dict[str, Callable[..., Row]] = {
    "independent": independent,
    "BCT": partial(compatible, BCT),
    "BCT(+d)": partial(compatible, BCT, longer=True),
    "BT2": bt2,
    "DMU": dmu,
    "FCT": fct,
    "FCT + SimCLR": partial(fct, side="SimCLR"),
    "FCT + autoencoder": partial(fct, side="autoencoder"),
    "FCT + another seed": partial(fct, side="another seed"),
    "FastFill": partial(fastfill, batch_size=1024, scale=30.0),
    "FastFill, level chosen": partial(fastfill, expected=True),
    "FCT, by length": partial(fct, uncertainty=True, orders=BOTH, expected=True),
    "kernel ridge": partial(transform, of.KernelRidge, orders=BOTH, expected=True),
    "residual, sigma": partial(transform, Residual, orders=("sigma",)),
    "BCT, refreshed by distance": partial(refreshed_by_distance, "BCT"),
    "DMU, refreshed by distance": partial(refreshed_by_distance, "DMU"),
    "RACT": partial(compatible, of.RACT, temperature=0.1),
    "FastFill by default": partial(fastfill, orders=(*BOTH, "oracle")),
    "FastFill by default + SimCLR": partial(fastfill, side="SimCLR"),
    "RACT, temperature 0.5": partial(compatible, of.RACT, temperature=0.5),
    "BCT, head": partial(compatible, BCT, source_rows="head"),
    "BCT, weight 10": partial(compatible, BCT, weight=10.0),
    "BCT, weight 10, head": partial(compatible, BCT, weight=10.0, source_rows="head"),
    "BCT(+d), weight 10": partial(compatible, BCT, longer=True, weight=10.0),
    "BT2, head": partial(bt2, source_rows="head"),
    "DMU, no alignment": partial(dmu, adaptation_weight=0.0),
}
MAIN = tuple(METHODS)[:14]
_SOFTMAX, _COSINE = ("independent", "BCT", "FCT", "FCT + SimCLR", "FastFill by default"), ("independent", "BCT", "BT2")
_DMU = ("independent", "BCT", "DMU", "DMU, no alignment")
# Loss -> setting -> methods of a run in the papers' conditions.
PAPER: dict[str, dict[str, tuple[str, ...]]] = {
    "softmax": {
        "classes": (*_SOFTMAX, "RACT, temperature 0.5", "FastFill by default + SimCLR"),
        "architecture": _SOFTMAX,
        "subgroups": ("independent", "FCT", "FastFill by default"),
    },
    "cosine": {
        "classes": (
            *_COSINE, "BT2, head", "BCT, weight 10", "BCT, weight 10, head", "BCT(+d), weight 10", "BCT, head",
            "RACT, temperature 0.5",
        ),
        "architecture": (*_COSINE, "BCT, weight 10"),
    },
    "pooled ArcFace": {"data": _DMU, "classes": _DMU, "architecture": _DMU[:3]},
}  # fmt: skip


def method_of(name: str) -> Callable[..., Row]:
    """The row of a name: one of `METHODS`, or a trainer's; with settings of it, "DMU: selection=none"."""
    known, _, text = name.partition(": ")
    row = METHODS.get(known) or partial(
        compatible if hasattr(getattr(of, known), "term") else transform, getattr(of, known)
    )
    given = dict(each.split("=") for each in text.split())
    return partial(row, **{key: json.loads(_WORD.sub(r'"\g<0>"', value)) for key, value in given.items()})


_WORD = re.compile(r"^(?!true|false)[a-z][\w-]*$")
