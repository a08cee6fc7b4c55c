"""Measure one method on one trial: the hop alone, the curve of each order, and what sigma knows."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.orders import BY_HEAD, COSINE_SCALE, order, true_loss
from benchmarks.pairs.embedded import MIDDLE, SOURCE, TARGET
from benchmarks.pairs.journal import Record
from benchmarks.pairs.methods import ORACLE, Method
from benchmarks.pairs.scenario import Scenario, retrieval
from benchmarks.pairs.settings import Size
from compatstore.arrays import Doubles, FloatArray
from compatstore.artifacts import Transformed
from compatstore.evaluation import backfill_curve, kendall_tau
from compatstore.trainers import FastFill, Pairs
from compatstore.trainers.pairs.loop import Batch
from compatstore.trainers.pairs.pairs import unit_length
from compatstore.trainers.pairs.two_branch import Prediction
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows

Order = npt.NDArray[np.intp]


def status_quo(trial: Scenario) -> Record:
    """Measure what needs no training: each version on its own, and a naive swap where lengths allow it."""
    vectors, rows = trial.data.vectors, trial.gallery
    versions = {"s/s": SOURCE, "m/m": MIDDLE, "t/t": TARGET}
    found = {name: retrieval(trial, key, vectors[key][rows]) for name, key in versions.items() if key in vectors}
    if vectors[SOURCE].shape[1] == vectors[TARGET].shape[1]:
        found["t/s"] = retrieval(trial, TARGET, vectors[SOURCE][rows])
    sizes = {name: len(getattr(trial, name)) for name in ("pairs", "gallery", "queries", "classes")}
    return {"found": found, "sizes": sizes}


def trained(trial: Scenario, method: Method, size: Size) -> Record:
    """Train a method, hop the gallery, and backfill it in each of the method's orders."""
    pairs, start = trial.learn(), time.perf_counter()
    artifact = method.trainer(size, trial.seed).fit(_scaled(pairs, method.target_scale))
    seconds = time.perf_counter() - start
    hopped = artifact.apply(trial.data.vectors[SOURCE][trial.gallery])
    hopped = replace(hopped, vectors=hopped.vectors / np.float32(method.target_scale))
    native = trial.data.vectors[TARGET][trial.gallery]
    losses = true_loss(hopped.vectors, native)
    curves = {name: _filled(trial, pairs, hopped, losses, name, size) for name in method.orders}
    chosen = artifact.manifest.settings.get("balance")
    return ({} if chosen is None else {"chosen": chosen}) | {
        "seconds": seconds,
        "found": {"t/h": {name: values[0] for name, values in next(iter(curves.values()))["curve"].items()}},
        "orders": curves,
        "error": float(losses.sum() / np.square(native - native.mean(axis=0)).sum()),
    }


def _scaled(pairs: Pairs, scale: float) -> Pairs:
    """Multiply the target space; a head that is divided by as much says what it said."""
    if scale == 1.0:
        return pairs
    factor = np.float32(scale)
    return replace(pairs, target=pairs.target * factor, head=None if pairs.head is None else pairs.head / factor)


def _filled(trial: Scenario, pairs: Pairs, hopped: Transformed, losses: Doubles, name: str, size: Size) -> Record:
    """Measure an order: its curve, and Kendall's tau with the true losses, by distance and through the head."""
    rows = order_of(name, trial, pairs, hopped)
    urgency = -np.argsort(rows)
    through_head = _class_losses(trial, pairs, hopped.vectors)
    tau = {"l2": kendall_tau(urgency, losses)}
    if through_head is not None:
        tau["disc"] = kendall_tau(urgency, through_head)
    return curve(trial, hopped.vectors, rows, size) | {"tau": tau}


def curve(trial: Scenario, hopped: FloatArray, rows: Order, size: Size) -> Record:
    """Measure the backfilling curve of one order."""
    labels, native = trial.data.labels, trial.data.vectors[TARGET]
    found = backfill_curve(
        native[trial.queries],
        hopped,
        native[trial.gallery],
        labels[trial.queries],
        labels[trial.gallery],
        rows,
        alphas=size.alphas,
        ks=(1,),
    )
    return {
        "area": {"cmc1": found.area["cmc@1"], "map": found.area["map"]},
        "curve": {"cmc1": found.cmc[1].tolist(), "map": found.map.tolist()},
    }


def order_of(name: str, trial: Scenario, pairs: Pairs, hopped: Transformed) -> Order:
    """Order the gallery of a trial, most urgent first: (gallery,)."""
    if name == ORACLE:
        return np.argsort(-true_loss(hopped.vectors, trial.data.vectors[TARGET][trial.gallery]), kind="stable")
    logits = _logits(pairs, hopped.vectors) if name in BY_HEAD else None
    rows = ArrayRows(
        ids=trial.gallery.tolist(),
        sigma2=hopped.uncertainty,
        source=trial.data.vectors[SOURCE][trial.gallery],
        columns={"class": trial.data.labels[trial.gallery]},
    )
    return order(name, rows, trial.seed, logits)


def _class_losses(trial: Scenario, pairs: Pairs, vectors: FloatArray) -> Doubles | None:
    """Take FastFill's loss through the head of each gallery item, (n,); None where the head lacks its classes."""
    labels = trial.data.labels[trial.gallery]
    if not np.isin(labels, trial.classes).all():
        return None
    classes = torch.from_numpy(np.searchsorted(trial.classes, labels))
    given = torch.from_numpy(vectors)
    loss = FastFill(loss="disc").objective(pairs).error
    losses: Doubles = loss(Prediction(given, None), Batch(source=given, target=given, classes=classes)).double().numpy()
    return losses


def _logits(pairs: Pairs, vectors: FloatArray) -> FloatArray:
    """Ask the head that methods train through: the target model's own or one fitted on the pairs."""
    head = FastFill(loss="disc").objective(pairs).head
    rows = np.empty((0, 0), np.float32) if head is None else head.rows
    scale = COSINE_SCALE if unit_length(vectors) else 1.0
    logits: FloatArray = np.float32(scale) * (vectors @ rows.T)
    return logits
