"""Builds the site with warnings as errors, and follows every link of the built pages.

    python docs/tools/check_site.py [FOLDER]

The built site stays in FOLDER where one is named. Fails where a link, a picture or an anchor leads nowhere, and where a
page would load anything from another host. Links that a reader may follow to other hosts are not tried.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = {"", "__top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names, links to or loads."""
        given = dict(attrs)
        self.anchors |= {name for name in (given.get("id"), given.get("name")) if name}
        if tag == "a" and given.get("href"):
            self.links.add(given["href"] or "")
        if tag in LOADED and given.get(LOADED[tag]) and given.get("rel") != "canonical":
            self.loads.add(given[LOADED[tag]] or "")


def build(folder: Path) -> None:
    """Build the site with warnings as errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})


def problems(folder: Path) -> Iterator[str]:
    """What is wrong with the links of the built pages."""
    pages = {path.resolve(): Page(path.read_text()) for path in folder.rglob("*.html") if path.name != "404.html"}
    for path, page in pages.items():
        place = path.relative_to(folder.resolve())
        for load in sorted(page.loads):
            if urlsplit(load).netloc:
                yield f"{place} loads {load}"
        for link in sorted(page.links | page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not to.exists():
                yield f"{place} links to {link}, which is not there"
            elif to in pages and unquote(parts.fragment) not in pages[to].anchors:
                yield f"{place} links to {link}, and there is no such place in the page"


def main() -> None:
    """Build, check, and say what is wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else scratch)
        build(folder)
        found = list(problems(folder))
        print(*found, f"{len(list(folder.rglob('*.html')))} pages, {len(found)} problems", sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
