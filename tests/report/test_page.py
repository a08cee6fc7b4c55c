"""The page as markup: well formed, without script and without a request, and text from elsewhere stays text."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import pairwise

import pytest

from compatstore.html import visible
from compatstore.report.files import to_page

EMPTY = {"meta", "img", "br", "hr", "line", "polyline", "polygon"}
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "a", "header", "h1", "h2", "h3", "h4", "h5", "p", "dl", "div"),
    *("dt", "dd", "nav", "ol", "li", "main", "section", "table", "caption", "thead", "tbody", "tr", "th", "td"),
    *("figure", "figcaption", "svg", "desc", "g", "line", "text", "circle", "rect", "polyline", "polygon", "footer"),
    *("article", "span", "img"),
}
ATTRIBUTES = {
    *("charset", "http-equiv", "content", "name", "href", "class", "id", "lang", "style", "scope", "role", "tabindex"),
    *("aria-label", "aria-labelledby", "aria-describedby", "aria-hidden", "src", "alt", "viewbox"),
    *("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "points", "text-anchor"),
}


class Page(HTMLParser):
    """Elements, attributes and text, with a check that each element is closed by its own end."""

    def __init__(self, markup):
        super().__init__(convert_charrefs=True)
        self.open, self.found, self.texts = [], [], []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attributes for found, attributes in self.found if found == tag]


@pytest.fixture(scope="module")
def page(pictured):
    return Page(to_page(pictured))


@pytest.mark.full
def test_every_element_is_closed_and_known(page, taught, attacked):
    for looked_at in (page, Page(to_page(taught)), Page(to_page(attacked))):
        assert looked_at.open == []
        assert {tag for tag, _ in looked_at.found} <= ELEMENTS
        assert {name for _, attributes in looked_at.found for name in attributes} <= ATTRIBUTES


def test_nothing_is_asked_for(page, attacked):
    for looked_at in (page, Page(to_page(attacked))):
        assert all(attributes["href"].startswith("#s") for attributes in looked_at.all("a"))
        assert all(attributes["src"].startswith("data:image/jpeg;base64,") for attributes in looked_at.all("img"))
        style = "".join(looked_at.texts)
        assert "@import url" not in style
        [policy] = [meta["content"] for meta in looked_at.all("meta") if "http-equiv" in meta]
        assert policy.startswith("default-src 'none'; ")


def test_what_an_attacker_writes_is_shown_as_it_was_written(attacked):
    looked_at = Page(to_page(attacked))
    said = "".join(looked_at.texts)
    changes = (*attacked.details.changes.worst, *attacked.details.changes.best)
    for change in changes:
        assert visible(change.query.id) in said
        assert visible(change.query.label) in said
        for found in (*change.found_before, *change.found_after):
            assert visible(found.id) in said
            assert visible(found.caption) in said
    assert visible(attacked.gallery) in said
    assert attacked.reasons
    for item, reason in attacked.reasons:
        assert visible(item) in said
        assert visible(reason) in said
    for group in attacked.details.groups.groups:
        assert visible(group.name) in said
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_the_page_can_be_heard(page):
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == 1
    levels = [int(tag[1]) for tag, _ in page.found if tag in ("h1", "h2", "h3", "h4", "h5")]
    assert all(level <= before + 1 for before, level in pairwise(levels))
    assert all(head["scope"] in ("col", "row") for head in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert page.all("img")
    assert all(image["alt"] for image in page.all("img"))
    names = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(names) == len(set(names))
    for picture in page.all("svg"):
        assert picture["role"] == "img"
        assert {picture["aria-labelledby"], picture["aria-describedby"]} <= set(names)
    assert {link["href"][1:] for link in page.all("a")} <= set(names)
