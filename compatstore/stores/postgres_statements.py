"""Statements of SQL with quoted names: what a user named never becomes part of one unescaped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from compatstore.arrays import Id
from compatstore.errors import load_extra
from compatstore.stores.postgres_catalog import Column, TableShape
from compatstore.stores.postgres_rows import INTEGERS, key

SqlPart: TypeAlias = Any  # psycopg.sql.Composable: psycopg is loaded where a store is opened


def compose(
    text: str,
    table: TableShape | None = None,
    parts: dict[str, SqlPart] | None = None,
    *,
    takes_values: bool = False,
    **columns: str,
) -> SqlPart:
    """A statement, or a part of one.

    Args:
        text: With `{names}` in braces, and `{table}` for the table.
        table: That it is about.
        parts: Composed before: name -> part.
        takes_values: True if the statement has parameters, whose mark is the percent sign.
        columns: Name -> name of the column.
    """
    sql = load_extra("psycopg.sql", "postgres")

    def quoted(*names: str) -> SqlPart:
        return sql.Identifier(*(name.replace("%", "%%") if takes_values else name for name in names))

    names = {name: quoted(column) for name, column in columns.items()} | (parts or {})
    if table is not None:
        names["table"] = quoted(table.schema, table.name)
    return sql.SQL(text).format(**names)


def verbatim(text: str, takes_values: bool = False) -> SqlPart:
    """SQL as it is: of the catalog, or the condition of a user.

    Args:
        text: Of it.
        takes_values: True if the statement has parameters, whose mark is the percent sign.
    """
    return load_extra("psycopg.sql", "postgres").SQL(text.replace("%", "%%") if takes_values else text)


def literal(value: str | Sequence[Id]) -> SqlPart:
    """A value, quoted."""
    return load_extra("psycopg.sql", "postgres").Literal(value)


def joined(separator: str, parts: Sequence[SqlPart]) -> SqlPart:
    """Parts in a row."""
    return verbatim(separator).join(parts)


def key_expression(id_: Column) -> SqlPart:
    """Ids of the table `t` as they come to Arrow: int8 or text."""
    return compose(f"t.{{id}}::{'int8' if id_.type_name in INTEGERS else 'text'}", id=id_.name)


def key_type(id_: Column) -> SqlPart:
    """Type of ids that are sent."""
    return verbatim("int8" if id_.type_name in INTEGERS else "uuid" if id_.type_name == "uuid" else "text")


def among(id_: Column, ids: Sequence[Id]) -> SqlPart:
    """The condition of rows of some ids."""
    usable = [one for one in ids if key(one, id_.type_name) is not None]
    parts = {"ids": literal(usable), "type": key_type(id_)}
    return compose("t.{id} = ANY ({ids}::{type}[])", parts=parts, id=id_.name)
