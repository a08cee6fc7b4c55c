"""Which gallery items are correct for a query, in the order that breaks ties."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.boundary import array_of
from compatstore.errors import InvalidInput, first_offenders
from compatstore.evaluation.distances import Distances
from compatstore.evaluation.judgements import Judgements, places_among

_KINDS = {"i": "integers", "u": "integers", "b": "integers", "U": "strings"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Relevance:
    """The correct items of every query; positions are places in `order`.

    Args:
        order: (n,) intp, gallery rows by id (by row without ids): how items at one distance are ranked.
        query_classes: (q,) intp, dense numbers of the queries' labels.
        itself: (q,) intp, the position of the query's own item, which its ranking leaves out; -1 for none.
        members: (n,) intp, positions grouped by class, ascending within a class.
        starts: (classes + 1,) intp, start of each class in `members`.
        gains: (len(members),) float64, gain of each member, above 0; None if all gains are equal.
        depth: Rank down to which gains count: the k of recall@k, nDCG@k and MRR@k; None if these are not measured.
    """

    order: Positions
    query_classes: Positions
    itself: Positions
    members: Positions = field(repr=False)
    starts: Positions = field(repr=False)
    gains: Doubles | None = field(default=None, repr=False)
    depth: int | None = None

    def of(self, query: int, span: tuple[int, int] | None = None) -> Positions:
        """Positions of a query's correct items, ascending, without its own item; those of a span, or all."""
        return self.members[self._places(query, span)]

    def gains_of(self, query: int) -> Doubles:
        """Gain of each correct item of a query."""
        places = self._places(query)
        return np.ones(len(places)) if self.gains is None else self.gains[places]

    def num_among(self, chosen: BoolArray) -> Positions:
        """(q,) intp, correct items of each query among chosen ones of the gallery, (n,) bool by position."""
        return np.array([np.count_nonzero(chosen[self.of(query)]) for query in range(len(self.itself))], np.intp)

    def _places(self, query: int, span: tuple[int, int] | None = None) -> Positions:
        """Range of a query's correct items in `members`."""
        label = self.query_classes[query]
        start, end = self.starts[label], self.starts[label + 1]
        if span is not None:
            start, end = start + np.searchsorted(self.members[start:end], span)
        places = np.arange(start, end)
        others: Positions = places[self.members[places] != self.itself[query]]
        return others


def relevance_from_labels(
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
    query_ids: npt.ArrayLike | None = None,
    gallery_ids: npt.ArrayLike | None = None,
    counts: tuple[int, int] | None = None,
) -> Relevance:
    """Match labels, and ids where both sides have them.

    Args:
        query_labels: (q,) integers or strings.
        gallery_labels: (n,) of the same kind.
        query_ids: (q,) integers or strings, or None.
        gallery_ids: (n,) of the same kind, each once, or None.
        counts: q and n, where something else gives them; None for the numbers of labels.

    Raises:
        InvalidInput: Labels or ids are neither integers nor strings, of two kinds, or not as many as `counts`. A
            gallery id occurs twice.
    """
    for count, side, labels, ids in zip(
        counts or (), ("query", "gallery"), (query_labels, gallery_labels), (query_ids, gallery_ids), strict=False
    ):
        require_length(labels, count, f"{side} labels")
        require_length(ids, count, f"{side} ids")
    query_classes, gallery_classes = _numbered(query_labels, gallery_labels, "labels")
    order, itself = _arrange(len(query_classes), len(gallery_classes), query_ids, gallery_ids)
    classes = gallery_classes[order]
    members = np.argsort(classes, kind="stable")
    starts = np.searchsorted(classes[members], np.arange(max(query_classes.max(), classes.max()) + 2))
    return Relevance(order=order, query_classes=query_classes, itself=itself, members=members, starts=starts)


def relevance_from_neighbours(
    distances: Distances,
    k: int,
    query_ids: npt.ArrayLike | None = None,
    gallery_ids: npt.ArrayLike | None = None,
    depth: int | None = None,
) -> Relevance:
    """Take each query's k nearest items as the reference of an agreement.

    Args:
        distances: q queries against n items in the space of the reference.
        k: Neighbours of a query; items exactly as far as the k-th are correct too.
        query_ids: (q,) integers or strings, or None; a query's own item is left out.
        gallery_ids: (n,) of the same kind, each once, or None.
        depth: See `Relevance`.

    Raises:
        InvalidInput: k is not between 1 and the items that a query can find. A gallery id occurs twice.
    """
    queries, items = len(distances.left), len(distances.right)
    order, itself = _arrange(queries, items, query_ids, gallery_ids)
    most = items - int((itself >= 0).any())
    if not 1 <= k <= most:
        raise InvalidInput("find true neighbours", expected=f"1 to {most} of them", found=str(k))
    counts, members = [np.zeros(1, np.intp)], []
    for start, block in distances.blocks():
        found = block[:, order]
        leave_out(found, itself[start : start + len(found)])
        correct = found <= np.partition(found, k - 1, axis=1)[:, k - 1 : k]
        counts.append(correct.sum(axis=1))
        members.append(np.nonzero(correct)[1])
    return Relevance(
        order=order,
        query_classes=np.arange(queries),
        itself=itself,
        members=np.concatenate(members),
        starts=np.cumsum(np.concatenate(counts)),
        depth=depth,
    )


