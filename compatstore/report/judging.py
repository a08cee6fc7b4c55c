"""The page of a side-by-side comparison: one HTML file that shows cases and saves the answers as a JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from compatstore.errors import StorageError
from compatstore.html import Html, element
from compatstore.report.files import Thumbnails, item_html, list_html, whole_page, write_page
from compatstore.upgrade.estimates.details import ShownItem
from compatstore.upgrade.estimates.side_by_side import Case

TITLE = "Which list is better?"
INTRODUCTION = (
    "Each query was searched in two ways; which of them is on the left changes from query to query. Choose the list "
    "that answers the query better. Download the answers at the end, or whenever you stop."
)
BUTTONS = {"left": "Left", "same": "Same", "right": "Right"}
PICTURES = 32 << 20  # bytes of all pictures of a page


def write_judging_page(path: Path, cases: Sequence[Case], digest: str) -> None:
    """Write the page; an earlier file is replaced.

    Args:
        path: The file.
        cases: What to show, in this order.
        digest: Copied into the file of answers.

    Raises:
        StorageError: The file cannot be written.
    """
    try:
        write_page(path, judging_page(cases, digest))
    except OSError as error:
        raise StorageError(f"write a page to {path}", expected="a file to write", found=str(error)) from error


def judging_page(cases: Sequence[Case], digest: str) -> str:
    """The page as HTML."""
    script = resources.files("compatstore.report").joinpath("judging.js").read_text(encoding="utf-8")
    pictures = Thumbnails(PICTURES)
    body = element(
        "body",
        element("header", element("h1", TITLE), element("p", INTRODUCTION)),
        element("main", *(_case(case, place, len(cases), pictures) for place, case in enumerate(cases, 1))),
        element(
            "footer",
            element("span", f"0 of {len(cases)} answered", id="count", role="status"),
            element("button", "Download answers", type="button", id="download"),
            class_="saving",
        ),
        element("script", Html(script)),
        data_digest=digest,
    )
    return whole_page(TITLE, body, script)


def _case(case: Case, place: int, cases: int, pictures: Thumbnails) -> Html:
    buttons = (element("button", text, type="button", value=answer) for answer, text in BUTTONS.items())
    return element(
        "article",
        element("h2", f"Query {place} of {cases}"),
        item_html(case.query, pictures),
        element("div", _list("Left", case.left, pictures), _list("Right", case.right, pictures), class_="sides"),
        element("div", *buttons, role="group", aria_label=f"The better list for query {place}", class_="answers"),
        data_query=quote(case.query.id, safe=""),  # whatever the id holds
        class_="query",
    )


def _list(heading: str, items: Sequence[ShownItem], pictures: Thumbnails) -> Html:
    found = [element("li", item_html(item, pictures)) for item in items]
    return element("div", element("h3", heading), list_html(found))
