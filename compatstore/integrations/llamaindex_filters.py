"""LlamaIndex's filters on metadata, and its lists of documents and nodes, as one condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compatstore.boundary import shown
from compatstore.errors import InvalidInput, MissingExtra
from compatstore.integrations.filters import (
    ID,
    AllOf,
    AnyOf,
    Condition,
    Field,
    Not,
    Operator,
    Term,
    apart,
    metadata,
    one_of,
)

try:
    from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
except ImportError as error:
    raise MissingExtra("llama_index", "llamaindex") from error

ASKED = "read a filter of LlamaIndex"
DOCUMENT = "llama_index_document"  # column of the id of the document that a node is a part of
_DOCUMENT_KEYS = ("ref_doc_id", "doc_id", "document_id")  # what LlamaIndex's stores call it in filters


def read_filters(filters: MetadataFilters) -> Condition:
    """Read filters, nested ones too.

    Of no filters at all, "and" and "not" are true of every node, and "or" of none.

    Raises:
        InvalidInput: An operator or condition is unknown, or a value does not fit its operator.
    """
    if not isinstance(filters, MetadataFilters):
        raise InvalidInput(ASKED, expected="MetadataFilters", found=shown(filters))
    parts = tuple(read_filters(part) if isinstance(part, MetadataFilters) else _one(part) for part in filters.filters)
    if filters.condition in (None, FilterCondition.AND):
        return AllOf(parts)
    if filters.condition == FilterCondition.OR:
        return AnyOf(parts)
    return Not(AnyOf(parts))


def read_query(
    filters: MetadataFilters | None, documents: Sequence[str] | None, nodes: Sequence[str] | None
) -> Condition | None:
    """The condition of a query: its filters, and the documents and nodes that it keeps to; None for any node."""
    parts: list[Condition] = [] if filters is None else [read_filters(filters)]
    if documents is not None:
        parts.append(Term(apart(DOCUMENT), "in", tuple(documents)))
    if nodes is not None:
        parts.append(Term(ID, "in", tuple(nodes)))
    return AllOf(tuple(parts)) if parts else None


def _one(asked: MetadataFilter) -> Condition:
    field = apart(DOCUMENT) if asked.key in _DOCUMENT_KEYS else metadata(asked.key)
    if asked.operator not in _OPERATORS:
        raise InvalidInput(ASKED, expected=f"an operator of {', '.join(_OPERATORS)}", found=shown(asked.operator))
    return _OPERATORS[asked.operator](field, asked.value)


def _equal(field: Field, value: Any) -> Condition:
    return Term(field, "missing") if value is None else Term(field, "=", value)


def _tested(operator: Operator) -> Callable[[Field, Any], Condition]:
    return lambda field, value: Term(field, operator, value)


def _contains(field: Field, value: Any) -> Condition:
    """A list holds a value, or a text has a part: both are `in` for LlamaIndex's own store."""
    holds = Term(field, "holds", value)
    return AnyOf((holds, Term(field, "mentions", value))) if isinstance(value, str) else holds


def _any(field: Field, value: Any) -> Condition:
    return AnyOf(tuple(_contains(field, one) for one in one_of(value, ASKED)))


def _all(field: Field, value: Any) -> Condition:
    return AllOf((Not(Term(field, "missing")), *(_contains(field, one) for one in one_of(value, ASKED))))


_OPERATORS: Mapping[FilterOperator, Callable[[Field, Any], Condition]] = {
    FilterOperator.EQ: _equal,
    FilterOperator.NE: lambda field, value: Not(_equal(field, value)),
    FilterOperator.GT: _tested(">"),
    FilterOperator.GTE: _tested(">="),
    FilterOperator.LT: _tested("<"),
    FilterOperator.LTE: _tested("<="),
    FilterOperator.IN: lambda field, value: Term(field, "in", one_of(value, ASKED)),
    FilterOperator.NIN: lambda field, value: Not(Term(field, "in", one_of(value, ASKED))),
    FilterOperator.ANY: _any,
    FilterOperator.ALL: _all,
    FilterOperator.CONTAINS: _contains,
    FilterOperator.TEXT_MATCH: _tested("mentions"),
    FilterOperator.TEXT_MATCH_INSENSITIVE: _tested("mentions in any case"),
    FilterOperator.IS_EMPTY: lambda field, value: Term(field, "empty"),
}
