"""Unpaired: a rotation between two spaces from vectors of different items, and a check that it was found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Annotated

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray
from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.boundary import checked, checked_fields
from compatstore.digests import seed_of
from compatstore.errors import Incompatible, InvalidInput
from compatstore.trainers.pairs.anchors import match_centroids
from compatstore.trainers.pairs.pairs import space_of, unit, unit_length, vectors_of
from compatstore.trainers.settings import Count, at_least, from_to
from compatstore.versions import EmbeddingVersion

_ITEMS_OF_CLUSTER = 25  # at least, on average
_CLUSTERED = 10_000  # rows that are clustered at a time
_MATCHINGS = 16  # of one start; each begins from its own centroids
_SWAPPED = 100  # random matchings that a matching is improved from
_MAPPED, _SEARCHED = 1000, 4000  # source and target rows of a round
_MOST_NEIGHBOURS, _FEWEST_NEIGHBOURS = 50, 10  # of a mapped row, in the first and in the last round
_HUB = 10  # neighbours by which a target row counts as a hub
_COMPARED = 2000  # source rows on which maps are compared


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Unpaired:
    """y = s R (x - mean of x) + mean of y, R orthogonal, found without a pair (mini-vec2vec, arXiv 2510.02348).

    For items whose sources are lost, or a source model that cannot be called any more. Both sets are vectors of items
    of one kind: the rows of each are random draws from one distribution, and no item needs to be in both.

    A start clusters both sets several times and matches the centroids by their similarities (`match_centroids`), which
    gives a first rotation. Each round then maps random source rows, takes the mean of the nearest target rows as the
    target of each, nearness corrected for hubs (CSLS, Conneau et al., ICLR 2018), and moves the rotation half of the
    way to the solution of Procrustes.

    Where the two sets are not alike, starts end in rotations that have nothing in common. So their agreement, the mean
    cosine of what any two of them make of the same rows, shows without a label whether a map was found. It does not
    show how well the map retrieves: measure that as for any other transform.

    Args:
        clusters: Centroids that are matched at a time, >= 3; each set needs 25 rows for each.
        starts: Independent starts, >= 2.
        rounds: Rounds of a start, >= 1.
        agreement: Least agreement of the starts, from -1 to 1; -1 refuses no sets.
        seed: Of all draws.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    clusters: Annotated[int, at_least(3)] = 40
    starts: Annotated[int, at_least(2)] = 3
    rounds: Count = 200
    agreement: Annotated[float, from_to(-1, 1)] = 0.5
    seed: int = 0

    @checked
    def fit(
        self,
        source: npt.ArrayLike,
        target: npt.ArrayLike,
        *,
        source_version: EmbeddingVersion | None = None,
        target_version: EmbeddingVersion | None = None,
    ) -> Artifact:
        """Align two sets of vectors, in any order and of any items.

        Args:
            source: (n, source dim) float32, of the source model.
            target: (m, target dim) float32, of the target model.
            source_version: The source version; its fingerprint binds the artifact to it.
            target_version: The target version; its fingerprint binds the artifact to it too.

        Returns:
            A ForwardTransform; its figures hold the agreement. It records no vector as learned from, as it has seen the
            target's vector of no source vector.

        Raises:
            InvalidInput: There are too few rows, or NaN or infinite values. Vectors do not fit a version.
            Incompatible: The starts agree by less than `agreement`.
        """
        left = vectors_of("align vectors, source", source, source_version)
        right = vectors_of("align vectors, target", target, target_version)
        least = _ITEMS_OF_CLUSTER * self.clusters
        for name, vectors in (("source", left), ("target", right)):
            if len(vectors) < least:
                expected = f"{least:,} rows or more, {_ITEMS_OF_CLUSTER} for each of {self.clusters} clusters"
                raise InvalidInput(f"align vectors, {name}", expected=expected, found=f"{len(vectors):,}")
        means = [vectors.mean(axis=0, dtype=np.float64) for vectors in (left, right)]
        centred = [np.asarray(rows - mean, np.float32) for rows, mean in zip((left, right), means, strict=True)]
        rotation, agreement = self._align(*map(unit, centred))
        if agreement < self.agreement:
            raise Incompatible(
                f"align {len(left):,} source with {len(right):,} target vectors without pairs",
                expected=f"{self.starts} starts that agree, by {self.agreement:g} or more",
                found=f"an agreement of {agreement:.2f}: no map between these sets was found",
                fix="Take more vectors, of the same kind of items in both sets; or embed some items with both models, "
                "and fit Ridge on these pairs.",
            )
        spread = [float(np.linalg.norm(rows, axis=1).mean()) for rows in centred]
        weight = spread[1] / spread[0] * rotation.astype(np.float64)
        tensors = {"h.mixer.0.weight": weight, "h.mixer.0.bias": means[1] - weight @ means[0]}
        architecture = Architecture(source_dim=left.shape[1], output_dim=right.shape[1], normalise=unit_length(right))
        return Artifact.create(
            "ForwardTransform",
            method=type(self).__name__,
            source=space_of(left, source_version),
            target=space_of(right, target_version),
            networks={"h": architecture},
            tensors={name: np.ascontiguousarray(tensor, dtype=np.float32) for name, tensor in tensors.items()},
            settings=asdict(self),
            figures={"h": {"agreement": agreement, "source_rows": len(left), "target_rows": len(right)}},
            seen=np.empty(0, np.uint64),
        )

    def _align(self, source: FloatArray, target: FloatArray) -> tuple[FloatArray, float]:
        """The mean rotation of all starts, and their agreement."""
        maps = []
        for start in range(self.starts):
            random = np.random.default_rng(seed_of(f"start {start}", self.seed))
            maps.append(_refined(source, target, self._first(source, target, random), self.rounds, random))
        random = np.random.default_rng(seed_of("agreement", self.seed))
        some = _some(source, _COMPARED, random)
        made = [unit(some @ each.T) for each in maps]
        agreement = float(np.mean([(one * other).sum(axis=1).mean() for one, other in combinations(made, 2)]))
        return _nearest_rotation(np.mean(maps, axis=0)), agreement

    def _first(self, source: FloatArray, target: FloatArray, random: np.random.Generator) -> FloatArray:
        """A rotation by matched centroids alone."""
        matched = []
        for _ in range(_MATCHINGS):
            rows, others = _some(source, _CLUSTERED, random), _some(target, _CLUSTERED, random)
            matched.append(match_centroids(rows, others, self.clusters, _SWAPPED, random))
        left, right = map(np.concatenate, zip(*matched, strict=True))
        return _nearest_rotation(right.T @ left)


