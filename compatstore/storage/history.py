"""The history: a record of every step of a gallery's life. Each step is written in the commit that took it.

The latest steps are configuration keys of the table, so they are part of its manifest, which every commit rewrites. To
keep the manifest small there are at most `PAGE` such keys: a step beyond that first moves those before it to a page. A
page is a file beside the table; its name is the digest of its content, and it names the page before it. The registry
names the last page, in the commit that removes the keys. Pages never change.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from compatstore.documents import Malformed, parse, read_record
from compatstore.errors import CorruptArtifact
from compatstore.paths import user_name
from compatstore.storage.files import Blobs

PREFIX = "compatstore.history."
PAGE = 32


@dataclass(frozen=True)
class HistoryEntry:
    """One step of the gallery's history.

    Attributes:
        step: Name of the step: create, adopt, register, link, estimate, expand, hop, backfill, learn, ready, judge,
            cutover, rollback, abort, retire; or an early end of work: pause, failed, interrupted (the
            worker exited without a message).
        version: Embedding version concerned.
        at: ISO 8601, UTC.
        who: User that did it.
        artifact: Id of the artifact concerned, or "".
        rows: Rows written.
        seconds: Time taken.
        note: Anything else worth keeping, one line.
        number: Position in the history, from 1.
        data: JSON data for a later step; {} for most.
        source: Version that an upgrade reads, or "".
        fingerprint: Fingerprint of the version concerned: its model, and so its encoder.
        figures: Measurements, by name.
    """

    step: str
    version: str
    at: str = ""
    who: str = ""
    artifact: str = ""
    rows: int = 0
    seconds: float = 0.0
    note: str = ""
    number: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    fingerprint: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)

    def dumps(self) -> str:
        """JSON text without empty fields."""
        values = dataclasses.asdict(self)
        return json.dumps({name: value for name, value in values.items() if value}, separators=(",", ":"))

    def signed(self, number: int) -> HistoryEntry:
        """The entry at its place, with time and user."""
        return dataclasses.replace(self, number=number, at=self.at or now(), who=self.who or user_name())


@dataclass(frozen=True)
class Page:
    """Steps that were moved out of the table's configuration.

    Attributes:
        previous: SHA-256 of the page before it, or "".
        entries: JSON of the steps, oldest first.
    """

    previous: str
    entries: tuple[str, ...]


def read_entries(blobs: Blobs, config: Mapping[str, str], last_page: str) -> list[HistoryEntry]:
    """Read the steps, oldest first; read-only.

    Args:
        blobs: Files beside the table.
        config: The table's configuration.
        last_page: SHA-256 of the last page, "" if there is none.

    Raises:
        CorruptArtifact: A page is gone or was changed.
    """
    texts = [config[key] for key in _keys(config)]
    for _, page in _pages(blobs, last_page):
        texts = [*page.entries, *texts]
    try:
        return [read_record(HistoryEntry, parse(text), "a step") for text in texts]
    except Malformed as error:
        expected = "steps as they were written"
        fix = "Restore an earlier table version; nothing that searches or upgrades need is lost."
        raise CorruptArtifact("read the history", expected=expected, found=str(error), fix=fix) from error


def turn_page(blobs: Blobs, config: Mapping[str, str], last_page: str) -> tuple[str, dict[str, None]]:
    """Move the steps in the table's configuration to a page, if it is full.

    Args:
        blobs: Files beside the table; the page is durable when this returns.
        config: The table's configuration.
        last_page: SHA-256 of the last page, "" if there is none.

    Returns:
        SHA-256 of the last page now, and the keys to take away in the commit that records it.
    """
    keys = _keys(config)
    if len(keys) < PAGE:
        return last_page, {}
    page = Page(last_page, tuple(config[key] for key in keys))
    return blobs.put(json.dumps(dataclasses.asdict(page), indent=0).encode()), dict.fromkeys(keys)


def pages(blobs: Blobs, last_page: str) -> list[str]:
    """SHA-256 of every page, the last one first."""
    return [digest for digest, _ in _pages(blobs, last_page)]


def now() -> str:
    """The time, ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _keys(config: Mapping[str, str]) -> list[str]:
    return sorted(key for key in config if key.startswith(PREFIX))


def _pages(blobs: Blobs, digest: str) -> Iterator[tuple[str, Page]]:
    """Every page with its digest, the last one first."""
    while digest:
        try:
            page = read_record(Page, parse(blobs.get(digest)), "a page")
        except (CorruptArtifact, Malformed) as error:
            expected = f"the page {digest[:12]} beside the table, as it was written"
            found = error.found if isinstance(error, CorruptArtifact) else str(error)
            fix = "Restore that file from a backup; nothing that searches or upgrades need is lost."
            raise CorruptArtifact("read the history", expected=expected, found=found, fix=fix) from error
        yield digest, page
        digest = page.previous
