"""Fill one page a paper, and one across them: what is said, our rows for it, and whether it holds.

    python -m benchmarks.papers docs/results/papers

Each page has a table for each size of the journals, between `<!-- size: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.papers.chosen_by import CHOSEN_BY
from benchmarks.papers.said import PAPERS
from benchmarks.papers.verdicts import SPARSE, Said, found_of, table, verdict

PAGES = {**PAPERS, "across": CHOSEN_BY}
_MARKED = re.compile(r"(<!-- size: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str, sentences: Sequence[Said]) -> str:
    """Return a page with its tables replaced."""

    def lines(match: re.Match[str]) -> str:
        words = Counter(verdict(found) for said in sentences if (found := found_of(said, match[2])))
        summary = ", ".join(f"{count} {word}" for word, count in words.most_common())
        if match[2] in SPARSE and words:
            summary += f", {len(sentences) - words.total()} without a row"
        rows = ["", *table(sentences, match[2])] if words else []
        text = "\n".join([f"Of {len(sentences)} sentences: {summary or 'none measured'}.", *rows])
        return f"{match[1]}\n{text}\n\n{match[3]}"

    return _MARKED.sub(lines, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the pages")
    folder = parser.parse_args().folder
    for name, sentences in PAGES.items():
        page = folder / f"{name}.md"
        page.write_text(fill(page.read_text(), sentences))
        print(f"filled {page}: {len(sentences)} sentences")


if __name__ == "__main__":
    main()
