"""The graph of versions and artifacts, and the path that an upgrade takes through it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from compatstore import next_step
from compatstore.artifacts.kinds import kind_named
from compatstore.errors import Incompatible, NotFound
from compatstore.storage.records import ArtifactRecord
from compatstore.storage.registry import Registry


def forward_artifacts(registry: Registry) -> list[ArtifactRecord]:
    """Linked artifacts that change gallery vectors, the latest linked first."""
    return [
        record for record in reversed(list(registry.artifacts.values())) if kind_named(record.kind).acts_on == "gallery"
    ]


def find_path(registry: Registry, source: str, target: str, via: str | None = None) -> tuple[ArtifactRecord, ...]:
    """The shortest chain of forward transforms, a direct one first.

    Every hop of a chain loses some quality (FCT, table 5), so a direct hop from stored native vectors is preferred. In
    a chain, an artifact that reads side-information follows one that writes it (g of FCT, section 4.4).

    Args:
        registry: The gallery's state.
        source: Version to start from.
        target: Version to reach.
        via: Id of the artifact that must be the last step, in full.

    Raises:
        NotFound: No chain connects the two.
        Incompatible: `via` does not lead to the target.
    """
    artifacts = forward_artifacts(registry)
    if via is not None and registry.artifacts[via].target != target:
        raise Incompatible(
            f"upgrade to {target} via {via[:12]}",
            expected=f"an artifact to {target}",
            found=f"one to {registry.artifacts[via].target}",
        )
    last = {artifact.id for artifact in artifacts if artifact.target == target and via in (None, artifact.id)}
    path = _shortest(artifacts, source, last)
    if path is None:
        option = next_step.either(shell=" (--encoder)", python="")
        raise NotFound(
            f"find a path from {source} to {target}" + (f" via {via[:12]}" if via else ""),
            expected="a linked ForwardTransform, or a chain of them",
            found=_links(artifacts),
            fix=f"Train and link one: {next_step.training('fct')}, {next_step.call('link', next_step.ARTIFACT)}; or "
            f"give {target} an encoder{option}, and the upgrade learns from what it embeds; or re-embed it all: "
            f"{next_step.call('upgrade', target, backfill=1.0)}",
            kind="artifact",
        )
    return path


def _shortest(
    artifacts: Sequence[ArtifactRecord], source: str, last: Collection[str]
) -> tuple[ArtifactRecord, ...] | None:
    """Breadth first, from the artifacts that start at the source to one of the last."""
    queue: deque[tuple[ArtifactRecord, ...]] = deque((artifact,) for artifact in artifacts if artifact.source == source)
    seen = {path[0].id for path in queue}
    while queue:
        path = queue.popleft()
        if path[-1].id in last:
            return path
        for artifact in artifacts:
            if artifact.id not in seen and _follows(artifact, path[-1]):
                seen.add(artifact.id)
                queue.append((*path, artifact))
    return None


def _follows(artifact: ArtifactRecord, before: ArtifactRecord) -> bool:
    return artifact.source == before.target and (before.writes_side or not artifact.reads_side)


def _links(artifacts: Sequence[ArtifactRecord]) -> str:
    sides = {
        (True, True): " (reads and writes side-information)",
        (True, False): " (reads side-information, writes none)",
        (False, True): " (writes side-information)",
    }
    links = [f"{a.source} -> {a.target}{sides.get((a.reads_side, a.writes_side), '')}" for a in artifacts]
    return ", ".join(links) or "none linked"
