"""What of a plan may surprise its reader."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore.arrays import ArrowSchema
from compatstore.evaluation.curve import native_count
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry, bridge_to
from compatstore.upgrade.backfilling.embeddable import Embeddable
from compatstore.upgrade.transform import Transformer

EMBEDDED_BY_LANCEDB = b"embedding_functions"  # where LanceDB keeps what embeds an app's rows, in a schema's metadata


def warnings_of(
    catalog: Catalog,
    registry: Registry,
    run: RunRecord,
    transformer: Transformer | None,
    target: VersionColumns,
    possible: Embeddable | None,
) -> Iterator[str]:
    """Warn, in sentences.

    Args:
        catalog: The gallery.
        registry: Its state.
        run: The upgrade that is planned.
        transformer: Its hop, or None where nothing is transformed.
        target: Columns of the version that is upgraded to; they need not be in the table yet.
        possible: What can be embedded at all; None where nothing is to be embedded.
    """
    if possible is not None and possible.expected < possible.items:
        beyond = native_count(run.backfill, possible.items) > possible.expected
        yield f"{possible}" + (f": a backfill of {run.backfill:.4g} ends before its share is reached" if beyond else "")
    yield from _of_encoders(catalog, run, transformer, target)
    yield from _of_transforms(catalog, registry, run, transformer)
    yield from _of_the_app(registry, run, target, catalog.store.schema)


def _of_encoders(
    catalog: Catalog, run: RunRecord, transformer: Transformer | None, target: VersionColumns
) -> Iterator[str]:
    if not run.backfill:
        return
    if catalog.encoder(run.target) is None:
        yield f"{run.target} has no encoder here: the backfill cannot run"
        return
    hopped = transformer is not None and transformer.artifacts[-1].manifest.side_target is not None
    if target.side and not hopped and catalog.side_encoder(run.target) is None:
        yield (
            f"{run.target} has no side-information encoder here: what the backfill embeds gets none, and an artifact "
            f"that reads it cannot transform these items from {run.target} on"
        )


def _of_transforms(
    catalog: Catalog, registry: Registry, run: RunRecord, transformer: Transformer | None
) -> Iterator[str]:
    bridge = bridge_to(registry, run.target)
    if not run.path and run.backfill < 1 and bridge is not None:
        yield (
            f"nothing transforms {run.source}: items that are not embedded natively are searched in {bridge.source} by "
            f"queries of {run.target} ({bridge.kind} {bridge.id[:12]}), and it cannot be retired before they are"
        )
    if len(run.path) > 1:
        yield f"no direct artifact from {run.source} to {run.target}: each of {len(run.path)} hops loses quality"
    if transformer is not None and transformer.needs_side:
        side = registry.columns(run.source).side
        missing = catalog.store.count(f"`{side}` IS NULL") if side else 0
        if missing:
            yield f"{missing} items have no side-information and cannot be transformed"


def _of_the_app(registry: Registry, run: RunRecord, target: VersionColumns, schema: ArrowSchema) -> Iterator[str]:
    if target.width != target.dim:
        yield (
            f"{target.vector} is stored with {target.width - target.dim} zeros behind its {target.dim} values, so that "
            "apps that search without naming a column keep finding theirs"
        )
    own = [record.columns.vector for record in registry.live if record.adopted and record.columns]
    if own and EMBEDDED_BY_LANCEDB in (schema.metadata or {}):
        yield (
            "LanceDB embeds for this table's app, and a search by text does not say which of two vector columns it "
            f'means: once {run.target} is there the app names it, table.search(text, vector_column_name="{own[0]}")'
        )
