"""The report of an upgrade as files: one HTML page that loads nothing, or a folder of Markdown, JSON and charts."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from compatstore.errors import SourceError, StorageError
from compatstore.html import Html, element, joined, markdown
from compatstore.report.charts import Curves, chart, picture, style_of
from compatstore.report.content import Section, SectionPart, ShownQueries, facts, key_figures, sections, title_of
from compatstore.shown import Table, html_table
from compatstore.upgrade.estimates.details import QueryChange, ShownItem
from compatstore.upgrade.estimates.reporting import UpgradeReport

MARKDOWN, JSON = "report.md", "report.json"
PAGES = (".html", ".htm")


def write_report(report: UpgradeReport, place: str | Path) -> tuple[Path, ...]:
    """Write a report: into one page where the path ends in .html, else into a folder; earlier files are replaced.

    The page needs no other file: its style, charts and pictures are in it, and it loads nothing.

    Args:
        report: The report.
        place: A file that ends in .html, or a folder, which is made where it is missing.

    Returns:
        The files.

    Raises:
        StorageError: The file or the folder cannot be made or written.
    """
    path = Path(place)
    page = path.suffix.lower() in PAGES
    try:
        return write_page(path, to_page(report)) if page else _write_folder(report, path)
    except OSError as error:
        what = "a file to write" if page else "a folder to write in"
        raise StorageError(f"write a report into {path}", expected=what, found=str(error)) from error


def write_page(path: Path, page: str) -> tuple[Path, ...]:
    """Write a page beside its place and move it there, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(page, encoding="utf-8")
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
    return (path,)


def _write_folder(report: UpgradeReport, folder: Path) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    texts = {MARKDOWN: to_markdown(report), JSON: json.dumps(dataclasses.asdict(report), indent=2) + "\n"}
    curves = [part for section in sections(report) for part in section.parts if isinstance(part, Curves)]
    texts |= {curve.file: picture(curve) for curve in curves}
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    return tuple(folder / file for file in texts)


def to_markdown(report: UpgradeReport) -> str:
    """Write a report as Markdown; its curves are pictures that lie beside it."""
    parts = [f"# {markdown(title_of(report))}"]
    parts += [markdown(report.advice)] if report.advice else []
    parts.append(markdown(facts(report)))
    for section in sections(report):
        shown = [text for part in section.parts for text in _shown(part)]
        parts += [f"## {section.title}", *shown] if shown else []
    return "\n\n".join(parts) + "\n"


def _shown(part: SectionPart) -> Iterator[str]:
    """Paragraphs, tables and curves; intervals are those of a table, queries stand without their results."""
    if isinstance(part, str):
        yield markdown(part)
    elif isinstance(part, ShownQueries):
        yield from _shown(part.table)
    elif isinstance(part, Curves):
        yield f"![{part.title}]({part.file})"
    elif isinstance(part, Table):
        lines = [part.headings, ["---"] * len(part.headings), *part.rows]
        yield "\n".join("| " + " | ".join(markdown(cell) for cell in line) + " |" for line in lines)


# A browser refuses scripts, but for that of `whole_page`, and requests of any kind.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_LONGEST = 160  # characters of an item's text
_VERDICTS: Mapping[bool | None, tuple[str, str, str]] = {
    True: ("\N{CHECK MARK}", "correct", "good"),
    False: ("\N{MULTIPLICATION X}", "wrong", "bad"),
    None: ("", "", "open"),
}


def to_page(report: UpgradeReport) -> str:
    """Write a report as one page, for any browser, without a network."""
    title, shown, pictures = title_of(report), sections(report), Thumbnails()
    links = [element("a", section.title, href=f"#s{number}") for number, section in enumerate(shown, start=1)]
    figures = [element("div", element("dt", name), element("dd", figure)) for name, figure in key_figures(report)]
    body = element(
        "body",
        element("a", "Skip to the decision", href="#s1", class_="skip"),
        element(
            "header",
            element("h1", title),
            element("p", report.advice, class_="advice") if report.advice else None,
            element("dl", *figures, class_="key"),
            element("p", facts(report)),
        ),
        element(
            "nav",
            element("h2", "Contents"),
            element("ol", *(element("li", link) for link in links)),
            aria_label="Contents",
        ),
        element("main", *(_section(section, number, pictures) for number, section in enumerate(shown, start=1))),
        element("footer", element("p", "Written by compatstore. Intervals are stated with each table.")),
    )
    return whole_page(title, body)


