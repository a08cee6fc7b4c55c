"""HTML and SVG, one element at a time: what is not markup made here is escaped, so that text stays text.

A template language would do the same; this is the whole of what a page of figures needs of one.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

from compatstore.visible import visible


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
        *inside: What it holds: markup as it stands, anything else escaped; None is left out.
        **attributes: Their values are escaped. An underscore is a hyphen, one at the end is left out: `class_`,
            `aria_label`. None and False leave an attribute out, True gives it no value.

    Returns:
        Its markup.
    """
    said = joined(_attribute(name, value) for name, value in attributes.items() if value is not None)
    if tag in _EMPTY and not inside:
        return Html(f"<{tag}{said}/>" if tag not in ("br", "hr", "img", "link", "meta") else f"<{tag}{said}>")
    return Html(f"<{tag}{said}>{joined(inside)}</{tag}>")


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
