"""The filter languages of LangChain, Haystack and LlamaIndex, read into one tree of conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from compatstore.boundary import shown
from compatstore.errors import InvalidInput
from compatstore.integrations.filters import (
    ID,
    TEXT,
    AllOf,
    AnyOf,
    Condition,
    Field,
    Not,
    Operator,
    Term,
    metadata,
    moment_of,
)

if TYPE_CHECKING:
    from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

OPERATION = "read a filter"
OperatorReader: TypeAlias = Callable[[Field, Any], Condition]  # of the value that an operator takes

_OF_DOCUMENTS = {"id": ID, "content": TEXT}
_WITHOUT_TEST = ("blob", "score", "embedding", "sparse_embedding", "meta")


def read_langchain(filter: object) -> Condition:
    """Read a filter of LangChain, {"year": {"$gte": 2024}, "$or": [...]}: all its entries must hold.

    Args:
        filter: Key -> value that the metadata must be equal to, None if there must be none; or key -> mapping of
            operators `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`, `$in`, `$nin`, `$between`, `$exists`, `$contains` (a
            list holds a value, or a text has a part); or `$and`, `$or` -> list of
            filters, `$not` -> filter. A key with dots is that key, or leads into objects: "docx.author".

    Raises:
        InvalidInput: It is none of these.
    """
    return AllOf(tuple(_entry(key, value) for key, value in _entries(filter).items()))


def read_haystack(filters: object) -> Condition:
    """Read a filter of Haystack: a comparison, or conditions joined by AND, OR and NOT.

    {"operator": "AND", "conditions": [{"field": "meta.year", "operator": ">", "value": 2023}]}. Fields are `id`,
    `content`, `meta.KEY` and `meta.KEY.KEY` of objects in metadata; a field without `meta.` is a key. As in Haystack,
    texts have an order only if they are dates of ISO 8601, and None only has equality.

    Raises:
        InvalidInput: A key is missing, an operator unknown, or a value does not fit its operator.
    """
    node = _entries(filters)
    if "field" in node:
        field = _haystack_field(node["field"])
        return _reader(_HAYSTACK, _entry_of(node, "operator"))(field, _entry_of(node, "value"))
    operator, conditions = _entry_of(node, "operator"), _entry_of(node, "conditions")
    if operator not in ("AND", "OR", "NOT"):
        raise InvalidInput(OPERATION, expected="an operator of AND, OR and NOT", found=shown(operator))
    if not isinstance(conditions, list):
        raise InvalidInput(OPERATION, expected="a list of conditions", found=shown(conditions))
    parts = tuple(read_haystack(part) for part in conditions)
    if operator == "OR":
        return AnyOf(parts)
    return AllOf(parts) if operator == "AND" else Not(AllOf(parts))


def read_llamaindex(filters: MetadataFilters | MetadataFilter, fields: Mapping[str, Field]) -> Condition:
    """Read filters of LlamaIndex, nested ones too, or one test.

    Without filters, "and" and "not" are true of every node, and "or" of none.

    Args:
        filters: The filters.
        fields: Keys that are no metadata -> their fields.

    Raises:
        InvalidInput: An operator or condition is unknown, or a value does not fit its operator.
    """
    from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

    if isinstance(filters, MetadataFilter):
        field = fields.get(filters.key) or metadata(filters.key)
        return _reader(_LLAMAINDEX, filters.operator)(field, filters.value)
    if not isinstance(filters, MetadataFilters):
        raise InvalidInput(OPERATION, expected="MetadataFilters", found=shown(filters))
    parts = tuple(read_llamaindex(part, fields) for part in filters.filters)
    if filters.condition in (None, "and"):
        return AllOf(parts)
    return AnyOf(parts) if filters.condition == "or" else Not(AnyOf(parts))


def _entry(key: str, value: Any) -> Condition:
    """One entry of a filter of LangChain."""
    if key in ("$and", "$or"):
        if not isinstance(value, list | tuple) or not value:
            raise InvalidInput(OPERATION, expected=f"a list of filters in {key}", found=shown(value))
        parts = tuple(read_langchain(part) for part in value)
        return AllOf(parts) if key == "$and" else AnyOf(parts)
    if key == "$not":
        return Not(read_langchain(value))
    if key.startswith("$"):
        raise InvalidInput(OPERATION, expected="$and, $or or $not beside keys of metadata", found=key[:120])
    field = metadata(key)
    if not isinstance(value, Mapping):
        return _equal(field, value)
    if not value:
        raise InvalidInput(OPERATION, expected=f"an operator for {key[:120]!a}", found="none")
    return AllOf(tuple(_reader(_LANGCHAIN, name)(field, wanted) for name, wanted in _entries(value).items()))


def _haystack_field(name: object) -> Field:
    """The field that Haystack names "meta.author.name"."""
    if not isinstance(name, str) or name in _WITHOUT_TEST:
        raise InvalidInput(OPERATION, expected="a field: id, content or meta.KEY", found=shown(name))
    return _OF_DOCUMENTS.get(name) or metadata(*name.removeprefix("meta.").split("."))


def _entries(filters: object) -> Mapping[str, object]:
    """A filter that must be a mapping with texts as keys."""
    if not isinstance(filters, Mapping) or not all(isinstance(key, str) for key in filters):
        raise InvalidInput(OPERATION, expected="a mapping with texts as keys", found=shown(filters))
    return filters


def _entry_of(node: Mapping[str, Any], key: str) -> Any:
    if key not in node:
        raise InvalidInput(
            OPERATION, expected=f"a key {key!r} in each condition", found=f"keys {', '.join(node)}"[:200]
        )
    return node[key]


def _list_of(values: object) -> tuple[Any, ...]:
    """The values that an operator takes several of."""
    if not isinstance(values, list | tuple | set | frozenset):
        raise InvalidInput(OPERATION, expected="a list of values", found=shown(values))
    return tuple(values)


def _reader(readers: Mapping[str, OperatorReader], operator: object) -> OperatorReader:
    if not isinstance(operator, str) or operator not in readers:
        raise InvalidInput(OPERATION, expected=f"an operator of {', '.join(readers)}", found=shown(operator))
    return readers[operator]


def _equal(field: Field, value: Any) -> Condition:
    return Term(field, "missing") if value is None else Term(field, "=", value)


def _test(operator: Operator) -> OperatorReader:
    return lambda field, value: Term(field, operator, value)


def _negation(read: OperatorReader) -> OperatorReader:
    return lambda field, value: Not(read(field, value))


def _among(field: Field, values: Any) -> Condition:
    return Term(field, "in", _list_of(values))


def _contains(field: Field, value: Any) -> Condition:
    """A list holds a value, or a text has a part."""
    holds = Term(field, "holds", value)
    return AnyOf((holds, Term(field, "mentions", value))) if isinstance(value, str) else holds


def _any(field: Field, values: Any) -> Condition:
    return AnyOf(tuple(_contains(field, value) for value in _list_of(values)))


def _all(field: Field, values: Any) -> Condition:
    return AllOf((Not(Term(field, "missing")), *(_contains(field, value) for value in _list_of(values))))


def _between(field: Field, ends: Any) -> Condition:
    if len(_list_of(ends)) != 2:
        raise InvalidInput(OPERATION, expected="two values in $between", found=f"{len(ends)}")
    low, high = ends
    return AllOf((Term(field, ">=", low), Term(field, "<=", high)))


def _exists(field: Field, wanted: Any) -> Condition:
    if not isinstance(wanted, bool):
        raise InvalidInput(OPERATION, expected="true or false in $exists", found=shown(wanted))
    return Not(Term(field, "missing")) if wanted else Term(field, "missing")


def _among_or_missing(field: Field, values: Any) -> Condition:
    if not isinstance(values, list):  # Haystack refuses tuples and sets too
        raise InvalidInput(OPERATION, expected="a list of values", found=shown(values))
    present = Term(field, "in", tuple(value for value in values if value is not None))
    return AnyOf((present, Term(field, "missing"))) if None in values else present


def _order(operator: Operator) -> OperatorReader:
    """An order of Haystack."""

    def read(field: Field, value: Any) -> Condition:
        if value is None:
            return AnyOf()
        if isinstance(value, str) and moment_of(value) is None:
            raise InvalidInput(OPERATION, expected="a number or a date of ISO 8601 to compare with", found=shown(value))
        return Term(field, operator, value)

    return read


_ORDERS: tuple[Operator, ...] = (">", ">=", "<", "<=")
_LANGCHAIN: Mapping[str, OperatorReader] = {
    "$eq": _equal,
    "$ne": _negation(_equal),
    **{name: _test(order) for name, order in zip(("$gt", "$gte", "$lt", "$lte"), _ORDERS, strict=True)},
    "$in": _among,
    "$nin": _negation(_among),
    "$between": _between,
    "$exists": _exists,
    "$contains": _contains,
}
_HAYSTACK: Mapping[str, OperatorReader] = {
    "==": _equal,
    "!=": _negation(_equal),
    **{order: _order(order) for order in _ORDERS},
    "in": _among_or_missing,
    "not in": _negation(_among_or_missing),
}
_LLAMAINDEX: Mapping[str, OperatorReader] = {  # by the values of `FilterOperator`, which are texts
    "==": _equal,
    "!=": _negation(_equal),
    **{order: _test(order) for order in _ORDERS},
    "in": _among,
    "nin": _negation(_among),
    "any": _any,
    "all": _all,
    "contains": _contains,
    "text_match": _test("mentions"),
    "text_match_insensitive": _test("mentions in any case"),
    "is_empty": lambda field, value: Term(field, "empty"),
}
