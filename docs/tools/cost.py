"""Costs and times of an upgrade, from the size of a gallery and the price of its model.

    python docs/tools/cost.py --items 5e6 --tokens 200 --price 0.02 --rate 500 --shares 0.02 0.1 1
    python docs/tools/cost.py --write

Prints money and time for each native share. With `--write` the table of docs/guides/cost.md is written again, which
`tests/docs/test_cost.py` compares.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "guides" / "cost.md"
MARKS = "<!-- begin: costs -->", "<!-- end: costs -->"
HOP_RATE = 20_000  # vectors a second on two cores, at the widths of FCT's network
FIRST_SHARE, FIRST_LEAST, FIRST_MOST = 0.02, 100, 2_000  # the first sample of a self-training upgrade


@dataclass(frozen=True)
class Case:
    """A gallery and its target model.

    Args:
        name: What it is.
        items: Items of the gallery.
        tokens: Tokens of an item; 0 for a model of one's own.
        price: Money for a million tokens.
        rate: Items that the model embeds in a second, by the rate limit of an endpoint or the speed of a machine.
    """

    name: str
    items: int
    tokens: float
    price: float
    rate: float

    def money(self, embedded: float) -> float:
        """Price of some embedded items."""
        return embedded * self.tokens * self.price / 1e6

    def seconds(self, embedded: float) -> float:
        """Duration of the hop of all items and of the backfill of some."""
        return self.items / HOP_RATE + embedded / self.rate

    def first(self) -> int:
        """Items of the first sample."""
        return min(self.items, max(FIRST_LEAST, min(FIRST_MOST, round(self.items * FIRST_SHARE))))


CASES = (
    Case("a million texts, an API at 0.02 a million tokens", 1_000_000, 200, 0.02, 500),
    Case("ten million texts, the same API", 10_000_000, 200, 0.02, 500),
    Case("ten million texts, an API at 0.13", 10_000_000, 200, 0.13, 500),
    Case("a million images, one CPU machine", 1_000_000, 0, 0, 20),
    Case("ten million images, one GPU", 10_000_000, 0, 0, 500),
)


def table(cases: Sequence[Case], shares: Sequence[float]) -> str:
    """A row for each case: money and time of the first sample, and of each share."""
    head = ["gallery and model", "first sample", *(f"{share:.0%}" for share in shares)]
    rows = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for case in cases:
        embedded = [case.first(), *(share * case.items for share in shares)]
        rows.append([case.name, *(f"{_money(case.money(each))}{_duration(case.seconds(each))}" for each in embedded)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _money(money: float) -> str:
    return f"{money:,.2f}; " if money else ""


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 1.95 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def written(text: str) -> str:
    """The page's text with a table that is made again."""
    before, _, rest = text.partition(MARKS[0])
    return f"{before}{MARKS[0]}\n\n{table(CASES, (0.1, 0.25, 1))}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"


def main() -> None:
    """Print a case of the options, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=float, default=1e6)
    parser.add_argument("--tokens", type=float, default=0, help="tokens of an item")
    parser.add_argument("--price", type=float, default=0, help="money for a million tokens")
    parser.add_argument("--rate", type=float, default=500, help="items that the model embeds in a second")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.25, 1])
    parser.add_argument("--write", action="store_true", help="write the table of docs/guides/cost.md")
    options = parser.parse_args()
    if options.write:
        PAGE.write_text(written(PAGE.read_text()))
    else:
        case = Case(f"{options.items:,.0f} items", int(options.items), options.tokens, options.price, options.rate)
        print(table([case], options.shares))


if __name__ == "__main__":
    main()