def whole_page(title: str, body: Html, script: str = "") -> str:
    """A page with a style and perhaps a script of its own, which alone may run."""
    hashed = base64.b64encode(sha256(script.encode()).digest()).decode()
    policy = f"{_POLICY}; script-src 'sha256-{hashed}'" if script else _POLICY
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} - compatstore"),
        element("style", Html(style_of("chart.css", "page.css"))),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _section(section: Section, number: int, pictures: Thumbnails) -> Html:
    parts = [_part(part, f"s{number}-{place}", pictures) for place, part in enumerate(section.parts)]
    return element(
        "section", element("h2", section.title, id=f"s{number}-title"), *parts, id=f"s{number}",
        aria_labelledby=f"s{number}-title",
    )  # fmt: skip


def _part(part: SectionPart, name: str, pictures: Thumbnails) -> Html:
    if isinstance(part, str):
        return element("p", part)
    if isinstance(part, Table):
        # Without a mouse, keys scroll the element that has the focus.
        return element(
            "div", html_table(part), class_="scroll", role="region", tabindex=0, aria_label=part.caption or "Table"
        )
    if isinstance(part, ShownQueries):
        return _neighbours(part, pictures)
    unit = f"; upwards: {part.y}" if isinstance(part, Curves) else ""
    return element("figure", chart(part, name), element("figcaption", part.title + unit))


def _neighbours(part: ShownQueries, pictures: Thumbnails) -> Html:
    return element(
        "div",
        element("h3", part.heading),
        *(_query(change, part.criterion, pictures) for change in part.changes),
        class_="queries",
    )


def _query(change: QueryChange, criterion: str, pictures: Thumbnails) -> Html:
    known = {item.id for item in change.found_before}
    figures = f"{criterion} {100 * change.before:.1f} % before, {100 * change.after:.1f} % now"
    lists = (("Before", change.found_before, None), ("Now", change.found_after, known))
    return element(
        "article",
        element("h4", f"Query {_short(change.query.id)}"),
        element("div", item_html(change.query, pictures), element("p", figures), class_="asks"),
        *(
            element("div", element("h5", heading), list_html([_found(item, before, pictures) for item in found]))
            for heading, found, before in lists
        ),
        class_="query",
    )


def list_html(found: Sequence[Html]) -> Html:
    """ShownQueries, nearest first; pictures need less room than texts."""
    if not found:
        return element("p", "Nothing was found.")
    return element("ol", *found, class_="pictures" if all("<img" in item for item in found) else None)


def _found(item: ShownItem, before: set[str] | None, pictures: Thumbnails) -> Html:
    """A neighbour, with a sign and a word for its relevance."""
    sign, word, kind = _VERDICTS[item.correct]
    new = element("span", "new", class_="new") if before is not None and item.id not in before else None
    verdict = element("span", element("span", sign, aria_hidden="true"), f" {word}", class_="verdict") if word else None
    return element("li", item_html(item, pictures), verdict, new, class_=kind)


def item_html(item: ShownItem, pictures: Thumbnails) -> Html:
    """An item: its picture or its text, and its known fields."""
    uri = pictures.of(item.source)
    called = " ".join(text for text in (item.label, item.caption) if text)
    # The id stands beside it: alt shows the other fields.
    picture = element("img", src=uri, alt=_short(called or f"item {item.id}")) if uri else None
    quoted = None if uri or not item.source else element("span", _short(item.source), class_="text")
    said = {item.label: "label", item.caption: "caption", item.id: "id"}  # equal values of two columns appear once
    known = [element("span", _short(text), class_=kind) for text, kind in said.items() if text]
    return element("span", joined([picture, quoted, *known]), class_="item")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"


SIDE = 96  # pixels
LARGEST = 4 << 20  # bytes of all pictures of a page; later items are shown by their text
SMALLEST_SIDE = 48  # smaller pictures are enlarged, with their pixels kept


class Thumbnails:
    """Pictures of items as data: URIs.

    Args:
        largest: Bytes of all pictures together.
    """

    def __init__(self, largest: int = LARGEST) -> None:
        self._left, self._known = largest, dict[str, str]()

    def of(self, source: str) -> str:
        """The picture of a source as a data: URI; "" if the source is none, cannot be read, or there is no room."""
        if source not in self._known:
            self._known[source] = _read(source)
        uri = self._known[source]
        if len(uri) > self._left:
            return ""
        self._left -= len(uri)
        return uri


def _read(source: str) -> str:
    """The picture as a data: URI; "" if the source is by its name no file of an image, or cannot be read."""
    from compatstore.encoders.images import SUFFIXES, read_image  # with Pillow, which no other command needs

    if Path(urlsplit(source).path if source.startswith("file://") else source).suffix.lower() not in SUFFIXES:
        return ""
    try:
        image = read_image(source)  # refuses all other schemes
    except SourceError:
        return ""
    image.thumbnail((SIDE, SIDE))
    if max(image.size) < SMALLEST_SIDE:
        times = SIDE // max(image.size)
        image = image.resize((image.width * times, image.height * times), 0)  # 0: each pixel becomes a square
    content = io.BytesIO()
    image.save(content, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode("ascii")
