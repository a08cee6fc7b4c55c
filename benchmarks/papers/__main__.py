"""Fill one page a paper, and one across them: what is said, our rows for it, and whether it holds.

    python -m benchmarks.papers docs/results/papers
    python -m benchmarks.papers --open standard

Each page has a table for each size of the journals, between `<!-- size: NAME -->` and `<!-- end -->`.
With `--open` pages stay as they are: the pairs of rows of a size are listed that need further seeds.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.papers.chosen_by import CHOSEN_BY
from benchmarks.papers.said import PAPERS
from benchmarks.papers.verdicts import (
    SIZES,
    SPARSE,
    Above,
    Found,
    Said,
    compared,
    differences,
    found_of,
    table,
    verdict,
)

PAGES = {**PAPERS, "across": CHOSEN_BY}
_MARKED = re.compile(r"(<!-- size: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str, sentences: Sequence[Said]) -> str:
    """Return a page with its tables replaced."""

    def lines(match: re.Match[str]) -> str:
        words = Counter(verdict(found) for said in sentences if (found := found_of(said, match[2])))
        summary = ", ".join(f"{count} {word}" for word, count in words.most_common())
        if match[2] in SPARSE and words:
            summary += f", {len(sentences) - words.total()} not listed"
        if open_yet := sum(any(one.is_open for one in found_of(said, match[2])) for said in sentences):
            summary += f"; {open_yet} with few seeds"
        rows = ["", *table(sentences, match[2])] if words else []
        text = "\n".join([f"Of {len(sentences)} sentences: {summary or 'none measured'}.", *rows])
        return f"{match[1]}\n{text}\n\n{match[3]}"

    return _MARKED.sub(lines, page)


def open_pairs(size: str, sentences: Iterable[Said]) -> list[str]:
    """Lines "setting, set: row way / row way (seeds that both have)", once each: what further seeds would settle."""
    every = dict.fromkeys(above for said in sentences for above in compared(said, size))
    found = [(above, one) for above in every for one in differences(above, size) if one.is_open]
    return list(dict.fromkeys(_open_pair(above, one) for above, one in found))


def _open_pair(above: Above, one: Found) -> str:
    rows = " / ".join(f"{row} {' '.join(way)}" for row, *way in (above.above, above.below))
    seeds = " ".join(map(str, sorted(one.difference.by_seed)))
    return f"{one.setting}, {one.of}: {rows} (seeds {seeds})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("folder", type=Path, nargs="?", help="of the pages")
    asked.add_argument("--open", choices=SIZES, metavar="SIZE", help="list the pairs of rows that need further seeds")
    options = parser.parse_args()
    if options.open:
        every = (said for sentences in PAGES.values() for said in sentences)
        print(*open_pairs(options.open, every) or ["No pair of rows needs further seeds."], sep="\n")
        return
    folder = options.folder
    for name, sentences in PAGES.items():
        page = folder / f"{name}.md"
        page.write_text(fill(page.read_text(), sentences))
        print(f"filled {page}: {len(sentences)} sentences")


if __name__ == "__main__":
    main()
