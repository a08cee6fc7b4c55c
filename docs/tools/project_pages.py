"""A hook of MkDocs: pages of the repository become pages of the site; its search ranks answers before references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}

# Weights of pages in the site's search.
BOOSTS = {"faq.md": 3.0, "how-it-works.md": 3.0, "results/index.md": 3.0}
REFERENCE_BOOST = 0.5


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, with links that lead from the site's root and not from the repository's."""
    from mkdocs.structure.files import File

    for page, name in PAGES.items():
        files.append(File.generated(config, page, content=as_page((ROOT / name).read_text())))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links of a page in docs/ to the repository's pages lead to those of the site, and weigh it in the search."""
    place = page.file.src_uri
    page.meta["search"] = {"boost": BOOSTS.get(place, REFERENCE_BOOST if place.startswith("reference/") else 1.0)}
    for to, name in PAGES.items():
        markdown = markdown.replace(f"](../{name}", f"]({to}")
    return markdown


def as_page(text: str) -> str:
    """The text of a file of the repository's root as a page of the site.

    Args:
        text: Markdown whose links start at the repository's root: `](docs/policy.md)`, `](SECURITY.md)`.
    """
    for page, name in PAGES.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text.replace("](docs/", "](")
