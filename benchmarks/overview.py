"""Figures of all benchmarks, and which method to take for what one has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from matplotlib.figure import Figure

from benchmarks.charts import panels
from benchmarks.dots import dots, legend
from benchmarks.images.tables import Case
from benchmarks.pages import markdown
from benchmarks.papers.run import CLAIMS, LOSS, differences, verdict
from benchmarks.record import Record
from benchmarks.seeds import Interval, apart, by_seed, less, where

OF = ("images", "pairs", "chains", "self_training", "fusion", "hop", "search", "whole_life", "lives")
PHOTOGRAPHS, CLASSES = "Caltech-101", "Glosses, 207 classes"
IMAGE_SETS = ("Glyphs", "Caltech-101", "CIFAR-10")
SHARES = ("0 %", "10 %", "100 %")


class Choice(NamedTuple):
    """A row of "which method when".

    Attributes:
        given: What one has.
        take: The method.
        method: Its rows in the record of images.
        figures: mAP with nothing, a tenth and all of the gallery embedded; "" for the old model's.
    """

    given: str
    take: str
    method: str
    figures: tuple[str, str, str]


CHOICES = tuple(
    Choice(*each)
    for each in (
        ("no pairs and no labels", "self-training upgrade", "self-training", ("", "10% fused", "t/t")),
        ("pairs of other items, no labels", "`KernelRidge`", "kernel ridge", ("t/h", "10% sigma", "t/t")),
        ("pairs of other items with labels", "`FastFill`", "FastFill, level chosen", ("t/h", "10% sigma", "t/t")),
        ("side-information, stored with the old vectors", "`FCT`", "FCT + SimCLR", ("t/h", "10% random", "t/t")),
        ("the next model can be trained", "BCT, searched as stored", "BCT", ("t/s", "10% compared", "t/t")),
        ("the same, and pairs", "its `Residual`", "BCT, refreshed by distance", ("t/h", "10% random", "t/t")),
    )
)  # fmt: skip


def images_of(record: Record) -> dict[str, Case]:
    """The rows of each set of images, trained for 60 epochs."""
    rows = where(record.rows, benchmark="images")
    return {name: Case(rows, "standard", "classes", name) for name in IMAGE_SETS}


def gain(case: Case, choice: Choice, place: int) -> Interval | None:
    """MAP over the old model at one of `SHARES`."""
    source, figure = case.figures("independent", "s/s map"), choice.figures[place]
    found = case.figures(choice.method, f"{figure} map") if figure else {seed: source[seed] for seed in source}
    own = case.figures(choice.method, f"{choice.figures[1]} map")
    return less({seed: value for seed, value in found.items() if seed in own or figure == "t/t"}, source)


def means(differences: Iterable[Interval | None]) -> str:
    """Differences of several sets, "+1.2 / -"."""
    return " / ".join(f"{one.mean:+.1f}" if one else "-" for one in differences)


def choices_table(record: Record) -> str:
    """What one has, what to take, and mAP over the old model at three shares of the gallery embedded."""
    cases, lines = images_of(record).values(), []
    for choice in CHOICES:
        cells = [means(gain(case, choice, place) for case in cases) for place in range(len(SHARES))]
        lines.append([choice.given, choice.take, " / ".join(IMAGE_SETS), *cells])
    lines += [*_with_labels(record), *_new_classes(record), *_left_out(record)]
    return markdown(["what you have", "take", "measured on", *(f"{share} embedded" for share in SHARES)], lines)


def _with_labels(record: Record) -> Iterator[list[str]]:
    """A self-training upgrade with labels, and the same sets without."""
    for given, text in {"labels": "labels of the items, no pairs", "nothing": "the same without labels"}.items():
        cells = ["+0.0 / +0.0"]
        for share in ("10%", "100%"):
            keys = {"benchmark": "self_training", "part": "served", "given": given, "share": share}
            found = [where(record.rows, set=name, **keys) for name in ("Caltech-101", "Characters")]
            cells.append(means(less(by_seed(own, "served map"), by_seed(own, "baseline map")) for own in found))
        yield [text, "self-training upgrade, fused search", "Caltech-101 (EfficientNets) / Characters", *cells]


def _new_classes(record: Record) -> Iterator[list[str]]:
    """Transforms on classes that their pairs lack."""
    rows = where(record.rows, benchmark="pairs", part="methods", classes="unseen")
    found = [where(rows, set=name) for name in ("Caltech-101", "Glosses")]
    for method in ("Residual", "FastFill"):
        cells = [
            means(apart(own, figure, ("none", "s/s map")) for own in found)
            for figure in ((method, "t/h map"), (method, "10% sigma map"), ("none", "t/t map"))
        ]
        given, sets = "pairs of other classes than the gallery's", "Caltech-101 (EfficientNets) / Glosses"
        yield [given, f"`{method}`", sets, *cells]


def _left_out(record: Record) -> Iterator[list[str]]:
    """Transforms on 120 classes, from pairs of 80 others and from none; without the items there is no backfill."""
    rows = where(record.rows, benchmark="pairs", part="left out")
    for method in ("KernelRidge", "Auto", "FastFill", "Unpaired"):
        given = "pairs of 80 classes, none of the gallery's 120" if method != "Unpaired" else "no pairs, and no items"
        figures = ("hop", "10%", "t/t") if method != "Unpaired" else ("hop", "", "")
        cells = [means([apart(rows, (method, f"{figure} map"), (method, "s/s map"))]) for figure in figures]
        yield [given, f"`{method}`", CLASSES, *cells]


def _self_training(record: Record, name: str) -> str:
    rows = where(record.rows, benchmark="self_training", part="served", given="nothing", set=name, share="10%")
    before = by_seed(rows, "baseline map")
    served, full = (less(by_seed(rows, f"{way} map"), before) for way in ("served", "full"))
    return f"{served.signed}, all re-embedded {full.mean:+.1f}" if served and full else ""


def _unlabelled(record: Record, direction: str) -> str:
    rows = where(record.rows, benchmark="fusion", part="weight without labels", direction=direction)
    return f"{sum(row['below'] for row in rows)} of {sum(row['seeds'] for row in rows)}"


def _intervals(record: Record) -> str:
    rows = where(record.rows, benchmark="self_training", part="intervals")
    hold, printed = (sum(row[key] for row in rows) for key in ("hold", "printed"))
    return f"{100 * hold / printed:.1f} % of {printed:,}"


def _claims(record: Record, *, own: bool) -> str:
    words = [verdict(differences(record.rows, claim, own=own)) for claim in CLAIMS if claim["paper"] in LOSS]
    held, failed, measured = (
        words.count("holds"),
        words.count("does not hold"),
        len(words) - words.count("not measured"),
    )
    return f"{held} hold, {failed} do not, of {measured}"


def _ratio(record: Record, group: str) -> str:
    figures = [row["figure"] for row in where(record.rows, benchmark="search", group=group)]
    return f"{min(figures):.2f} to {max(figures):.2f}"


def _hop(record: Record) -> str:
    return f"{max(row['rows_per_second'] for row in where(record.rows, step='float32')):,} items a second"


def _lives(record: Record) -> str:
    rows = where(record.rows, benchmark="lives", process="all")
    kills, wrong = (sum(row.get(key) or 0 for row in rows) for key in ("kills", "violations"))
    return f"{kills:,} kills, {wrong} violations"


PHOTOS, TEXTS = (partial(_self_training, name=name) for name in (PHOTOGRAPHS, "Glosses"))
BETTER, WORSE = (partial(_unlabelled, direction=f"{kind} model") for kind in ("better", "worse"))
NUMBERS: tuple[tuple[str, Callable[[Record], str], str], ...] = (
    ("mAP of photographs, a tenth embedded, no pairs, no labels", PHOTOS, "self_training"),
    ("the same of texts", TEXTS, "self_training"),
    ("galleries served below the old model, without labels, upgrade to a better one", BETTER, "fusion"),
    ("the same, upgrade to a worse one", WORSE, "fusion"),
    ("printed 95 % intervals that hold", _intervals, "self_training"),
    ("claims of four papers, in their own settings", partial(_claims, own=True), "fct"),
    ("the same in other settings", partial(_claims, own=False), "fct"),
    ("search of one version / Lance's own", partial(_ratio, group="one part / Lance"), "speed"),
    ("fused search / one search of Lance", partial(_ratio, group="fused / Lance"), "speed"),
    ("vectors transformed, two cores, FCT's network", _hop, "speed"),
    ("processes killed during upgrades", _lives, "robustness"),
)


def numbers_table(record: Record) -> str:
    """Figures and their pages."""
    return markdown(
        ["figure", "", "page"],
        [[what, figure(record), f"[{page.replace('_', '-')}]({page}.md)"] for what, figure, page in NUMBERS],
    )


def chart(record: Record) -> Figure:
    """MAP over the old model with nothing and with a tenth embedded, on photographs, by what one has."""
    cases = images_of(record)
    figure, axes = panels(7.4, 2)
    names = ["new model alone", "pairs", "pairs, labels", "side-information", "trained next model", "the same, pairs"]
    for one, name in zip(axes, ("Caltech-101", "CIFAR-10"), strict=True):
        case = cases[name]
        series = {
            f"{share} embedded": [gain(case, choice, place) for choice in CHOICES]
            for place, share in enumerate(SHARES[:2])
        }
        marks = {"all re-embedded": [gain(case, choice, 2) for choice in CHOICES]}
        dots(one, names, series, marks, label=f"{name}: mAP over the old model, points")
    legend(axes[0])
    return figure


TABLES = {"numbers": numbers_table, "choices": choices_table}