def relevance_from_judgements(
    judgements: Judgements,
    queries: int,
    items: int,
    query_ids: npt.ArrayLike | None = None,
    gallery_ids: npt.ArrayLike | None = None,
    depth: int | None = None,
) -> Relevance:
    """Take the items judged correct.

    Args:
        judgements: Judgements of q queries and n items.
        queries: q.
        items: n.
        query_ids: (q,) integers or strings, or None; a query's own item is left out.
        gallery_ids: (n,) of the same kind, each once, or None.
        depth: See `Relevance`.

    Raises:
        InvalidInput: A gallery id occurs twice.
    """
    order, itself = _arrange(queries, items, query_ids, gallery_ids)
    place = np.empty(items, np.intp)
    place[order] = np.arange(items)
    positions = place[judgements.items]
    sorted_by = np.lexsort((positions, judgements.queries))
    return Relevance(
        order=order,
        query_classes=np.arange(queries),
        itself=itself,
        members=positions[sorted_by],
        starts=np.searchsorted(judgements.queries[sorted_by], np.arange(queries + 1)),
        gains=judgements.gains[sorted_by],
        depth=depth,
    )


def leave_out(distances: Doubles, itself: Positions) -> None:
    """Put each query's own item, where it has one (not -1), last in its row; in place."""
    rows = np.flatnonzero(itself >= 0)
    distances[rows, itself[rows]] = np.inf


def places_of(query_ids: npt.ArrayLike, gallery_ids: npt.ArrayLike) -> Positions:
    """Find the gallery row of each query's own item: (q,) intp, -1 where it is not in the gallery.

    Raises:
        InvalidInput: Ids are neither integers nor strings, or of two kinds. A gallery id occurs twice.
    """
    order, itself = _arrange(len(np.asarray(query_ids)), len(np.asarray(gallery_ids)), query_ids, gallery_ids)
    return np.where(itself >= 0, order[itself], -1)


def as_keys(values: npt.ArrayLike, name: str) -> npt.NDArray[np.generic]:
    """Return labels or ids as a one-dimensional array of integers or strings.

    Raises:
        InvalidInput: They are something else (floats, None, nested lists), or there are none.
    """
    keys = np.asarray(values)
    if keys.dtype == object:  # pandas and Arrow hand strings over as objects
        keys = np.asarray(keys.tolist())
    if keys.ndim != 1 or not keys.size or keys.dtype.kind not in _KINDS:
        raise InvalidInput(
            f"read {name}",
            expected="a non-empty list of integers or of strings",
            found=f"{keys.dtype} of shape {keys.shape}",
        )
    return keys


def require_length(values: npt.ArrayLike | None, expected: int, name: str) -> None:
    """Refuse labels or ids that do not match their vectors one to one.

    Raises:
        InvalidInput: Another number of values than `expected`; None passes.
    """
    if values is not None and (found := len(array_of(values, f"read {name}", "values"))) != expected:
        raise InvalidInput(f"read {name}", expected=f"{expected}, one for each vector", found=f"{found}")


def _numbered(queries: npt.ArrayLike, gallery: npt.ArrayLike, name: str) -> tuple[Positions, Positions]:
    """Replace equal values on both sides by equal numbers 0, 1, ..., ordered as the values are."""
    left, right = as_keys(queries, f"query {name}"), as_keys(gallery, f"gallery {name}")
    # NumPy would compare 1 with "1", and int64 with uint64 through floats: both find matches that are none.
    if _KINDS[left.dtype.kind] != _KINDS[right.dtype.kind] or np.result_type(left, right).kind == "f":
        raise InvalidInput(f"match {name}", expected="one type on both sides", found=f"{left.dtype} and {right.dtype}")
    numbers = np.unique(np.concatenate([left, right]), return_inverse=True)[1]
    return numbers[: len(left)], numbers[len(left) :]


def _arrange(
    queries: int, items: int, query_ids: npt.ArrayLike | None, gallery_ids: npt.ArrayLike | None
) -> tuple[Positions, Positions]:
    """Gallery rows by id, and each query's own position among them."""
    order, itself = np.arange(items), np.full(queries, -1)
    if gallery_ids is not None:
        order = _order_by_id(as_keys(gallery_ids, "gallery ids"))
    if query_ids is not None and gallery_ids is not None:
        numbers, others = _numbered(query_ids, gallery_ids, "ids")
        itself = places_among(numbers, others[order])
    return order, itself


def _order_by_id(ids: npt.NDArray[np.generic]) -> Positions:
    order = np.argsort(ids, kind="stable")
    ranked = ids[order]
    twice = ranked[1:][ranked[1:] == ranked[:-1]]
    if twice.size:
        raise InvalidInput("rank a gallery", expected="each id once", found=first_offenders(np.unique(twice).tolist()))
    return order
