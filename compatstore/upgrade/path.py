"""The graph of versions and artifacts, and the path that an upgrade takes through it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from compatstore.artifacts.kinds import kind_named
from compatstore.errors import Incompatible, UnknownArtifact
from compatstore.storage.registry import ArtifactRecord, Registry


def forward_artifacts(registry: Registry) -> list[ArtifactRecord]:
    """Linked artifacts that change gallery vectors, the latest linked first."""
    return [
        record for record in reversed(list(registry.artifacts.values())) if kind_named(record.kind).acts_on == "gallery"
    ]


def find_path(registry: Registry, source: str, target: str, via: str | None = None) -> tuple[ArtifactRecord, ...]:
    """The shortest chain of forward transforms, a direct one first.

    Every hop of a chain loses some quality (FCT, table 5), so a direct hop from stored native vectors is preferred.

    Args:
        registry: The gallery's state.
        source: Version to start from.
        target: Version to reach.
        via: Id of the artifact that must be the last step, in full.

    Raises:
        UnknownArtifact: No chain connects the two.
        Incompatible: `via` does not lead to the target.
    """
    artifacts = forward_artifacts(registry)
    if via is not None:
        last = registry.artifacts[via]
        if last.target != target:
            raise Incompatible(
                f"upgrade to {target} via {via[:12]}",
                expected=f"an artifact to {target}",
                found=f"one to {last.target}",
            )
        before = () if last.source == source else find_path(registry, source, last.source)
        return (*before, last)
    path = _shortest(artifacts, source, target)
    if path is None:
        raise UnknownArtifact(
            f"find a path from {source} to {target}",
            expected="a linked ForwardTransform, or a chain of them",
            found=_links(artifacts),
            fix="Train and link one: compatstore train fct ..., compatstore link GALLERY ARTIFACT; or re-embed it all: "
            f"compatstore upgrade GALLERY {target} --backfill 1.0",
        )
    return path


def _shortest(artifacts: Sequence[ArtifactRecord], source: str, target: str) -> tuple[ArtifactRecord, ...] | None:
    queue: deque[tuple[str, tuple[ArtifactRecord, ...]]] = deque([(source, ())])
    seen = {source}
    while queue:
        here, path = queue.popleft()
        for artifact in artifacts:
            if artifact.source != here or artifact.target in seen:
                continue
            if artifact.target == target:
                return (*path, artifact)
            seen.add(artifact.target)
            queue.append((artifact.target, (*path, artifact)))
    return None


def _links(artifacts: Sequence[ArtifactRecord]) -> str:
    return ", ".join(f"{a.source} -> {a.target}" for a in artifacts) or "none linked"
