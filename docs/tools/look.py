"""Looks at each built page in a headless browser: two widths, light and dark.

    python docs/tools/check_site.py site
    pip install playwright
    python docs/tools/look.py site [SCREENSHOTS] [--browser /usr/bin/chromium]

Serves SITE on this machine and records every request of the browser. Fails where a page is wider than its window, where
something reaches out of the window and cannot be scrolled to, where a request goes to another host, or where the site's
search does not find a page by the words that a reader would type. With SCREENSHOTS each look is kept as a picture.
"""

from __future__ import annotations

import argparse
import http.server
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

WIDTHS = {"phone": 390, "desktop": 1280}
SCHEMES = ("light", "dark")
# What a reader types into the search -> a page that must be among the first results.
SEARCHES = {
    "pgvector": "faq.html",
    "FAQ": "faq.html",
    "which method": "faq.html",
    "how does it work": "how-it-works.html",
    "rollback": "how-it-works.html",
    "token price": "guides/cost.html",
}
FIRST = 5
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Elements that reach out of the window to the right, and have no ancestor that scrolls or hides what is outside.
CLIPPED = """() => {
  const page = document.documentElement, wide = [];
  for (const element of document.querySelectorAll("main *, header *, footer *")) {
    const box = element.getBoundingClientRect();
    if (box.width === 0 || box.height === 0 || box.right <= page.clientWidth + 1) continue;
    let held = false;
    for (let up = element.parentElement; up && up !== page; up = up.parentElement)
      held = held || ["auto", "scroll", "hidden"].includes(getComputedStyle(up).overflowX);
    if (!held) wide.push(element.tagName + ": " + element.textContent.trim().slice(0, 40));
  }
  return {scroll: page.scrollWidth, window: page.clientWidth, wide: wide.slice(0, 3)};
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *values: Any) -> None:
        """Say nothing."""


def looks(browser: Any, address: str, pages: list[str], pictures: Path | None) -> Iterator[str]:
    """What is wrong with each page at each width and in each scheme."""
    for name, width in WIDTHS.items():
        for scheme in SCHEMES:
            view = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            tab = view.new_page()
            asked: list[str] = []
            tab.on("request", lambda request, asked=asked: asked.append(request.url))
            for page in pages:
                tab.goto(f"{address}/{page}", wait_until="load")
                found = tab.evaluate(CLIPPED)
                where = f"{page}, {name}, {scheme}"
                if found["scroll"] > found["window"]:
                    yield f"{where}: {found['scroll']} wide in a window of {found['window']}"
                yield from (f"{where}: cut off: {element}" for element in found["wide"])
                if tab.evaluate("document.body.dataset.mdColorScheme") != {"light": "default", "dark": "slate"}[scheme]:
                    yield f"{where}: not shown in {scheme}"
                if pictures:
                    file = f"{name}-{scheme}-{page.replace('/', '_').removesuffix('.html')}.png"
                    tab.screenshot(path=str(pictures / file))
            hosts = {urlsplit(url).netloc for url in asked} - {urlsplit(address).netloc, ""}
            yield from (f"{name}, {scheme}: a request to {host}" for host in sorted(hosts))
            print(f"{name}, {scheme}: {len(pages)} pages, {len(asked)} requests")
            view.close()


def searches(browser: Any, address: str) -> Iterator[str]:
    """Searches whose page is not among the first results."""
    tab = browser.new_page()
    for words, page in SEARCHES.items():
        tab.goto(f"{address}/index.html", wait_until="networkidle")
        tab.click("input.md-search__input")
        tab.keyboard.type(words, delay=20)
        tab.wait_for_selector(".md-search-result__item a", state="attached", timeout=10_000)
        links = tab.eval_on_selector_all(".md-search-result__item > a", "all => all.map(each => each.href)")
        found = [urlsplit(link).path.lstrip("/") for link in links[:FIRST]]
        if page not in found:
            yield f"search for {words!r}: {', '.join(found)}, not {page}"


def main() -> None:
    """Serve the site, look at it, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("pictures", type=Path, nargs="?")
    parser.add_argument("--browser", help="a Chromium that is installed; playwright's own by default")
    options = parser.parse_args()
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    handler = partial(Quiet, directory=str(options.site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pages = sorted(str(path.relative_to(options.site)) for path in options.site.rglob("*.html"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.browser, args=QUIET)
        address = f"http://127.0.0.1:{server.server_port}"
        found = [*looks(browser, address, pages, options.pictures), *searches(browser, address)]
        browser.close()
    print(*found, f"{len(found)} problems", sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
