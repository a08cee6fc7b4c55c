"""The registry by itself: versions, upgrades, history, and the tags that it has set."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from compatstore.storage import registry as registry_module
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.upgrade.cutover import tag_of
from compatstore.upgrade.states import STATES
from compatstore.verification.context import CheckContext
from compatstore.verification.finding import Finding

NAMED = 5
RESTORE = "Restore an earlier table version."


def check_versions(context: CheckContext) -> Iterator[Finding]:
    """Every version's record makes sense, and the active one has vectors."""
    for what in context.registry.contradictions:
        yield _wrong("versions", what, RESTORE)


def check_runs(context: CheckContext) -> Iterator[Finding]:
    """Every upgrade is in a known state, between versions and over artifacts that are there."""
    for target, run in context.registry.runs.items():
        for why in _complaints(context.registry, target, run):
            yield _wrong(
                "upgrades", f"the upgrade to {target} {why}", f"Begin it again: {context.command('retire', target)}"
            )


def _complaints(registry: Registry, target: str, run: RunRecord) -> Iterator[str]:
    if run.state not in STATES:
        yield f"is in the unknown state {run.state!r}"
    gone = [name for name in (run.target, run.source, run.previous) if name not in registry.versions]
    if gone:
        yield f"names versions that are not registered: {', '.join(gone)}"
    unlinked = [artifact[:12] for artifact in run.path if artifact not in registry.artifacts]
    if unlinked:
        yield f"applies artifacts that are not linked: {', '.join(unlinked)}"
    if run.open and target in registry.versions and registry.versions[target].columns is None:
        yield f"is in state {run.state}, but {target} has no columns"


def check_history(context: CheckContext) -> Iterator[Finding]:
    """The history's steps are numbered from 1 without a gap, up to the number that the registry knows."""
    numbers = [entry.number for entry in registry_module.history(context.catalog.store, context.snapshot)]
    counted = context.registry.history
    if len(numbers) != counted or any(number != place for place, number in enumerate(numbers, 1)):
        there = set(numbers)
        lost = list(islice((number for number in range(1, counted + 1) if number not in there), NAMED))
        found = f"steps {', '.join(map(str, lost))} are gone" if lost else f"it has {len(numbers)} steps"
        yield Finding(
            check="history",
            severity="warning",
            what=f"{found}; the registry counts {context.registry.history}",
            repair="Nothing that searches need is lost. " + RESTORE,
        )


def check_tags(context: CheckContext) -> Iterator[Finding]:
    """Our tags pin table versions that are there, for versions that have vectors; the active one has its tag."""
    registry, store = context.registry, context.catalog.store
    tags = store.tags()
    names = {tag_of(name): name for name in registry.versions}
    for tag in sorted(tags.keys() & names.keys()):
        version = names[tag]
        if registry.versions[version].columns is None:
            yield _odd(f"tag {tag} pins a version without vectors", f"Drop it: {context.command('retire', version)}")
        if not store.has_version(tags[tag]):
            what = f"tag {tag} pins table version {tags[tag]}, which cannot be read"
            yield _odd(what, f'Drop it: lance.dataset("{store.location.uri}").tags.delete("{tag}")')
    if not registry.adopted and tag_of(registry.active) not in tags:
        yield _odd(
            f"the active version {registry.active} has no tag that keeps the table as it was when it became active",
            f"Set it: {_tagging(context)}",
        )


def _tagging(context: CheckContext) -> str:
    """How to tag the active version."""
    active, store = context.registry.active, context.catalog.store
    if context.run(active) is not None:
        return context.command("cutover", active)
    return f'lance.dataset("{store.location.uri}").tags.create("{tag_of(active)}", {context.snapshot.version})'


def _odd(what: str, repair: str) -> Finding:
    return Finding(check="tags", severity="warning", what=what, repair=repair)


def _wrong(check: str, what: str, repair: str) -> Finding:
    return Finding(check=check, severity="error", what=what, repair=repair)
