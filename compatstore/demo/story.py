"""The life of one upgrade, in a straight line: train, fill, hop, backfill, cut over, measure, draw.

Everything is done to the gallery by the API that every user has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compatstore.arrays import FloatArray
from compatstore.demo.digits import Digits, ImageFiles, write_digits
from compatstore.demo.directory import DemoDirectory
from compatstore.demo.measure import (
    Judge,
    Vectors,
    draw_curve,
    draw_neighbours,
    find_neighbours,
    measure_all,
    shown_queries,
)
from compatstore.demo.models import DemoModels, Transforms, train_models, train_transforms
from compatstore.demo.report import DemoRow
from compatstore.demo.settings import DemoSettings
from compatstore.gallery import Gallery
from compatstore.upgrade.plan import Plan
from compatstore.upgrade.requests.backfill import Backfill

PARTIAL = (0.25, 0.5)

Say = Callable[[str], None]


def tell_story(
    directory: DemoDirectory, settings: DemoSettings, seed: int, say: Say
) -> tuple[Digits, tuple[DemoRow, ...]]:
    """Take a gallery of digits from one model to a better one, on disk.

    Args:
        directory: An empty folder; the gallery stays in it, cut over and fully backfilled.
        settings: How large.
        seed: Of split, training and order of the backfill.
        say: Told what happens, a line a step.

    Returns:
        The data and the table.
    """
    digits = write_digits(directory, seed)
    say(f"Wrote {len(digits.gallery)} images for the gallery, and {len(digits.queries)} others to search with.")
    say("Training v1 on the digits 0 to 4, its side-information on the same, and v2 on all ten ...")
    models = train_models(digits.training, settings, seed)
    say("Learning to turn vectors of v1 into vectors of v2, without and with side-information ...")
    transforms = train_transforms(digits.training, models, settings, seed)
    transforms.plain.save(directory.artifact("without_side"))
    transforms.with_side.save(directory.artifact("with_side"))
    gallery = fill(str(directory.gallery), digits.gallery, models)
    say(f"The gallery is live with {len(gallery)} items in v1.")
    vectors = _upgrade(gallery, directory, digits, models, transforms, seed, say)
    say("Measuring ...")
    return digits, _measure(directory, digits, vectors, seed)


def _upgrade(
    gallery: Gallery,
    directory: DemoDirectory,
    digits: Digits,
    models: DemoModels,
    transforms: Transforms,
    seed: int,
    say: Say,
) -> Vectors:
    """Upgrade step by step; read the column after each step, and search as a user would before and after the hop."""
    ids, shown = digits.gallery.ids.tolist(), shown_queries(digits.queries)
    source = gallery.vectors(ids, "v1")
    before = find_neighbours(gallery, digits.queries, shown, "v1")
    hop(gallery, models, transforms, seed, say)
    after = find_neighbours(gallery, digits.queries, shown, "v2")
    draw_neighbours(digits.queries, shown, before, after, directory.contact_sheet)
    steps = {0.0: gallery.vectors(ids, "v2")}
    queries = {"v1": models.source.encode(digits.queries.sources), "v2": models.target.encode(digits.queries.sources)}
    fuse(gallery, say)
    judge = Judge(queries=digits.queries, gallery=digits.gallery)
    fused = {0.0: _fused(judge, gallery, queries, "s/s & t/h")}
    for share in PARTIAL:
        backfill(gallery, share, say)
        steps[share] = gallery.vectors(ids, "v2")
    cut_over(gallery, say)
    backfill(gallery, 1.0, say)
    steps[1.0] = gallery.vectors(ids, "v2")
    fused[1.0] = _fused(judge, gallery, queries, "s/s & t/t")
    return Vectors(
        source_queries=queries["v1"],
        target_queries=queries["v2"],
        source=source,
        plain=transforms.plain.apply(source).vectors,
        steps=steps,
        target=models.target.encode(digits.gallery.sources),
        fused=fused,
    )


def _fused(judge: Judge, gallery: Gallery, queries: Mapping[str, FloatArray], notation: str) -> DemoRow:
    """Search by both versions as one, as things are now."""
    weight = gallery.status().upgrades[0].weight or 0.0
    alone = {0.0: "v1 alone", 1.0: "v2 alone"}
    note = f"as fuse has chosen: {alone.get(weight, f'{1 - weight:.4g} v1 + {weight:.4g} v2')}"
    name = "that hop and v1 as one" if notation.endswith("h") else "that and v1 as one"
    return judge.ranked(name, notation, gallery, queries, note)


def _measure(directory: DemoDirectory, digits: Digits, vectors: Vectors, seed: int) -> tuple[DemoRow, ...]:
    judge = Judge(queries=digits.queries, gallery=digits.gallery)
    rows = measure_all(judge, vectors)
    curves = {
        name: judge.curve(vectors.target_queries, transformed, vectors.target, seed)
        for name, transformed in (
            ("hop with side-information", vectors.steps[0.0]),
            ("hop without side-information", vectors.plain),
        )
    }
    draw_curve(curves, rows[0], rows[-1], directory.curve)
    return rows


def fill(path: str, images: ImageFiles, models: DemoModels) -> Gallery:
    """Make a gallery and add image files; the version's own models embed them."""
    gallery = Gallery.create(path, models.v1)
    gallery.add({"id": images.ids.tolist(), "source": images.sources, "label": images.labels})
    return gallery


def hop(gallery: Gallery, models: DemoModels, transforms: Transforms, seed: int, say: Say) -> None:
    """Give every item a vector of v2 without looking at a single image; v1 goes on being searched."""
    gallery.register(models.v2)
    gallery.artifacts.link(transforms.plain)
    via = gallery.artifacts.link(transforms.with_side)
    say(_in_words(gallery.upgrade("v2", transform=via, backfill=Backfill(seed=seed), dry_run=True)))
    report = gallery.upgrade("v2", transform=via, backfill=Backfill(seed=seed))
    say(f"Hop: {report.transformed} vectors in {report.seconds:.2f} s, no image read. v1 is still what searches use.")


def fuse(gallery: Gallery, say: Say) -> None:
    """Choose how searches use both versions of the upgrade as one, by the labels of the gallery's own items."""
    fusion = gallery.evaluate("v2", labels="label", sample=len(gallery), choose=True)
    say(f"Both versions as one: {fusion.choice}.")


def backfill(gallery: Gallery, share: float, say: Say) -> None:
    """Embed more of the gallery natively, in random order; what is native already is not embedded again."""
    report = gallery.upgrade("v2", backfill=share)
    say(f"Backfill to {share:.0%}: {report.backfilled} images embedded in {report.seconds:.1f} s.")


def cut_over(gallery: Gallery, say: Say) -> None:
    """Make v2 what searches use."""
    switched = gallery.cutover("v2")
    say(f"Cutover: searches use {switched.active} now; {switched.previous} is kept, so a rollback costs nothing.")


def _in_words(plan: Plan) -> str:
    steps = ", ".join(step.name if not step.rows else f"{step.name} of {step.rows} items" for step in plan.steps)
    return f"Plan for {plan.source} to {plan.target}: {steps}."
