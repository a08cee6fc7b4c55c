"""HTML and SVG, one element at a time, and text from elsewhere made safe to show.

Markup from elsewhere is escaped. A template language would do the same; a page of figures needs no more than this.
Ids, captions, names, paths and messages of other libraries may hold anything: on a terminal an escape character hides
or forges output, a newline forges a line, and a bidirectional override swaps the text beside it. Such characters are
spelt out.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TypeAlias


class Html(str):
    """Markup that is shown as it stands; only `element` and `joined` make it."""

    __slots__ = ()


Inside: TypeAlias = "Html | str | int | None"
Attribute: TypeAlias = "str | int | float | bool | None"
_EMPTY = frozenset({"br", "hr", "img", "line", "link", "meta", "path", "polygon", "polyline"})  # never has an inside


def text(value: object) -> Html:
    """Text as markup that shows it: no element, no entity, no character that steers."""
    return Html(html.escape(visible(str(value)), quote=True))


def element(tag: str, *inside: Inside, **attributes: Attribute) -> Html:
    """An element.

    Args:
        tag: Its name, such as "td"; never text from elsewhere.
        *inside: Its contents: markup as it stands, anything else escaped; None is left out.
        **attributes: Their values are escaped. An underscore is a hyphen, one at the end is left out: `class_`,
            `aria_label`. None and False leave an attribute out, True gives it no value.

    Returns:
        Its markup.
    """
    markup = joined(_attribute(name, value) for name, value in attributes.items() if value is not None)
    if tag in _EMPTY and not inside:
        return Html(f"<{tag}{markup}/>" if tag not in ("br", "hr", "img", "link", "meta") else f"<{tag}{markup}>")
    return Html(f"<{tag}{markup}>{joined(inside)}</{tag}>")


def joined(parts: Iterable[Inside], between: str = "") -> Html:
    """Markup and text, one behind the other."""
    return Html(
        text(between).join(part if isinstance(part, Html) else text(part) for part in parts if part is not None)
    )


def _attribute(name: str, value: Attribute) -> Html:
    called = name.rstrip("_").replace("_", "-") if name not in ("viewBox",) else name
    if value is False:
        return Html("")
    if value is True:
        return Html(f" {called}")
    shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
    return Html(f' {called}="{text(shown)}"')


# C0, DEL and C1; soft hyphen and characters of no width; bidirectional marks, embeddings, overrides and isolates; line
# and paragraph separators; interlinear marks; lone surrogates; tags. The joiners of scripts and emoji (U+200C, U+200D)
# stay.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_MARKDOWN = re.compile(r"[\\`*_\[\]|~$]")


def visible(text: str) -> str:
    r"""Spell out control and format characters as Python does: "\x1b", "\n", "\u202e".

    Returns:
        One line of text that any UTF-8 terminal shows as it is written.
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def markdown(text: str) -> str:
    """The same for a Markdown file: shown literally, neither markup nor HTML nor the end of a table's cell."""
    entities = visible(text).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKDOWN.sub(r"\\\g<0>", entities)
