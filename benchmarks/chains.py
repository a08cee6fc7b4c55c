"""Two upgrades in a row and more: one direct hop or several, and compatible models in series.

    python -m benchmarks chains --sets glyphs-embedded.npz caltech-embedded.npz
    python -m benchmarks chains --images glyphs.npz caltech101 --names Glyphs Caltech-101 --size standard

Sets are files of `benchmarks.sets` with a middle version. Images are sets as of `python -m benchmarks images`. Rows of
six versions ("steps") were measured by `benchmarks/methods/steps.py` of the commit that they name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.dots import chart_of
from benchmarks.images.measure import figures, own
from benchmarks.images.models import Models, embed
from benchmarks.images.sizes import SIZES
from benchmarks.images.trial import draw as draw_images
from benchmarks.images.trial import read as read_images
from benchmarks.pages import markdown
from benchmarks.pairs import figures as search
from benchmarks.record import Record, Row
from benchmarks.seeds import Interval, apart, both, cases, cell, where
from benchmarks.sets.embedded import MIDDLE, SOURCE, TARGET, Trial, read, trials
from compatstore.trainers import BCT, BT2, DMU, FCT, Independent, Pairs, Refreshed, TrainedModel


def hops(trial: Trial, *, chained: bool, side: bool, **settings: Any) -> Row:
    """Hop a gallery from source to target, at once or over the middle version, and search it."""
    data, rows = trial.data, trial.gallery

    def fit(source: str, target: str) -> Any:
        sides = {"side": source, "target_side": target} if side else {}
        extra = {key: data.sides[name][trial.pairs] for key, name in sides.items() if name in data.sides}
        vectors = (data.vectors[name][trial.pairs] for name in (source, target))
        return FCT(side_transform="target_side" in extra, seed=trial.seed, **settings).fit(Pairs(*vectors, **extra))

    vectors, carried = data.vectors[SOURCE][rows], data.sides[SOURCE][rows] if side else None
    for source, target in ((SOURCE, MIDDLE), (MIDDLE, TARGET)) if chained else ((SOURCE, TARGET),):
        made = fit(source, target).apply(vectors, carried)
        vectors, carried = made.vectors, made.side
    return search(trial, TARGET, vectors, "t/h")


def of_pairs(trial: Trial, **settings: Any) -> Iterator[Row]:
    """Each version alone, and each way from the first to the third."""
    alone: Row = {}
    for name, version in {"s/s": SOURCE, "m/m": MIDDLE, "t/t": TARGET}.items():
        alone |= search(trial, version, trial.data.vectors[version][trial.gallery], name)
    yield {"method": "none", **alone}
    for side in (True, False) if trial.data.sides else (False,):
        for way in ("direct", "chained"):
            found = hops(trial, chained=way == "chained", side=side, **settings)
            yield {"method": way + ", side" * side, **found}


def next_model(models: Models, method: str, images: Any, before: TrainedModel, start: int, **further: Any) -> Any:
    """The version after another one."""
    size, settings = models.trial.size, models.classifier(start=start)
    if method == "BT2":
        independent = models.fit(Independent(dim=before.encoder.dim, **settings), images)
        trainer: Any = BT2(dim=before.encoder.dim + size.extra, extra=size.extra, **settings)
        return models.fit(trainer, images, before, target=independent)
    if method == "independent":
        return models.fit(Independent(dim=size.dim, **settings), images)
    wide: Row = {"adapter_width": size.adapter_width}
    trainer = DMU(dim=size.dim, **wide, **settings) if method == "DMU" else BCT(dim=size.dim, **settings)
    return models.fit(trainer, images, before, **further)


def series(models: Models, method: str) -> Row:
    """Three versions, of every fourth, second and all classes: each gallery by the queries of every later version."""
    versions = versions_of(models, method, (4, 2, 1))
    trial = models.trial
    queries, galleries = ([embed(one.encoder, each) for one in versions] for each in (trial.queries, trial.gallery))
    found: Row = {}
    for later, asked in enumerate(queries):
        for earlier, stored in enumerate(galleries[: later + 1]):
            cut = np.ascontiguousarray(asked[:, : stored.shape[1]])  # a longer version is compared by its first values
            found |= figures(trial, cut, stored, f"{later + 1}/{earlier + 1}")
    return found


def refreshed(models: Models) -> Row:
    """Four versions of DMU: the first gallery hopped three times, by heads that know every kind of vectors in it."""
    versions = versions_of(models, "DMU", (8, 4, 2, 1))
    heads = [one.adaptation for one in versions[1:]]
    trial = models.trial
    queries, vectors = embed(versions[-1].encoder, trial.queries), embed(versions[0].encoder, trial.gallery)
    found = own(trial, versions[0], "of four: 1/1") | figures(trial, queries, vectors, "of four: 4/1")
    for head in heads:
        vectors = head.apply(vectors).vectors
    return found | figures(trial, queries, vectors, "of four: 4/h(h(h(1)))")


def versions_of(models: Models, method: str, steps: tuple[int, ...]) -> list[Any]:
    """Versions that know every n-th class, each made by a method after the one before."""
    images = models.trial.target
    first, *later = (images.of_classes(range(len(images.class_names))[::step]) for step in steps)
    trainer = Independent(dim=models.trial.size.dim, **models.classifier(target=False))
    versions: list[Any] = [models.fit(trainer, first)]
    for start, known in enumerate(later, 1):
        heads = [one.adaptation for one in versions[1:]] if method == "DMU" else []
        kinds = [Refreshed(versions[place], heads[place:]) for place in range(len(heads))]
        further = {"refreshed": kinds} if kinds else {}
        versions.append(next_model(models, method, known, versions[-1], start, **further))
    return versions


IMAGES: dict[str, Callable[[Models], Row]] = {
    **{name: partial(series, method=name) for name in ("independent", "BCT", "BT2", "DMU")},
    "DMU, refreshed three times": refreshed,
}


def run(
    *,
    sets: tuple[Path, ...] = (),
    images: tuple[Path, ...] = (),
    names: tuple[str, ...] = (),
    size: str = "standard",
    seeds: int = 5,
    pairs: int = 6000,
    items: int = 3000,
    queries: int = 1000,
    epochs: int = 30,
    width: int = 512,
) -> Iterator[Row]:
    """Chains of transforms on embedded sets, and chains of models on images."""
    shape: dict[str, Any] = {"branch_width": width // 2, "mixer_width": width, "epochs": epochs, "batch_size": 256}
    for data in read(sets) if sets or not images else ():
        for about, trial in trials(data, seeds, pairs=pairs, gallery=items, queries=queries):
            yield from ({"part": "pairs", **about, **row} for row in of_pairs(trial, **shape))
    size = size if sets or images else "smoke"
    for path, name in zip(images or (None,), names or ("Digits",), strict=True) if images or not sets else ():
        loaded = read_images(path, name, SIZES[size].pixels)
        for seed in range(seeds):
            models = Models(draw_images(loaded, "classes", SIZES[size], seed))
            for method, measure in IMAGES.items():
                about = {"part": "series", "size": size, "set": name, "method": method, "seed": seed}
                yield about | measure(models)


def pairs_table(record: Record) -> str:
    """Direct and chained hops from the first to the third version: CMC-1 / mAP."""
    lines = []
    for name, rows in cases(where(record.rows, part="pairs"), "set", "classes").items():
        for side in (", side", ""):
            if lost := apart(rows, (f"chained{side}", "t/h map"), (f"direct{side}", "t/h map")):
                cells = [cell(rows, "t/h", method=f"{way}{side}") for way in ("direct", "chained")]
                ends = [cell(rows, figure, method="none") for figure in ("s/s", "t/t")]
                lines.append([name, "with" if side else "without", ends[0], *cells, lost.signed, ends[1]])
    ways = ("direct", "chained", "chained less direct, mAP")
    head = ["set, classes", "side-information", "first model", *ways, "third model"]
    return markdown(head, lines)


# What is compared -> part, method and figure, method and figure it is compared with.
COMPARED = {
    "`FCT`, five hops, less the first model": ("steps", ("FCT", "6/h(1)"), ("independent", "1/1")),
    "the same with SimCLR stored": ("steps", ("FCT + SimCLR", "6/h(1)"), ("independent", "1/1")),
    "BCT, third model in the first gallery, less the first model": ("series", ("BCT", "3/1"), ("independent", "1/1")),
    "BT^2, the same": ("series", ("BT2", "3/1"), ("independent", "1/1")),
    "BT^2 less BCT, there": ("series", ("BT2", "3/1"), ("BCT", "3/1")),
    "BT^2 less BCT, third model in its own gallery": ("series", ("BT2", "3/3"), ("BCT", "3/3")),
    "DMU refreshed twice, heads of both kinds, less the first model": (
        "series", ("DMU, refreshed", "3/h(h(1)), from both"), ("independent", "1/1"),
    ),
    "DMU refreshed three times, less the first model": (
        "series",
        ("DMU, refreshed three times", "of four: 4/h(h(h(1)))"),
        ("DMU, refreshed three times", "of four: 1/1"),
    ),
}  # fmt: skip


def compared(record: Record) -> Iterator[tuple[str, str, list[Interval]]]:
    """What is compared, size and set, CMC-1 and mAP."""
    for what, (part, left, right) in COMPARED.items():
        rows = where(record.rows, part=part)
        for case, mine in cases(rows, "set", "size").items():
            pair = both(mine, left, right)
            if pair and (pair[0].seeds > 2 or len(rows) < 10):
                yield what, case, pair


def images_table(record: Record) -> str:
    """Series of models on images: differences seed by seed, CMC-1, mAP."""
    lines = [[what, case, *(one.signed for one in pair), pair[0].seeds] for what, case, pair in compared(record)]
    return markdown(["", "set, size", "CMC-1", "mAP", "seeds"], lines)


def chart(record: Record) -> Figure:
    """MAP of direct and chained hops over the first model."""
    found = cases(where(record.rows, part="pairs"), "set", "classes")
    names = {"direct": "direct", "chained": "chained"}
    names |= {f"{way}, side stored": f"{way}, side" for way in names}

    def gains(method: str, figure: str) -> list[Interval | None]:
        return [apart(rows, (method, figure), ("none", "s/s map")) for rows in found.values()]

    series = {name: gains(method, "t/h map") for name, method in names.items()}
    marks = {"third model": gains("none", "t/t map")}
    label = "mAP over the first model, points"
    return chart_of(list(found), series, marks, height=0.75 * len(found) + 1.2, label=label)


SMOKE = {"seeds": 1, "pairs": 200, "items": 120, "queries": 40, "epochs": 2, "width": 16}
TABLES = {"pairs": pairs_table, "images": images_table}
