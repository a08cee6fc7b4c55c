r"""Do the sentences of a page say what the journals hold? Checks statements, and finds figures that none covers.

    python -m benchmarks.claims [docs/results/methods.md docs/training.md]

Prints each statement that does not hold, with what was found, and each figure without a statement; the exit status is 1
when there is one. How statements are written: docs/results/README.md.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks.methods.settings import EARLIER
from benchmarks.pairs.journal import Journal, Record
from compatstore.errors import InvalidInput, NotFound

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
# Name in statements -> journal and size.
JOURNALS = {
    "methods": ("methods", "quick"),
    "standard": ("methods", "standard"),
    "gpu": ("methods", "gpu"),
    "pairs": ("pairs", "cpu"),
    "chained": ("chains", "cpu"),
    "balanced": ("balance", "cpu"),
    "many": ("pairs", "many"),
    "side": ("side_information", "16 pixels"),
    "served": ("fusion", "1500 items, 600 queries, cosine, chosen by map"),
    "taught": ("learning", "4000 items, 1000 queries"),
    "taught_more": ("learning", "20000 items, 1000 queries"),
    "doubted": ("learning_expected", "4000 items, 1000 queries"),
}
SETS = ("Glyphs", "Caltech-101")
FEWEST_SEEDS = 3  # that two rows have in common, where one has others too

_SKIPPED = re.compile(r"<!-- table: .*?<!-- end -->|^```.*?^```$|^\|.*?$|^#.*?$", re.DOTALL | re.MULTILINE)
_CHECK = re.compile(r"<!-- check\b(.*?)-->", re.DOTALL)
_BLOCKS = re.compile(r"\n\s*\n|\n(?=\s*(?:\*|\d+\.) )")
_SPANS = re.compile(r"`[^`]*`|\]\([^)]*\)")
# Decimals, and whole numbers of per cent or points.
_FIGURES = re.compile(r"(?<![\w.,])\d[\d,]*\.\d+|(?<![\w.,])\d+(?= (?:%|points?\b|(?:to|and|or) \d+ (?:%|points?\b)))")
_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True, eq=False)
class Figure:
    """One number a seed, in points where it is a share. Compared with a number it is rounded as that is written.

    Args:
        by_seed: Seed -> value.
        said: What the block's statements have covered so far.
    """

    by_seed: Mapping[int, float]
    said: set[str]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return statistics.mean(self.by_seed.values())

    @property
    def reach(self) -> float:
        """Half of the 95 % interval by the deviation over seeds (Student's t); of one seed nothing is known."""
        count = len(self.by_seed)
        if count < 2:
            return float("inf")
        from scipy.stats import t as students_t

        return float(students_t.ppf(0.975, count - 1)) * statistics.stdev(self.by_seed.values()) / count**0.5

    def of(self, seed: int) -> Figure:
        """Keep one seed."""
        return Figure({seed: self.by_seed[seed]}, self.said)

    def __eq__(self, written: object) -> bool:
        return _is(self.mean, str(written), self.said)

    def __gt__(self, other: Figure | float) -> bool:
        return (self - other).mean > 0

    def __lt__(self, other: Figure | float) -> bool:
        return (self - other).mean < 0

    def __sub__(self, other: Figure | float) -> Figure:
        return self._with(other, lambda mine, its: mine - its)

    def __truediv__(self, other: Figure | float) -> Figure:
        return self._with(other, lambda mine, its: mine / its)

    def __mul__(self, factor: float) -> Figure:
        return self._with(factor, lambda mine, its: mine * its)

    def __repr__(self) -> str:
        return f"{self.mean:.2f} (by seed {', '.join(f'{value:.2f}' for value in self.by_seed.values())})"

    def _with(self, other: Figure | float, combine: Callable[[float, float], float]) -> Figure:
        its = other.by_seed if isinstance(other, Figure) else dict.fromkeys(self.by_seed, other)
        both = [seed for seed in self.by_seed if seed in its]
        if len(both) < min(len(its.keys() | self.by_seed.keys()), FEWEST_SEEDS):
            expected = f"seeds {list(self.by_seed)}, or {FEWEST_SEEDS} of them at least"
            raise InvalidInput("compare by seed", expected=expected, found=str(list(its)))
        return Figure({seed: combine(self.by_seed[seed], its[seed]) for seed in both}, self.said)


@dataclass(frozen=True, eq=False)
class Cell:
    """CMC-1 and mAP of one row; compared with "63.4 / 48.5" both are."""

    cmc: Figure
    map: Figure

    def __eq__(self, written: object) -> bool:
        first, _, second = str(written).partition(" / ")
        return (self.cmc == first) & (self.map == second)

    def __sub__(self, other: Cell) -> Cell:
        return Cell(self.cmc - other.cmc, self.map - other.map)

    def __repr__(self) -> str:
        return f"{self.cmc.mean:.1f} / {self.map.mean:.1f}"


def _number(value: Any) -> float:
    """A figure's mean, a printed cell's first number, or a number itself."""
    if isinstance(value, Figure):
        return value.mean
    return value.numbers[0] if isinstance(value, Printed) else float(value)


def clear(*differences: Figure) -> bool:
    """Whether each is above zero by more than chance: its 95 % interval over seeds leaves zero out."""
    return all(one.mean > one.reach for one in differences)


def level(*differences: Figure) -> bool:
    """Whether the 95 % interval over seeds of each holds zero."""
    return all(abs(one.mean) <= one.reach for one in differences)


def _is(value: float, written: str, said: set[str]) -> bool:
    digits = len(written.partition(".")[2])
    said.add(written.lstrip("+-"))
    return f"{value:.{digits}f}" == f"{float(written):.{digits}f}"


@cache
def _records(name: str) -> tuple[Record, ...]:
    journal, size = JOURNALS[name]
    earlier = EARLIER if journal == "methods" else {}
    return tuple(r for r in Journal(RESULTS / f"{journal}.jsonl", earlier).records if r["size"] == size)


def sets_of(journal: str) -> list[str]:
    """Names of the sets that a journal has rows of."""
    return list(dict.fromkeys(record["set"] for record in _records(journal)))


def look_up(journal: str, said: set[str], setting: str, of: str, method: str, *path: str) -> Cell | Figure:
    """Take a row's figures of all seeds: `methods("classes", "Glyphs", "BCT", "t/s")`.

    Raises:
        NotFound: No record has it.
    """
    wanted = {"setting": setting, "set": of, "method": method}
    rows = [r for r in _records(journal) if all(r[name] == value for name, value in wanted.items())]
    found: dict[int, Any] = {}
    for row in rows:
        node: Any = row
        for step in path:
            node = node.get(step) if isinstance(node, dict) else None
        if node is not None:
            found[row["seed"]] = node
    if not found:
        raise NotFound(f"look up {(setting, of, method, *path)}", expected=f"a row of {journal}", found="none")
    if isinstance(next(iter(found.values())), dict):
        shares = ({seed: 100 * node[name] for seed, node in found.items()} for name in ("cmc1", "map"))
        return Cell(*(Figure(share, said) for share in shares))
    return Figure(found, said)


@dataclass(frozen=True, eq=False)
class Printed:
    """The numbers of one cell of a table that stands in the page; compared as its first one."""

    numbers: tuple[float, ...]
    said: set[str]

    def __getitem__(self, place: int) -> Printed:
        return Printed(self.numbers[place:], self.said)

    def __eq__(self, written: object) -> bool:
        return _is(self.numbers[0], str(written), self.said)

    def __gt__(self, other: Printed | float) -> bool:
        return self - other > 0

    def __lt__(self, other: Printed | float) -> bool:
        return self - other < 0

    def __sub__(self, other: Printed | float) -> Any:
        return Computed(self.numbers[0] - (other.numbers[0] if isinstance(other, Printed) else other), self.said)

    def __repr__(self) -> str:
        return str(self.numbers)


class Computed(float):
    """A number that a statement has worked out."""

    said: set[str]

    def __new__(cls, value: float, said: set[str]) -> Computed:
        """Make one that remembers what was said of it."""
        made = super().__new__(cls, value)
        made.said = said
        return made

    def __eq__(self, written: object) -> bool:
        return _is(self, str(written), self.said)

    __hash__ = None  # type: ignore[assignment]


def printed(page: str, said: set[str], column: str, *row: str) -> Printed:
    """Take a cell of the page's own tables by its column's name and the first cells of its row.

    Raises:
        NotFound: No table, or more than one row, has it.
    """
    found, header = [], [""]
    for line in page.splitlines():
        cells = [cell.strip(" *") for cell in line.strip().strip("|").split(" | ")] if line.startswith("|") else []
        if cells and set(line) <= set("|-: "):
            continue
        if not cells or (cells and header == [""]):
            header = cells or [""]
        elif column in header and tuple(cells[: len(row)]) == row:
            found.append(cells[header.index(column)])
    if len(found) != 1:
        raise NotFound(f"look up {(column, *row)}", expected="one such cell in the page's tables", found=str(found))
    return Printed(tuple(float(number) for number in _NUMBERS.findall(found[0].replace(",", ""))), said)


@dataclass
class Statements:
    """The statements beside one block, and what they have covered."""

    page: str
    said: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.names: dict[str, Any] = {name: partial(look_up, name, self.said) for name in JOURNALS}
        self.names |= {"printed": partial(printed, self.page, self.said), "SETS": SETS}
        self.names |= {"clear": clear, "level": level}
        self.names |= {"spans": self.spans, "quoted": self.quoted, "mean": self.mean}

    def spans(self, values: Sequence[Any], low: float | str, high: float | str) -> bool:
        """Whether values reach from one written figure to another."""
        means = list(map(_number, values))
        return _is(min(means), str(low), self.said) & _is(max(means), str(high), self.said)

    def mean(self, values: Sequence[Any]) -> Computed:
        """The mean of several rows or cells."""
        return Computed(statistics.mean(map(_number, values)), self.said)

    def quoted(self, source: str, *figures: float | str) -> bool:
        """Cover figures that are no measurement of ours: a paper's table, a setting, a definition."""
        self.said |= {str(figure).lstrip("+-") for figure in figures}
        return bool(source)

    def wrong(self, line: str) -> str:
        """Run one line; say what is wrong with it, or ""."""
        try:
            tree = ast.parse(line)
            if not isinstance(tree.body[0], ast.Expr):
                exec(compile(tree, "check", "exec"), self.names)
                return ""
            if eval(compile(ast.Expression(tree.body[0].value), "check", "eval"), self.names) is True:
                return ""
            return f"does not hold: {line} (found {', '.join(self._sides(tree.body[0].value))})"
        except Exception as error:
            return f"cannot be checked: {line}: {type(error).__name__}: {error}"

    def _sides(self, node: ast.expr) -> Iterator[str]:
        """What the parts of a statement are: the sides of comparisons, the arguments of calls."""
        if isinstance(node, ast.BoolOp):
            for part in node.values:
                yield from self._sides(part)
            return
        parts = [node]
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call):
            parts = [part.value if isinstance(part, ast.Starred) else part for part in node.args]
        for part in parts:
            value = eval(ast.unparse(part), self.names)
            yield str(list(value) if isinstance(part, ast.GeneratorExp) else value)


