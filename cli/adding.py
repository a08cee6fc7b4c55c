"""Adding many items: one commit a batch, with a bar, and one result for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compatstore.cli.output import Output
from compatstore.cli.progress import progress_bars
from compatstore.cli.sources import Feed
from compatstore.errors import CompatStoreError, InvalidInput, SourceError
from compatstore.gallery import Gallery
from compatstore.ingest.write import Added

FAILURES_SHOWN = 20


def add_feeds(
    gallery: Gallery,
    feeds: Sequence[Feed],
    output: Output,
    *,
    version: str | None,
    upsert: bool,
    batch_size: int | None,
) -> Added:
    """Add all feeds.

    Args:
        gallery: Where to.
        feeds: What.
        output: Told how much was written when a batch is refused.
        version: Version of the vectors; the active one by default.
        upsert: Replace items whose id is there.
        batch_size: Items of a commit; what the feed says by default.

    Returns:
        The sum of all batches. Items whose source cannot be embedded are in its failures.

    Raises:
        SourceError: No source at all could be embedded.
        CompatStoreError: A batch was refused; the batches before it are in the gallery.
    """
    if batch_size is not None and batch_size < 1:
        raise InvalidInput("add items", expected="--batch-size >= 1", found=f"{batch_size}")
    rows, done, failures = 0, 0, list[tuple[Any, str]]()
    total = sum(feed.rows for feed in feeds)
    with progress_bars("add") as bars:
        for batch in (batch for feed in feeds for batch in feed.read(batch_size or feed.batch_size)):
            try:
                added = _add(gallery, batch, version, upsert)
            except CompatStoreError:
                if rows:
                    output.note(f"{rows} items of the batches before are in the gallery.")
                raise
            rows, failures = rows + added.rows, failures + list(added.failures)
            done += added.rows + len(added.failures)
            bars.update("add", done, total)
    if failures and not rows:
        reasons = {position: f"{item}: {reason}" for position, (item, reason) in enumerate(failures)}
        raise SourceError(f"add {total} items", reasons, fix="Check the paths; nothing was written.")
    return Added(rows, version or gallery.active, tuple(failures))


def note_failures(added: Added, output: Output) -> None:
    """List on stderr what could not be embedded, the first ones."""
    if not added.failures:
        return
    output.note(f"{len(added.failures)} items could not be embedded and were left out:")
    for item, reason in added.failures[:FAILURES_SHOWN]:
        output.note(f"  {item}: {reason}")
    if len(added.failures) > FAILURES_SHOWN:
        output.note(f"  and {len(added.failures) - FAILURES_SHOWN} more (--json lists all)")


def _add(gallery: Gallery, batch: Any, version: str | None, upsert: bool) -> Added:
    """Add one batch; one in which no source can be embedded does not end the others."""
    try:
        return gallery.add(batch, version, upsert=upsert)
    except SourceError as error:
        ids = _ids(batch)
        return Added(0, version or "", tuple((ids[row], reason) for row, reason in error.failures.items()))


def _ids(batch: Any) -> list[Any]:
    column = batch["id"]
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column.tolist())
