"""The life of one upgrade, in a straight line: train, fill, hop, backfill, cut over, measure, draw."""

from __future__ import annotations

from collections.abc import Callable

from compatstore.demo import live
from compatstore.demo.digits import Digits, write_digits
from compatstore.demo.directory import DemoDirectory
from compatstore.demo.measure import Judge
from compatstore.demo.models import DemoModels, Transforms, train_models, train_transforms
from compatstore.demo.pictures import draw_curve, draw_neighbours, find_neighbours, shown_queries
from compatstore.demo.report import DemoRow
from compatstore.demo.settings import DemoSettings
from compatstore.demo.table import Vectors, measure_all
from compatstore.gallery import Gallery

PARTIAL = (0.25, 0.5)


def tell_story(
    directory: DemoDirectory, settings: DemoSettings, seed: int, say: Callable[[str], None]
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
    gallery = live.fill(str(directory.gallery), digits.gallery, models)
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
    say: Callable[[str], None],
) -> Vectors:
    """Upgrade step by step; read the column after each step, and search as a user would before and after the hop."""
    ids, shown = digits.gallery.ids.tolist(), shown_queries(digits.queries)
    source = gallery.vectors(ids, "v1")
    before = find_neighbours(gallery, digits.queries, shown, "v1")
    live.hop(gallery, models, transforms, seed, say)
    after = find_neighbours(gallery, digits.queries, shown, "v2")
    draw_neighbours(digits.queries, shown, before, after, directory.contact_sheet)
    steps = {0.0: gallery.vectors(ids, "v2")}
    for share in PARTIAL:
        live.backfill(gallery, share, say)
        steps[share] = gallery.vectors(ids, "v2")
    live.cut_over(gallery, say)
    live.backfill(gallery, 1.0, say)
    steps[1.0] = gallery.vectors(ids, "v2")
    return Vectors(
        source_queries=models.source.encode(digits.queries.sources),
        target_queries=models.target.encode(digits.queries.sources),
        source=source,
        plain=transforms.plain.apply(source).vectors,
        steps=steps,
        target=models.target.encode(digits.gallery.sources),
    )


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
