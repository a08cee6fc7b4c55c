"""The life of one upgrade, in a straight line: train, fill, evaluate, hop, backfill, cut over, report.

Everything is done to the gallery, and measured, by the API that every user has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compatstore.artifacts import Artifact
from compatstore.demo.data import DemoDirectory, Digits, write_digits
from compatstore.encoders import NetworkEncoder
from compatstore.evaluation import DecisionTable
from compatstore.gallery import Gallery
from compatstore.report.files import write_report
from compatstore.trainers import FCT, Augmentation, Autoencoder, Images, Independent, Pairs
from compatstore.upgrade.requests.backfill import Backfill
from compatstore.upgrade.requests.details import Details
from compatstore.upgrade.requests.queries import Queries
from compatstore.versions import EmbeddingVersion

if TYPE_CHECKING:
    from compatstore.demo import DemoSettings

SOURCE_DIGITS = range(5)
PARTIAL = (0.25, 0.5)
DRAWN = tuple(eighth / 8 for eighth in range(1, 8))
PLAIN, WITH_SIDE = "hop without side-information", "hop with side-information"

Say = Callable[[str], None]


def tell_story(directory: DemoDirectory, settings: DemoSettings, seed: int, say: Say) -> tuple[Digits, DecisionTable]:
    """Take a gallery of digits from one model to a better one, on disk.

    Args:
        directory: An empty folder; the gallery stays in it, cut over and fully backfilled.
        settings: Size of the models.
        seed: Seed of split, training and order of the backfill.
        say: Called with a line for each step.

    Returns:
        The data, and all ways to serve the gallery as `evaluate` measured them before the upgrade.
    """
    digits = write_digits(directory, seed)
    say(f"Wrote {len(digits.gallery)} images for the gallery, and {len(digits.queries)} others to search with.")
    say("Training v1 on the digits 0 to 4, its side-information on the same, and v2 on all ten ...")
    v1, v2 = train_models(digits.training, settings, seed)
    say("Learning to turn vectors of v1 into vectors of v2, without and with side-information ...")
    transforms = train_transforms(digits.training, v1, v2, settings, seed)
    transforms[PLAIN].save(directory.without_side)
    transforms[WITH_SIDE].save(directory.with_side)
    gallery = Gallery.create(str(directory.gallery), v1)
    images = digits.gallery
    gallery.add({"id": images.ids.tolist(), "source": images.sources, "label": images.labels})
    say(f"The gallery is live with {len(gallery)} items in v1.")
    gallery.register(v2)
    queries = queries_of(digits)
    say("Evaluating all ways to serve it during an upgrade; nothing is written ...")
    decided = evaluate(gallery, transforms, queries, seed)
    draw_curve(decided, directory.curve)
    say(decided[WITH_SIDE].advice.text)
    via, order = transforms[WITH_SIDE].id, Backfill(seed=seed)
    plan = gallery.upgrade("v2", transform=via, backfill=order, dry_run=True)
    steps = ", ".join(f"{step.name} of {step.rows} items" if step.rows else step.name for step in plan.steps)
    say(f"Plan for {plan.source} to {plan.target}: {steps}.")
    done = gallery.upgrade("v2", transform=via, backfill=order)
    say(f"Hop: {done.transformed} vectors in {done.seconds:.2f} s, no image read. Searches still use v1.")
    for share in PARTIAL:
        backfill(gallery, share, say)
    switched = gallery.cutover("v2")
    say(f"Cutover: searches use {switched.active} now; {switched.previous} is kept, so a rollback costs nothing.")
    backfill(gallery, 1.0, say)
    say("Measuring the upgrade ...")
    report = gallery.report("v2", labels=queries, sample=len(gallery), details=Details())
    write_report(report, directory.report)
    return digits, decided[WITH_SIDE].showing(PARTIAL)


def queries_of(digits: Digits) -> Queries:
    """The images to search with, each with the gallery's images of the same digit as its correct answers."""
    items = {
        int(digit): dict.fromkeys(digits.gallery.ids[digits.gallery.labels == digit].tolist(), 1)
        for digit in np.unique(digits.gallery.labels)
    }
    ids = digits.queries.ids.tolist()
    correct = {name: items[int(digit)] for name, digit in zip(ids, digits.queries.labels, strict=True)}
    return Queries(queries={"id": ids, "path": digits.queries.sources}, qrels=correct)


def evaluate(
    gallery: Gallery, transforms: Mapping[str, Artifact], queries: Queries, seed: int
) -> dict[str, DecisionTable]:
    """Link both transforms and measure an upgrade by each: name of the curve -> all ways to serve the gallery."""
    return {
        name: gallery.evaluate(
            "v2",
            labels=queries,
            sample=len(gallery),
            shares=DRAWN,
            transform=gallery.artifacts.link(transform),
            backfill=Backfill(order="random", seed=seed),
        )
        for name, transform in transforms.items()
    }


