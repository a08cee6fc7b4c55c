"""Application queries, with which an upgrade is measured, and their correct items."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from os import PathLike, fspath
from typing import Any

from compatstore import next_step
from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput
from compatstore.evaluation.judgements import Qrels, qrels_of, read_qrels
from compatstore.evaluation.query_files import QuerySet, queries_of, read_queries

IN_MEMORY = ""


def named_files() -> str:
    """Names of the files of queries and judgements, for messages."""
    return next_step.either(shell="--queries FILE --qrels FILE", python="labels=cs.Queries(queries=..., qrels=...)")


@checked_fields
@dataclass(frozen=True, kw_only=True, eq=False)
class Queries:
    """Queries of an app, and which items are correct for them.

    Args:
        queries: File of application queries (jsonl, tsv or csv) with id and text, path or item; or with vectors of
            both models called source and target, or as the versions are (npz, parquet, safetensors). In Python also
            the same columns. In most galleries queries are not items.
        qrels: File of relevance judgements (TREC, BEIR, or a log of clicks with counts): query id, item id, grade.
            In Python also query id -> item id -> grade. Without it agreement is measured, not quality.
        digest: Expected digest of the queries and judgements, if known; "" for any.

    Raises:
        InvalidInput: There are no queries, or a file cannot be read.
        NotFound: There is no such file.

    Examples:
        >>> queries = cs.Queries(queries={"id": ["q1", "q2"], "text": ["red", "blue"]}, qrels={"q1": {"a": 2, "b": 1}})
        >>> queries.judged, len(queries.read)
        (True, 2)
    """

    queries: str | PathLike[str] | Mapping[str, Any] | None = field(default=None, metadata={"unit": "FILE"})
    qrels: str | PathLike[str] | Mapping[Any, Any] | None = field(default=None, metadata={"unit": "FILE"})
    digest: str = field(default="", repr=False, metadata={"option": False})

    def __post_init__(self) -> None:
        if self.queries is None:
            found = "none" if self.qrels is None else f"qrels alone: {self.name_of(self.qrels) or 'in memory'}"
            fix = f"Name them: {next_step.option('queries', next_step.FILE)}"
            raise InvalidInput("measure by queries", expected="queries", found=found, fix=fix)
        if not self.digest:
            object.__setattr__(self, "digest", self._digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queries) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def judged(self) -> bool:
        """True if judgements define relevance."""
        return self.qrels is not None

    @cached_property
    def read(self) -> QuerySet:
        """The queries.

        Raises:
            InvalidInput: The file cannot be read.
        """
        if isinstance(self.queries, Mapping):
            return queries_of(self.queries)
        assert self.queries is not None
        return read_queries(fspath(self.queries))

    @cached_property
    def judgements(self) -> Qrels | None:
        """Query id -> item id -> grade.

        Raises:
            InvalidInput: The file cannot be read.
        """
        if self.qrels is None or isinstance(self.qrels, Mapping):
            return None if self.qrels is None else qrels_of(self.qrels)
        return read_qrels(fspath(self.qrels))

    def require_same(self) -> None:
        """Refuse files that hold something else than when an upgrade was estimated by them.

        Raises:
            InvalidInput: They do, or the queries were columns that are gone.
        """
        operation = "measure by the queries of the estimate"
        if self.queries == IN_MEMORY:
            found = "queries that a program held"
            raise InvalidInput(
                operation, expected="a file", found=found, fix="Hand them over again: labels=Queries(...)"
            )
        if self._digest() != self.digest:
            found = f"others in {self.name_of(self.queries)}"
            raise InvalidInput(operation, expected="the same", found=found, fix=f"Name the files: {named_files()}.")

    def record(self) -> dict[str, str | None]:
        """Plain values for JSON: where the queries were, and their digest."""
        qrels = None if self.qrels is None else self.name_of(self.qrels)
        return {"queries": self.name_of(self.queries), "qrels": qrels, "digest": self.digest}

    @staticmethod
    def name_of(given: object) -> str:
        """The path of a file; "" for values in memory."""
        return IN_MEMORY if isinstance(given, Mapping) else fspath(given)  # type: ignore[call-overload]

    def _digest(self) -> str:
        qrels = json.dumps(self.judgements, sort_keys=True)
        return sha256(f"{self.read.digest} {qrels}".encode()).hexdigest()[:32]


def has_ground_truth(labels: str | Queries | None) -> bool:
    """True if a column of labels, or judgements, define relevance."""
    return labels.judged if isinstance(labels, Queries) else labels is not None


def column_of(labels: str | Queries | None) -> str | None:
    """The column of labels, if labels define relevance."""
    return labels if isinstance(labels, str) else None
