"""Pairs to train on, from files and from a gallery, as the options name them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from compatstore.cli.files import read_array
from compatstore.errors import InvalidInput
from compatstore.gallery import Gallery
from compatstore.trainers import Pairs
from compatstore.trainers.pairs.sources import from_file, from_gallery, labels_of, match_pairs

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
        names, versions = self.sides, (self.source_version, self.target_version)
        labels = None
        if self.gallery is None:
            left, right = (from_file(str(name)) for name in names)
        else:
            gallery = Gallery.open(self.gallery, trust_code=self.trust_code)
            left, right = (
                from_gallery(gallery, str(name), version) for name, version in zip(names, versions, strict=True)
            )
            if self.labels is not None and (left.in_gallery or right.in_gallery):
                labels = labels_of(gallery, self.labels)
        if self.labels is not None and labels is None:
            classes = read_array(self.labels, "label", "labels")
            if len(classes) != left.rows:
                expected = f"{left.rows} values, in the order of {left.what}"
                raise InvalidInput(f"train with labels {self.labels}", expected=expected, found=str(len(classes)))
            left = replace(left, labels=lambda rows: classes[rows])
        missing: Literal["refuse", "drop"] = "drop" if self.drop_missing else "refuse"
        pairs, matched = match_pairs(
            left, right, labels=labels, side=self.side, target_side=self.target_side, head=head, missing=missing
        )
        if self.gallery is not None:
            say(matched)
        return pairs
