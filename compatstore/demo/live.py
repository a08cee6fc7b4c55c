"""What the demo does to the gallery, by the API that every user has."""

from __future__ import annotations

from collections.abc import Callable

from compatstore.demo.digits import ImageFiles
from compatstore.demo.models import DemoModels, Transforms
from compatstore.gallery import Gallery
from compatstore.upgrade.plan import Plan
from compatstore.upgrade.requests.backfill import Backfill

Say = Callable[[str], None]


def fill(path: str, images: ImageFiles, models: DemoModels) -> Gallery:
    """Make a gallery and add image files; the version's own models embed them."""
    gallery = Gallery.create(path, models.v1)
    gallery.add({"id": images.ids.tolist(), "source": images.sources, "label": images.labels})
    return gallery


def hop(gallery: Gallery, models: DemoModels, transforms: Transforms, seed: int, say: Say) -> None:
    """Give every item a vector of v2 without looking at a single image; v1 goes on being searched."""
    gallery.register(models.v2)
    gallery.link(transforms.plain)
    via = gallery.link(transforms.with_side)
    say(_in_words(gallery.plan("v2", via=via, backfill=Backfill(seed=seed))))
    report = gallery.upgrade("v2", via=via, backfill=Backfill(seed=seed))
    say(f"Hop: {report.transformed} vectors in {report.seconds:.2f} s, no image read. v1 is still what searches use.")


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
