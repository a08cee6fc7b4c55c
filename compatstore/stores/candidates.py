"""Candidates of a search from the store's own indexes; the gallery ranks them by its vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compatstore.arrays import FloatArray, Id
from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput, UpgradeError
from compatstore.storage.catalog import Catalog
from compatstore.storage.ids import among

if TYPE_CHECKING:
    from compatstore.stores.ledger import Link

TIMES, MORE = 4, 50  # candidates of each index for k results: TIMES k + MORE


@checked_fields
@dataclass(frozen=True, kw_only=True)
class StoreIndexes:
    """A serving that takes candidates from the indexes of the store that the gallery mirrors.

    Each version's index in the store gives the nearest rows to its query, and the gallery ranks these by its own
    vectors: in a fused search by both of each item.

    Args:
        where: Condition in the store's own language that its rows fulfil, or None: SQL of PostgreSQL or SQLite, JSON of
            Chroma's `where` or Qdrant's filter, Milvus' expressions.
        depth: Candidates of each index; four times the results wanted and 50 by default.

    Raises:
        InvalidInput: The depth is below 1.

    Examples:
        >>> cs.StoreIndexes(where="lang = 'en'").depth
    """

    where: str | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise InvalidInput("search by a store's indexes", expected="depth >= 1", found=f"{self.depth}")

    def candidates(self, catalog: Catalog, queries: Mapping[str, FloatArray], k: int) -> str:
        """SQL condition of the gallery's table that selects the candidates.

        Args:
            catalog: The gallery.
            queries: Version to (q, dim) float32.
            k: Results of each query.

        Raises:
            UpgradeError: The gallery mirrors no store, or the store holds no vectors of a version.
            StorageError: The store cannot be reached, or refuses the condition.
        """
        from compatstore.stores.address import Address

        link, places = _places(catalog)
        depth, found = self.depth or TIMES * k + MORE, dict[Id, None]()
        with closing(Address.of(link.store).open()) as store:
            store.describe(link.parts)
            for version, rows in queries.items():
                if version not in places:
                    expected = f"vectors of {version} in {link.store}"
                    raise UpgradeError("search by a store's indexes", expected=expected, found=", ".join(places))
                for row in rows:
                    ids, _ = store.search(places[version], row, depth, self.where)
                    found |= dict.fromkeys(ids)
        parts: Iterator[str] = among(catalog.registry().id_column, list(found))
        return " OR ".join(parts) or "false"

    def explain(self, catalog: Catalog) -> str:
        """Source of the candidates, for the plan of a search."""
        link, places = _places(catalog)
        condition = f" where {self.where}" if self.where else ""
        return f"indexes of {link.store} over {' and '.join(places)}{condition}"


def _places(catalog: Catalog) -> tuple[Link, dict[str, str | None]]:
    """The mirrored collection, and the target under which the store holds each version; None: by the app's name."""
    from compatstore.stores.ledger import SWITCHED, MirrorLedger
    from compatstore.stores.link import folder_of

    folder = folder_of(catalog.store.location)
    if folder is not None and MirrorLedger.is_in(folder):
        with closing(MirrorLedger(folder)) as ledger:
            link, targets = ledger.link(), ledger.targets()
        if link is not None:
            switched = SWITCHED in targets.values()
            places: dict[str, str | None] = {} if switched else {link.source: None}
            return link, places | {target: None if state == SWITCHED else target for target, state in targets.items()}
    raise UpgradeError(
        "search by a store's indexes", expected="a gallery that mirrors a store", found="one that does not"
    )