def _refined(
    source: FloatArray, target: FloatArray, rotation: FloatArray, rounds: int, random: np.random.Generator
) -> FloatArray:
    """Move a rotation, (target dim, source dim), to what the neighbours of mapped rows suggest, round by round."""
    counts = np.geomspace(_MOST_NEIGHBOURS, _FEWEST_NEIGHBOURS, rounds).round().astype(int)
    mean = rotation
    for count in counts:
        rows, searched = _some(source, _MAPPED, random), _some(target, _SEARCHED, random)
        cosines = (rows @ mean.T) @ searched.T
        hubs = np.partition(cosines, -_HUB, axis=0)[-_HUB:].mean(axis=0)
        near = np.argpartition(hubs - 2 * cosines, count, axis=1)[:, :count]
        mean = np.float32(0.5) * (mean + _nearest_rotation(searched[near].mean(axis=1).T @ rows))
    return _nearest_rotation(mean)


def _nearest_rotation(matrix: FloatArray) -> FloatArray:
    """The matrix with orthonormal rows or columns that is nearest to a matrix (Schoenemann 1966)."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(left @ right, np.float32)


def _some(vectors: FloatArray, most: int, random: np.random.Generator) -> FloatArray:
    """Random rows, at most as many; all in random order if there are fewer."""
    return vectors[random.permutation(len(vectors))[:most]]
