"""Pairs to train on, from files and from a gallery, as the options name them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compatstore.cli.array_files import read_array
from compatstore.errors import InvalidInput
from compatstore.gallery import Gallery
from compatstore.trainers import Pairs
from compatstore.versions import EmbeddingVersion


@dataclass(frozen=True, kw_only=True)
class PairFiles:
    """Where pairs come from.

    Args:
        source: File of source vectors, or None to take the gallery's.
        target: File of target vectors, likewise.
        side: File of side-information of the source, or None for the column `side` of `source`.
        target_side: The same of the target.
        labels: File of classes, in the order of `source`.
        target_head: File of the classifier head of the target model.
        drop_missing: Leave out ids that only one file has.
        gallery: Gallery whose versions the pairs are of, or None.
        source_version: Name of the source version in it.
        target_version: Name of the target version in it.
        trust_code: Build encoders that the gallery names as Python code.

    Raises:
        InvalidInput: Of two options that need each other one is missing.
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
        together = {
            "--source and --target": (self.source, self.target),
            "--gallery, --from and --to": (self.gallery, self.source_version, self.target_version),
        }
        given = [name for name, options in together.items() if all(options)]
        broken = [name for name, options in together.items() if any(options) and not all(options)]
        if broken or not given:
            found = f"only some of {', '.join(broken)}" if broken else "neither"
            raise InvalidInput("train on pairs", expected=" and/or ".join(together), found=found)
        beside = [name for name in ("side", "target_side", "labels") if getattr(self, name) is not None]
        if self.source is None and beside:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in beside)
            raise InvalidInput(f"train with {flags}", expected="--source and --target too", found="neither")

    def read(self) -> Pairs:
        """Read the pairs.

        Raises:
            InvalidInput: A file cannot be read, rows cannot be joined, or the gallery has no pairs.
            NotFound: A file, the gallery or a version does not exist.
        """
        head = None if self.target_head is None else read_array(self.target_head, "head")
        if self.gallery is None:
            return self._from_files(None, None, head)
        gallery = Gallery.open(self.gallery, trust_code=self.trust_code)
        source, target = gallery.version(self.source_version), gallery.version(self.target_version)
        if self.source is not None:
            return self._from_files(source, target, head)
        return _native_pairs(gallery, source, target, head)

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


def _native_pairs(gallery: Gallery, source: EmbeddingVersion, target: EmbeddingVersion, head: Any) -> Pairs:
    """The items that are native in both versions."""
    ids = gallery.native_ids(source.name, target.name)
    if not ids:
        raise InvalidInput(
            f"train on the pairs of {source.name} and {target.name}",
            expected="items that are native in both",
            found="none",
            fix="Give --source and --target, or add items with vectors of both versions.",
        )
    return Pairs(
        gallery.vectors(ids, source.name),
        gallery.vectors(ids, target.name),
        side=_side(gallery, ids, source),
        target_side=_side(gallery, ids, target),
        head=head,
        ids=np.asarray(ids),
        source_version=source,
        target_version=target,
    )


def _side(gallery: Gallery, ids: list[Any], version: EmbeddingVersion) -> Any:
    """Side-information of items, or None where the version has none or an item lacks it."""
    if version.side_dim is None:
        return None
    values = gallery.side_information(ids, version.name)
    return None if np.isnan(values).any() else values
