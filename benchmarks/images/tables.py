"""Tables and chart of methods on images: differences seed by seed, in points."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from matplotlib import figure as pictures

from benchmarks.dots import chart_of
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import Figure, Interval, both, by_seed, signed, where

COSFACE, ALL = ", CosFace", "everything re-embedded"
# Name in tables -> method of the record, figure with nothing re-embedded.
BEFORE = {
    "naive swap": ("independent", "t/s"),
    "BCT": ("BCT", "t/s"),
    "BT^2": ("BT2", "t/s"),
    "DMU, as stored": ("DMU", "t/s"),
    "DMU, refreshed": ("DMU", "t/h"),
    "BCT, refreshed by `Residual`": ("BCT, refreshed by distance", "t/h"),
    "`FCT`": ("FCT", "t/h"),
    "`FCT`, SimCLR stored": ("FCT + SimCLR", "t/h"),
    "`FCT`, a second model stored": ("FCT + another seed", "t/h"),
    "`FastFill`": ("FastFill, level chosen", "t/h"),
    "`Residual`": ("residual, sigma", "t/h"),
    "`KernelRidge`": ("kernel ridge", "t/h"),
    ALL: ("independent", "t/t"),
}
SHOWN = ("BCT", "BT^2", "DMU, refreshed", "`FCT`", "`FastFill`", "`KernelRidge`")


class Case(dict[str, str]):
    """The rows of one set at one size, by the loss that its models are compared by.

    Args:
        rows: All rows of a record.
        size: Size of the run.
        setting: What the source knows.
        name: The set.
    """

    def __init__(self, rows: list[Row], size: str, setting: str, name: str) -> None:
        super().__init__(set=name, size=size, setting=setting)
        self.rows = where(rows, **self)
        # ArcFace leaves CIFAR-10's vectors opposite to the rows of the head: its rows by CosFace count.
        self.loss = COSFACE if any(row["method"] == f"independent{COSFACE}" for row in self.rows) else ""
        self.title = name.split(",")[0] + (", papers' network" if size == "gpu" else "") + self.loss

    def figures(self, method: str, figure: str) -> dict[int, float]:
        """Seed -> figure of a method."""
        return by_seed(self.rows, figure, method=f"{method}{self.loss}")

    def both(self, left: Figure, right: Figure) -> list[Interval]:
        """How much one method's figure is above another's: CMC-1, mAP."""
        return both(self.rows, *((f"{method}{self.loss}", figure) for method, figure in (left, right)))


def cases(rows: list[Row], setting: str) -> list[Case]:
    """Sets that have rows of a setting; of the size "quick" only if no other size has it, and none of "paper"."""
    known = dict.fromkeys((row["size"], row["set"]) for row in where(rows, setting=setting) if row["size"] != "paper")
    large = [case for case in known if case[0] != "quick"] or list(known)
    return [Case(rows, size, setting, name) for size, name in large]


def gain(case: Case, name: str) -> list[Interval]:
    """A method with nothing re-embedded, less the old model: CMC-1, mAP."""
    return case.both(BEFORE[name], ("independent", "s/s"))


def before_table(setting: str) -> Callable[[Record], str]:
    """A table of what each method gains with nothing re-embedded: CMC-1, mAP."""

    def table(record: Record) -> str:
        found = cases(record.rows, setting)
        lines = []
        for name in BEFORE:
            cells = [signed(gain(case, name)) for case in found]
            if any(cells):
                lines.append([name, *cells])
        return markdown(["nothing re-embedded", *(case.title for case in found)], lines)

    return table


def chart(record: Record) -> pictures.Figure:
    """MAP over the old model with nothing re-embedded, by set."""
    found = cases(record.rows, "classes")

    def gains(name: str) -> list[Interval | None]:
        return [next(iter(gain(case, name)[1:]), None) for case in found]

    series, marks = {name.strip("`"): gains(name) for name in SHOWN}, {"all re-embedded": gains(ALL)}
    names = [case.title.replace(", ", "\n") for case in found]
    return chart_of(names, series, marks, height=0.95 * len(found) + 1.3, label="mAP over the old model, points")


TABLES: Mapping[str, Callable[[Record], str]] = {name: before_table(name) for name in ("classes", "data")}
