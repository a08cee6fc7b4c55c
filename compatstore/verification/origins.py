"""Origins: a vector is native, or made by artifacts that are linked and lead to its version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow.compute as pc

from compatstore.errors import first_offenders
from compatstore.storage.columns import NATIVE
from compatstore.storage.records import ArtifactRecord
from compatstore.verification.context import CheckContext
from compatstore.verification.finding import Finding

KEPT = 100  # distinct origins that are told apart; a sound gallery has a few


def check_origins(context: CheckContext) -> Iterator[Finding]:
    """Every origin is `native` or a chain of linked artifacts that ends at its version."""
    for record, columns in context.sound:
        if columns.origin is None:
            continue
        for origin, rows in _count(context, columns.origin).items():
            why = _objection(context, record.name, origin)
            if why:
                yield Finding(
                    check="origins",
                    severity="error",
                    what=f"{rows} vectors of {record.name} say that {origin!r} made them: {why}",
                    repair=f"Link the artifact that did: {context.command('link')} ARTIFACT",
                )


def _count(context: CheckContext, column: str) -> Counter[str]:
    """Rows of each origin, of the first `KEPT` that occur."""
    found: Counter[str] = Counter()
    for batch in context.batches([column]):
        for entry in pc.value_counts(batch.column(0).drop_null()).to_pylist():
            if entry["values"] in found or len(found) < KEPT:
                found[entry["values"]] += entry["counts"]
    return found


def _objection(context: CheckContext, version: str, origin: str) -> str:
    """What is wrong with an origin; "" where nothing is."""
    if origin == NATIVE:
        return ""
    chain = []
    for short in origin.split("+"):
        linked = [record for full, record in context.registry.artifacts.items() if short and full.startswith(short)]
        if len(linked) != 1:
            return f"{len(linked)} linked artifacts have the id {short!r}"
        chain += linked
    return _broken(chain, version)


def _broken(chain: Sequence[ArtifactRecord], version: str) -> str:
    ends = [record.target for record in chain]
    starts = [*(record.source for record in chain[1:]), version]
    steps = [f"{record.source} -> {record.target}" for record in chain]
    return "" if ends == starts else f"{first_offenders(steps)} does not lead to {version}"
