"""Anchors that correspond in two spaces, found without pairs: centroids, matched by how similar they are to each other.

Centroids of items of one kind lie alike in the spaces of two models, up to a rotation. So the matching that makes the
two matrices of similarities most alike, a quadratic assignment, pairs centroids of the same meaning (mini-vec2vec,
arXiv 2510.02348, algorithm 2).
"""

from __future__ import annotations

import numpy as np

from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.trainers.pairs.pairs import unit

_ROUNDS = 25  # of k-means
_MOST_SWAPS = 1000  # of one start; a start of 40 centroids ends after some 40
_ROUNDING = 1e-9  # gains below are none


def match_centroids(
    source: FloatArray, target: FloatArray, clusters: int, starts: int, random: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Cluster both sets, and match the centroids.

    Args:
        source: (n, source dim) float32, of unit length and about their mean.
        target: (m, target dim) float32, of other items, the same.
        clusters: Centroids of each set, at most n and m.
        starts: Of the search for the best matching.
        random: Draws centroids and starts.

    Returns:
        (clusters, source dim) and (clusters, target dim) float32 of unit length; row i of one belongs to row i of the
        other.
    """
    left, right = (centroids(vectors, clusters, random) for vectors in (source, target))
    return left, right[assign(_similarities(left), _similarities(right), starts, random)]


def centroids(vectors: FloatArray, clusters: int, random: np.random.Generator) -> FloatArray:
    """Spherical k-means: (n, d) float32 of unit length -> (clusters, d) float32 of unit length."""
    found = vectors[random.choice(len(vectors), clusters, replace=False)]
    for _ in range(_ROUNDS):
        nearest = (vectors @ found.T).argmax(axis=1)
        order = np.argsort(nearest, kind="stable")
        counts = np.bincount(nearest, minlength=clusters)
        filled = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[filled]
        # A cluster that lost all its items begins again at one of them.
        found = vectors[random.choice(len(vectors), clusters)]
        found[filled] = unit(np.add.reduceat(vectors[order], starts, axis=0))
    return found


def assign(left: Doubles, right: Doubles, starts: int, random: np.random.Generator) -> Positions:
    """Search for the matching p that maximises sum_ij left[i, j] right[p[i], p[j]], by the best swap until none gains.

    All starts advance at once. The search is a local one, whose best start of many finds matchings of 40 that the
    Frank-Wolfe method (scipy's "faq") misses.

    Args:
        left: (k, k) symmetric.
        right: (k, k) symmetric.
        starts: Random matchings to begin with, >= 1.
        random: Draws them.

    Returns:
        (k,) the row of `right` for each row of `left`.
    """
    matchings = np.argsort(random.random((starts, len(left))), axis=1)
    active = np.arange(starts)
    for _ in range(_MOST_SWAPS):
        gains = _gains(left, _permuted(right, matchings[active])).reshape(len(active), -1)
        best = gains.argmax(axis=1)
        better = gains[np.arange(len(active)), best] > _ROUNDING
        active = active[better]
        if not len(active):
            break
        i, j = np.divmod(best[better], len(left))
        matchings[active, i], matchings[active, j] = matchings[active, j], matchings[active, i]
    values = np.einsum("ij,sij->s", left, _permuted(right, matchings))
    return np.asarray(matchings[values.argmax()])


def _gains(left: Doubles, right: Doubles) -> Doubles:
    """What each swap adds to the objective: (k, k) and (starts, k, k), both symmetric -> (starts, k, k)."""
    common = right @ left  # [s, j, i] is the product of row j of right with row i of left
    own = np.diagonal(common, axis1=1, axis2=2)
    diagonal, other = np.diag(left), np.diagonal(right, axis1=1, axis2=2)
    gains = common + common.transpose(0, 2, 1) - own[:, :, None] - own[:, None, :]
    # Rows i and j of the sum swap among themselves, which the products above count as if they stayed.
    gains -= (diagonal[:, None] - left) * (right - other[:, :, None])
    gains -= (left - diagonal) * (other[:, None, :] - right)
    gains *= 2
    gains += (diagonal[:, None] - diagonal) * (other[:, None, :] - other[:, :, None])
    return np.asarray(gains)


def _permuted(right: Doubles, matchings: Positions) -> Doubles:
    return np.asarray(right[matchings[:, :, None], matchings[:, None, :]])


def _similarities(rows: FloatArray) -> Doubles:
    """Cosines of centroids, (k, k), about the mean of each row and column."""
    cosines = rows.astype(np.float64) @ rows.T
    cosines -= cosines.mean(axis=0)
    return np.asarray(cosines - cosines.mean(axis=1, keepdims=True))
