"""Pairs: the same items embedded by the source and by the target model, from which transforms are learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Digests, FloatArray, RowNumbers
from compatstore.artifacts.manifest import Side, Space
from compatstore.artifacts.matrix import as_matrix, as_side, to_numpy
from compatstore.boundary import array_of, checked, checked_fields, foreign, shown
from compatstore.digests import digest_half
from compatstore.errors import InvalidInput, first_offenders
from compatstore.versions import EmbeddingVersion, HeadLoss

if TYPE_CHECKING:
    from compatstore.trainers.pairs.sources import GalleryOfPairs

# A space counts as normalised when every vector's length is within this of 1; float16 storage moves it by 5e-4.
_UNIT = 2e-3


@checked_fields
@checked
@dataclass(frozen=True, eq=False)
class Pairs:
    """n items, row i of each array belonging to item i. Arrays or torch tensors.

    Args:
        source: (n, source dim) float32, of the source model.
        target: (n, target dim) float32, of the target model.
        side: (n, side dim) float32, side-information stored with the source vectors, or None. Where the version stores
            bits, packed codes are accepted, and of values the signs are taken.
        target_side: (n, target side dim) float32, side-information of the target version, or None.
        labels: (n,) classes, or None.
        head: (classes, target dim) float32, frozen classifier of the target model, or None for the version's.
        ids: (n,) unique ids, or None.
        source_version: The source version; its fingerprint binds the artifact to it.
        target_version: The target version; its fingerprint binds the artifact to it too.

    Raises:
        InvalidInput: No rows, arrays of other lengths, or no unit vectors where a version declares them. Vectors,
            side-information or head do not fit a version or each other. NaN or infinite values. An id occurs twice.
    """

    source: FloatArray
    target: FloatArray
    _: KW_ONLY
    side: FloatArray | None = None
    target_side: FloatArray | None = None
    labels: npt.NDArray[np.generic] | None = None
    head: FloatArray | None = None
    ids: npt.NDArray[np.generic] | None = None
    source_version: EmbeddingVersion | None = None
    target_version: EmbeddingVersion | None = None

    if TYPE_CHECKING:  # it takes any matrix, and keeps float32

        def __init__(
            self,
            source: npt.ArrayLike,
            target: npt.ArrayLike,
            *,
            side: npt.ArrayLike | None = None,
            target_side: npt.ArrayLike | None = None,
            labels: npt.ArrayLike | None = None,
            head: npt.ArrayLike | None = None,
            ids: npt.ArrayLike | None = None,
            source_version: EmbeddingVersion | None = None,
            target_version: EmbeddingVersion | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, version in (("source", self.source_version), ("target", self.target_version)):
            self._set(name, vectors_of(f"pair vectors, {name}", getattr(self, name), version))
        self._check_side("side", self.source_version)
        self._check_side("target_side", self.target_version)
        if self.head is None and self.target_version is not None:
            self._set("head", self.target_version.head)
        if self.head is not None:
            self._set("head", as_matrix("pair vectors, head", self.head, self.target.shape[1]))
        for name in ("labels", "ids"):
            if getattr(self, name) is not None:
                operation, values = f"pair vectors, {name}", getattr(self, name)
                with foreign(operation, "an array"):
                    values = to_numpy(values)
                self._set(name, array_of(values, operation, name, ndim=1))
        for name, rows in self._by_row().items():
            if len(rows) != len(self):
                expected = f"{len(self)} rows, as in source"
                raise InvalidInput(f"pair vectors, {name}", expected=expected, found=str(rows.shape))
        if self.ids is not None:
            require_unique("pair vectors", self.ids)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def head_loss(self) -> HeadLoss | None:
        """Loss that the target model was trained by, or None if its version has none."""
        return None if self.target_version is None else self.target_version.head_loss

    @classmethod
    def load(
        cls,
        source: str | PathLike[str],
        target: str | PathLike[str],
        *,
        missing: Literal["refuse", "drop"] = "refuse",
        head: FloatArray | None = None,
        source_version: EmbeddingVersion | None = None,
        target_version: EmbeddingVersion | None = None,
    ) -> Pairs:
        """Read both sides from npy, npz, Parquet, Arrow or Feather files.

        Columns (keys of an npz) are `vector` and perhaps `id`, `label` and `side`. Rows are joined by id when both
        files have ids, else by position. Labels come from either file; the target's `side` becomes `target_side`.

        Args:
            source: File of source vectors.
            target: File of target vectors.
            missing: Handling of ids that only one file has.
            head: As in `Pairs`.
            source_version: As in `Pairs`.
            target_version: As in `Pairs`.

        Raises:
            InvalidInput: A file cannot be read, the rows cannot be joined, or ids are missing in one file. An id occurs
                twice in a file.
        """
        from compatstore.trainers.pairs.sources import from_file, match_pairs

        left, right = from_file(source, source_version), from_file(target, target_version)
        return match_pairs(left, right, head=head, missing=missing)[0]

    @classmethod
    def from_gallery(
        cls,
        gallery: GalleryOfPairs,
        source: str | PathLike[str],
        target: str | PathLike[str],
        *,
        labels: str | None = None,
        side: str | PathLike[str] | None = None,
        target_side: str | PathLike[str] | None = None,
        head: FloatArray | None = None,
        source_version: str | None = None,
        target_version: str | None = None,
    ) -> Pairs:
        """Join by id the vectors of a gallery, or of a gallery and a file.

        Args:
            gallery: The gallery.
            source: A version of it (its native vectors), a column of vectors, or a file with `id` and `vector`.
            target: The same for the target.
            labels: Column of classes; by default the `label` of a file, where one has it.
            side: File of side-information of the source; by default that of the version or file.
            target_side: The same for the target.
            head: As in `Pairs`.
            source_version: Version of the source vectors, if `source` is a column or a file.
            target_version: The same for the target.

        Raises:
            NotFound: A name is neither a version, nor a column, nor a file. A version has no vectors in the gallery.
            InvalidInput: No item is on both sides, or a named source holds no vectors, ids or labels.
        """
        from compatstore.trainers.pairs import sources

        return sources.match_pairs(
            sources.from_gallery(gallery, source, source_version),
            sources.from_gallery(gallery, target, target_version),
            labels=None if labels is None else sources.labels_of(gallery, labels),
            side=side,
            target_side=target_side,
            head=head,
        )[0]

    def subset(self, rows: RowNumbers | Sequence[int]) -> Pairs:
        """Return some rows, in the given order."""
        chosen = array_of(rows, "choose pairs", "rows", ndim=1)
        if chosen.size and (chosen.dtype.kind not in "iu" or chosen.min() < -len(self) or chosen.max() >= len(self)):
            raise InvalidInput("choose pairs", expected=f"rows from 0 to {len(self) - 1}", found=shown(rows))
        chosen = chosen.astype(np.int64)
        some: dict[str, Any] = {name: array[chosen] for name, array in self._by_row().items()}
        return replace(self, **some)

    def split(self, fraction: float, seed: int, by: Literal["row", "class"] = "row") -> tuple[Pairs, Pairs]:
        """Hold out a part.

        Args:
            fraction: Share of the rows, or of the classes, to hold out, in (0, 1).
            seed: Seed of the choice.
            by: Hold out rows, or whole classes (to measure a transform on classes that it was not trained on).

        Returns:
            The pairs kept and the pairs held out, both in the order of the pairs and neither empty.

        Raises:
            InvalidInput: The fraction is out of range, the seed is negative, labels are missing, or there is too little
                to split.
        """
        if not 0 < fraction < 1:
            raise InvalidInput("split pairs", expected="a fraction between 0 and 1", found=str(fraction))
        with foreign("split pairs", "a seed from 0"):
            random = np.random.default_rng(seed)
        units: npt.NDArray[np.generic] = np.arange(len(self))
        if by != "row":
            if by != "class" or self.labels is None:
                raise InvalidInput("split pairs", expected='by "row", or by "class" with labels', found=repr(by))
            units = self.labels
        names = np.unique(units)
        if len(names) < 2:
            raise InvalidInput("split pairs", expected=f"at least 2 of: {by}", found=str(len(names)))
        count = min(max(1, round(fraction * len(names))), len(names) - 1)
        held_out = np.isin(units, random.permutation(names)[:count])
        return self.subset(np.flatnonzero(~held_out)), self.subset(np.flatnonzero(held_out))

    @property
    def seen(self) -> Digests:
        """(n,) uint64, digests of the source vectors, by which an artifact records the rows that it was trained on."""
        return digest_half(self.source)

    @property
    def source_space(self) -> Space:
        """The source space, as artifacts record it."""
        return space_of(self.source, self.source_version)

    @property
    def target_space(self) -> Space:
        """The target space, as artifacts record it."""
        return space_of(self.target, self.target_version)

    @property
    def side_source(self) -> Side | None:
        """The source's side-information, as artifacts record it, or None."""
        return _side(self.side, self.source_version)

    @property
    def side_target(self) -> Side | None:
        """The target's side-information, as artifacts record it, or None."""
        return _side(self.target_side, self.target_version)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _by_row(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the arrays that hold one row for each item."""
        names = ("source", "target", "side", "target_side", "labels", "ids")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def _check_side(self, name: str, version: EmbeddingVersion | None) -> None:
        """Take the values that the version stores: -1 and 1 for bits."""
        operation, value = f"pair vectors, {name}", getattr(self, name)
        if value is not None and version is not None and version.side_dim is not None:
            self._set(name, as_side(operation, value, version.side_dim, version.side_dtype))
        elif value is not None:
            self._set(name, as_matrix(operation, value))


def vectors_of(operation: str, given: npt.ArrayLike | None, version: EmbeddingVersion | None) -> FloatArray:
    """Return vectors, one row or more, as float32 that fits their version.

    Raises:
        InvalidInput: They are no matrix of finite numbers, or do not fit the version.
    """
    if given is None:
        raise InvalidInput(operation, expected="a matrix", found="None")
    vectors = as_matrix(operation, given, None if version is None else version.dim)
    if not len(vectors):
        raise InvalidInput(operation.partition(",")[0], expected="at least one row", found="none")
    if version is not None and version.normalised and not unit_length(vectors):
        raise InvalidInput(operation, expected=f"unit vectors, as {version.name} declares", found="other lengths")
    return vectors


def unit(vectors: FloatArray) -> FloatArray:
    """(n, d) -> (n, d): of unit length; vectors without a direction stay near 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return cast(FloatArray, vectors / np.maximum(lengths, np.finfo(np.float32).tiny))


def unit_length(vectors: FloatArray) -> bool:
    """Return whether every vector, (n, dim), has unit length up to storage precision."""
    return bool(np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < _UNIT)


def require_unique(operation: str, ids: npt.NDArray[np.generic]) -> None:
    """Refuse ids that occur twice.

    Raises:
        InvalidInput: Names the first of them.
    """
    values, counts = np.unique(ids, return_counts=True)
    twice = values[counts > 1].tolist()
    if twice:
        raise InvalidInput(
            operation, expected="each id once", found=f"twice: {first_offenders(twice)}", duplicates=twice
        )


def space_of(vectors: FloatArray, version: EmbeddingVersion | None) -> Space:
    """Return the space of vectors, (n, dim), as artifacts record it."""
    space = Space(dim=vectors.shape[1]) if version is None else Space.of(version)
    return replace(space, normalised=unit_length(vectors))


def _side(side: FloatArray | None, version: EmbeddingVersion | None) -> Side | None:
    if side is None:
        return None
    return (None if version is None else Side.of(version)) or Side(dim=side.shape[1])