def backfill(gallery: Gallery, share: float, say: Say) -> None:
    """Embed more of the gallery natively, in random order; native items are not embedded again."""
    report = gallery.upgrade("v2", backfill=share)
    say(f"Backfill to {share:.0%}: {report.backfilled} images embedded in {report.seconds:.1f} s.")


def draw_curve(decided: Mapping[str, DecisionTable], path: Path) -> None:
    """Draw mAP against the share of the gallery that is embedded natively, 1200 x 800 pixels, for light and dark pages.

    Args:
        decided: Name of a curve -> measurement at each share, of the same queries.
        path: The PNG file.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    grey = "#808080"  # its contrast is 4 to 1 on a white page and on a dark one
    style = {"font.family": "DejaVu Sans", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    with mpl.rc_context(style | dict.fromkeys(inks, grey) | {"axes.facecolor": "none"}):
        figure = Figure(figsize=(6, 4), layout="constrained", facecolor="none")
        axes = figure.add_subplot()
        for (name, table), colour, marker in zip(decided.items(), ("#D55E00", "#0072B2"), "so", strict=True):
            points = [(100 * row.share, 100 * row.figures["map"].value) for row in table.budgets]
            axes.plot(*zip(*points, strict=True), label=name, color=colour, marker=marker, clip_on=False, zorder=3)
        table = next(iter(decided.values()))
        for row, dashes in ((table.rows[0], "--"), (table.budget(1.0), ":")):
            value = 100 * row.figures["map"].value
            axes.axhline(value, label=f"{row.name} ({value:.1f})", color=grey, linestyle=dashes)
        axes.set(xlabel="Gallery embedded natively (%)", ylabel="mAP (%)", xlim=(0, 100))
        axes.grid(axis="y", color=grey, alpha=0.3)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        figure.savefig(path, dpi=200)


def train_models(training: Images, settings: DemoSettings, seed: int) -> tuple[EmbeddingVersion, EmbeddingVersion]:
    """Train the models of `v1`, of its side-information and of `v2`, each from random weights of its own.

    An autoencoder is the side-information here: over three seeds it was level with SimCLR in CMC-1, half a point of
    mAP ahead, and trained in half of the time.
    """
    known = training.of_classes(SOURCE_DIGITS)
    sizes = {
        part: {name: getattr(settings, f"{part}_{name}") for name in ("dim", "width", "epochs")}
        for part in ("source", "side", "target")
    }
    source = Independent(**sizes["source"], seed=seed).fit(known)
    side = Autoencoder(**sizes["side"], seed=seed).fit(known).encoder
    crops = Augmentation(smallest_crop=0.8)
    target = Independent(**sizes["target"], augmentation=crops, seed=seed + 1000).fit(training)
    v1 = EmbeddingVersion(
        "v1",
        dim=settings.source_dim,
        metric="l2",
        encoder=_one_by_one(source.encoder),
        side_dim=settings.side_dim,
        side_encoder=_one_by_one(side),
        head=source.head,
    )
    encoder = _one_by_one(target.encoder)
    return v1, EmbeddingVersion("v2", dim=settings.target_dim, metric="l2", encoder=encoder, head=target.head)


def train_transforms(
    training: Images, v1: EmbeddingVersion, v2: EmbeddingVersion, settings: DemoSettings, seed: int
) -> dict[str, Artifact]:
    """Train FCT on the training images embedded by both models: PLAIN and WITH_SIDE -> transform.

    The network is a quarter of the paper's in width and the batch an eighth: there are 718 pairs, not a million.
    """
    fct = FCT(
        branch_width=settings.transform_width // 4,
        mixer_width=settings.transform_width,
        epochs=settings.transform_epochs,
        batch_size=128,
        seed=seed,
    )
    assert v1.encoder is not None
    assert v1.side_encoder is not None
    assert v2.encoder is not None
    images = list(training.images)
    pairs = Pairs(v1.encoder.encode(images), v2.encoder.encode(images), source_version=v1, target_version=v2)
    with_side = replace(pairs, side=v1.side_encoder.encode(images))
    return {PLAIN: fct.fit(pairs), WITH_SIDE: fct.fit(with_side)}


def _one_by_one(encoder: NetworkEncoder) -> NetworkEncoder:
    """Return the same model, embedding one image at a time.

    The last bits of a vector depend on the size of the batch that it is computed in. One by one they do not, so a
    gallery backfilled in three steps equals one embedded at once, bit for bit.
    """
    return NetworkEncoder.from_bytes(encoder.to_bytes(), batch_size=1)
