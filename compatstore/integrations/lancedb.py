"""A LanceDB connection whose tables, if they are galleries, search with their serving versions.

`search` without a column's name searches the gallery: by the active version, or by fused search during an upgrade.
All else is LanceDB's own connection and table, unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any

import lancedb
from lancedb.query import FullTextQuery

from compatstore.boundary import shown
from compatstore.encoders import Encoder
from compatstore.errors import InvalidInput
from compatstore.gallery import Gallery
from compatstore.storage.location import locate
from compatstore.storage.records import SearchSettings
from compatstore.storage.registry import KEY, read
from compatstore.storage.store import Store

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger("compatstore.integrations")
RESULTS = 10  # as LanceDB's searches without a limit


def connect(
    database: str | PathLike[str], *, read_consistency_interval: timedelta | None = timedelta(0), **options: Any
) -> ServingConnection:
    """Connect to a LanceDB database on a disk or an object store.

    Args:
        database: Its folder, or a URI of an object store.
        read_consistency_interval: Interval at which handles check for other commits; at each use by default. LanceDB's
            own default, None, is never: after an upgrade has added columns its `optimize` and `drop_columns` are
            refused.
        options: All others of `lancedb.connect`.

    Examples:
        >>> table = connect("app-db").open_table("notes", trust_code=True)
        >>> table.search("red shirt").limit(3).to_list()  # doctest: +SKIP
    """
    return ServingConnection(lancedb.connect(database, read_consistency_interval=read_consistency_interval, **options))


class ServingConnection:
    """A LanceDB connection; its tables are `ServingTable`s.

    Attributes:
        plain: LanceDB's own connection.
    """

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def open_table(
        self,
        name: str,
        *,
        encoders: Mapping[str, Encoder] | None = None,
        queries_of: str | None = None,
        trust_code: bool = False,
        **options: Any,
    ) -> ServingTable:
        """Open a table, which may be a gallery.

        Args:
            name: Its name.
            encoders: As in `Gallery.open`: models by version, if only this program can make them. Versions among
                them may be registered later.
            queries_of: Version of the vectors that this program itself makes of its queries. Name it if the program
                embeds: its vectors then never meet another model's, even after a cutover. None: the active one.
            trust_code: As in `Gallery.open`; an embedding function of LanceDB's needs it.
            options: All others of LanceDB's `open_table`.

        Raises:
            ValueError: LanceDB finds no such table.
            NotFound: The gallery has no version `queries_of`.
        """
        return ServingTable(self.plain.open_table(name, **options), dict(encoders or {}), queries_of, trust_code)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def __getitem__(self, name: str) -> ServingTable:
        return self.open_table(name)


class ServingTable:
    """A LanceDB table; while it is a gallery, `search` is served by the gallery.

    A cutover or rollback that happened since the last use is logged once, as a warning.

    Args:
        plain: LanceDB's own table.
        encoders: See `ServingConnection.open_table`, as all others.
        queries_of: Version of the vectors that the program makes.
        trust_code: Build encoders that the gallery names as code.
    """

    def __init__(
        self, plain: Any, encoders: Mapping[str, Encoder], queries_of: str | None = None, trust_code: bool = False
    ) -> None:
        self.plain, self._encoders, self._queries_of, self._trust_code = plain, encoders, queries_of, trust_code
        self._store = Store.open(locate(plain))
        self._known: Set[str] = frozenset()
        self._active: str | None = None
        self._gallery: Gallery | None = None
        gallery = self.gallery
        if gallery is not None and queries_of is not None:
            gallery.version(queries_of)

    @property
    def gallery(self) -> Gallery | None:
        """The gallery on the table; None while it is none. Another process may adopt the table at any time.

        Raises:
            Incompatible: An encoder is another model than its version was registered with.
        """
        snapshot = self._store.snapshot()
        if KEY not in snapshot.config():
            return None
        registry = read(snapshot, self._store.location.uri)
        known = self._encoders.keys() & registry.versions.keys()
        if self._gallery is None or known != self._known:
            encoders = {name: self._encoders[name] for name in known}
            self._gallery = Gallery.open(self.plain, encoders=encoders, trust_code=self._trust_code)
            self._known = known
        if self._active not in (None, registry.active):
            name = self._store.location.name
            logger.warning("%s: searches use %s from now on, no longer %s", name, registry.active, self._active)
        self._active = registry.active
        return self._gallery

    def search(
        self, query: Any = None, vector_column_name: str | None = None, query_type: str = "auto", **options: Any
    ) -> Any:
        """Search the gallery, or by LanceDB alone the table.

        LanceDB alone searches if the table is no gallery, if a column is named, and for full-text, hybrid and
        empty queries. A text goes to the gallery if it has a model for it; else it is a full-text query, as in
        LanceDB.

        Args:
            query: A text or picture, which is embedded by the serving model; a vector; vectors by version for both
                versions of an upgrade: `{"v1": ..., "v2": ...}`.
            vector_column_name: Column to search by LanceDB alone.
            query_type: As LanceDB's.
            options: All others of LanceDB's `search`.

        Returns:
            A `ServingQuery`, or LanceDB's own builder of queries.
        """
        alone = query is None or vector_column_name is not None or query_type not in ("auto", "vector")
        gallery = self.gallery
        if gallery is None or alone or isinstance(query, FullTextQuery):
            return self.plain.search(query, vector_column_name, query_type, **options)
        is_text = isinstance(query, str)
        if is_text and query_type == "auto" and gallery.version().encoder is None:
            return self.plain.search(query, query_type="fts", **options)
        if options:
            raise _refused(f"search with {', '.join(options)}", "a query alone")
        version = None if is_text or isinstance(query, Mapping) else self._queries_of
        return ServingQuery(gallery, query, version)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def __len__(self) -> int:
        return int(self.plain.count_rows())

    def __repr__(self) -> str:
        return f"<ServingTable {self.plain.name}: {self.gallery or 'no gallery'}>"


class ServingQuery:
    """A search of a gallery in LanceDB's form: settings one after the other, then `to_list` or another result."""

    def __init__(self, gallery: Gallery, query: Any, version: str | None) -> None:
        self._gallery, self._query, self._settings = gallery, query, SearchSettings()
        self._arguments: dict[str, Any] = {"k": RESULTS, "version": version}

    def limit(self, limit: int | None) -> ServingQuery:
        """Set the number of results; None for 10."""
        self._arguments["k"] = RESULTS if limit is None else limit
        return self

    def where(self, where: str, prefilter: bool | None = None) -> ServingQuery:
        """Keep to the items that fulfil an SQL condition.

        Raises:
            InvalidInput: `prefilter` is False: a gallery always finds `limit` items that fulfil it, if there are.
        """
        if prefilter is False:
            raise _refused("filter the results", "prefilter=True")
        self._arguments["where"] = where
        return self

    def select(self, columns: Sequence[str]) -> ServingQuery:
        """Name the columns to return; id, source and metadata by default."""
        if isinstance(columns, Mapping | str) or not all(isinstance(name, str) for name in columns):
            raise _refused(f"select {shown(columns)}", "a list of names")
        self._arguments["columns"] = list(columns)
        return self

    def nprobes(self, nprobes: int) -> ServingQuery:
        """Set how many cells of the index are compared."""
        self._settings = replace(self._settings, nprobes=nprobes)
        return self

    def refine_factor(self, refine_factor: int) -> ServingQuery:
        """Set which multiple of the results wanted is compared by the vectors themselves."""
        self._settings = replace(self._settings, refine=refine_factor)
        return self

    def to_arrow(self) -> Any:
        """Search; an Arrow table as `Gallery.search` gives it: nearest first, with `_distance` and `_version`."""
        settings = None if self._settings == SearchSettings() else self._settings
        return self._gallery.search(self._query, **self._arguments, settings=settings)

    def to_list(self) -> list[dict[str, Any]]:
        """Search; a dict for each item, nearest first."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def to_pandas(self) -> pd.DataFrame:
        """Search; a pandas frame, nearest first."""
        return self.to_arrow().to_pandas()

    def to_pydantic(self, model: type[Any]) -> list[Any]:
        """Search; an object of a LanceDB or pydantic model for each item, with the columns that the model has."""
        names = list(model.model_fields)
        wanted = [name for name in names if not name.startswith("_")]
        return [model(**{name: row[name] for name in names if name in row}) for row in self.select(wanted).to_list()]

    def __getattr__(self, name: str) -> Any:
        expected = f"one of {', '.join(SETTINGS)}"
        raise _Unserved(f"use {name} of a search that the gallery serves", expected=expected, found=name, fix=PLAIN)


SETTINGS = ("limit", "where", "select", "nprobes", "refine_factor", "to_arrow", "to_list", "to_pandas", "to_pydantic")
PLAIN = "Search by LanceDB alone, with the column named: table.plain.search(query, vector_column_name=...)"


class _Unserved(InvalidInput, AttributeError):  # noqa: N818  (named for the fault)
    """A method of LanceDB's builder that a gallery's search lacks; for Python, a missing attribute."""


def _refused(operation: str, expected: str) -> InvalidInput:
    return InvalidInput(f"{operation}, by a search that the gallery serves", expected=expected, found="that", fix=PLAIN)
