"""Pairs to train on, from files and from a gallery, as the options name them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from compatstore.cli.files import read_array
from compatstore.errors import InvalidInput
from compatstore.gallery import Gallery
from compatstore.trainers import Pairs
from compatstore.trainers.pairs.gallery_pairs import match_pairs, names_a_file
from compatstore.versions import EmbeddingVersion

_WAYS = (
    "Vectors come from files (--pairs FILE FILE), or from a gallery: with --gallery each of the two is a version of "
    "it, a column of it, or a file with ids."
)


@dataclass(frozen=True, kw_only=True)
class PairFiles:
    """Where pairs come from.

    Args:
        source: File of source vectors; with a gallery also a version or a column of it, by default `source_version`.
        target: The same of the target vectors, by default `target_version`.
        side: File of side-information of the source, or None for the column `side` of `source`.
        target_side: The same of the target.
        labels: File of classes, in the order of `source`; with a gallery a column of it.
        target_head: File of the classifier head of the target model.
        drop_missing: Leave out ids that only one file has.
        gallery: Gallery whose versions the pairs are of, or None.
        source_version: Name of the version in it that the source vectors are of.
        target_version: Name of the version in it that the target vectors are of.
        trust_code: Build encoders that the gallery names as Python code or as an address.

    Raises:
        InvalidInput: A side is missing, or the gallery of a version.
    """

    source: str | None = None
    target: str | None = None
    side: str | None = None
    target_side: str | None = None
    labels: str | None = None
    target_head: str | None = None
    drop_missing: bool = False
    gallery: str | None = None
    source_version: str | None = None
    target_version: str | None = None
    trust_code: bool = False

    def __post_init__(self) -> None:
        source, target = self.sides
        if source is None or target is None:
            wanted = "--pairs SOURCE TARGET" + ("" if self.gallery is None else ", or --from and --to")
            raise InvalidInput("train on pairs", expected=wanted, found="no pairs", fix=_WAYS)
        versions = (self.source_version, self.target_version)
        if self.gallery is None and any(versions):
            raise InvalidInput("train with --from and --to", expected="--gallery too", found="none")

    @property
    def sides(self) -> tuple[str | None, str | None]:
        """What the source and the target vectors are: as named, or the versions that they are of."""
        return self.source or self.source_version, self.target or self.target_version

    def read(self, say: Callable[[str], None]) -> Pairs:
        """Read the pairs.

        Args:
            say: Told how many items were matched.

        Raises:
            InvalidInput: A file cannot be read, rows cannot be joined, or the gallery has no pairs.
            NotFound: A file, column, gallery or version does not exist.
        """
        head = None if self.target_head is None else read_array(self.target_head, "head")
        if self.gallery is None:
            return self._from_files(None, None, head)
        gallery = Gallery.open(self.gallery, trust_code=self.trust_code)
        source, target = (str(side) for side in self.sides)
        if names_a_file(gallery, source) and names_a_file(gallery, target):
            left, right = (None if name is None else gallery.version(name) for name in self._versions)
            return self._from_files(left, right, head)
        matched = match_pairs(
            gallery,
            source,
            target,
            labels=self.labels,
            side=self.side,
            target_side=self.target_side,
            head=head,
            source_version=self.source_version,
            target_version=self.target_version,
        )
        say(str(matched))
        return matched.pairs

    @property
    def _versions(self) -> tuple[str | None, str | None]:
        return self.source_version, self.target_version

    def _from_files(self, source: EmbeddingVersion | None, target: EmbeddingVersion | None, head: Any) -> Pairs:
        pairs = Pairs.load(
            str(self.source),
            str(self.target),
            missing="drop" if self.drop_missing else "refuse",
            head=head,
            source_version=source,
            target_version=target,
        )
        found = {
            "side": self._beside(self.side, pairs),
            "target_side": self._beside(self.target_side, pairs),
            "labels": None if self.labels is None else read_array(self.labels, "label", "labels"),
        }
        return replace(pairs, **{name: value for name, value in found.items() if value is not None})

    def _beside(self, path: str | None, pairs: Pairs) -> Any:
        """Side-information of a file of its own, in the order of the pairs: by id, or by position."""
        if path is None:
            return None
        joined = Pairs.load(str(self.source), path, missing="drop" if self.drop_missing else "refuse")
        if pairs.ids is None or joined.ids is None:
            return joined.target
        rows = {item: row for row, item in enumerate(joined.ids.tolist())}
        missing = [item for item in pairs.ids.tolist() if item not in rows]
        if missing:
            raise InvalidInput(f"pair rows by id with {path}", expected="all ids", found=f"no {missing[0]!r}")
        return joined.target[[rows[item] for item in pairs.ids.tolist()]]
