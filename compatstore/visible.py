"""Text from elsewhere made safe to show: what moves a cursor, ends a line or turns the direction of text is spelt out.

Ids, captions, names, paths and messages of other libraries hold whatever somebody wrote into them. On a terminal an
escape character hides or forges output, a newline forges a line, and a bidirectional override swaps what stands beside
it.
"""

from __future__ import annotations

import re

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