def findings(page: str, *, covered: Callable[[str], bool] = lambda prose: True) -> list[str]:
    """What is wrong with a page: statements that do not hold, and figures without a statement.

    Args:
        page: Its text.
        covered: Of a block's prose, whether each figure in it needs a statement.
    """
    found = []
    for block in _BLOCKS.split(_SKIPPED.sub("", page)):
        statements, prose = Statements(page), _CHECK.sub("", block)
        found += filter(None, map(statements.wrong, _statements(block)))
        if covered(prose):
            figures = _FIGURES.findall(re.sub(r"<!--.*?-->", "", _SPANS.sub(" ", prose), flags=re.DOTALL))
            bare = [figure for figure in dict.fromkeys(figures) if figure not in statements.said]
            if bare:
                found.append(f"no statement covers {', '.join(bare)} in: {' '.join(prose.split())[:100]}")
    return found


def _statements(block: str) -> Iterator[str]:
    """The statements beside a block; one ends with the line at which it can be parsed."""
    for check in _CHECK.findall(block):
        waiting = ""
        for line in filter(str.strip, check.splitlines()):
            waiting = f"{waiting} {line.strip()}".strip()
            if _parses(waiting):
                yield waiting
                waiting = ""
        if waiting:
            yield waiting


def _parses(statement: str) -> bool:
    try:
        ast.parse(statement)
    except SyntaxError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path, nargs="*", default=sorted(RESULTS.glob("*.md")))
    wrong = {page: findings(page.read_text()) for page in parser.parse_args().pages}
    for page, found in wrong.items():
        print(f"{page}: {len(found)} findings", *found, sep="\n  ")
    sys.exit(any(wrong.values()))


if __name__ == "__main__":
    main()
