"""What PostgreSQL's catalog says of a table: its columns, keys, indexes, and the targets that compatstore added.

A target is a column with a comment that names the version and the app's column. Which of the two the app reads is
the names themselves: after a switch the target has the app's name, and the app's own vectors have that of `before`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from compatstore.errors import InvalidInput, NotFound, UpgradeError, meant
from compatstore.stores.address import Address
from compatstore.stores.postgres_rows import INTEGERS, TEXTS, VECTORS
from compatstore.versions import Metric

Cursor: TypeAlias = Any  # psycopg.Cursor: psycopg is loaded where a store is opened

MARK = "compatstore target: "  # begins the comment of a target's column
LONGEST_INDEXED = 2_000  # values of a vector that an index takes; of a halfvec 4,000
LONGEST_NAME = 63  # bytes; PostgreSQL cuts longer ones, and two could become one
METRICS: dict[str, Metric] = {"cosine": "cosine", "l2": "l2", "ip": "dot"}  # part of an operator class -> metric
_KINDS = {"v": "a view", "m": "a materialised view", "f": "a foreign table"}

_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relowner::regrole::text FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
AND (n.nspname::text || '.' || c.relname::text = %(name)s OR (c.relname = %(name)s AND pg_table_is_visible(c.oid)))"""
_COLUMNS = """
SELECT a.attname, a.attnum, CASE WHEN b.typtype = 'e' THEN 'enum' ELSE b.typname END,
       format_type(a.atttypid, a.atttypmod), greatest(a.atttypmod, t.typtypmod),
       a.attnotnull, col_description(a.attrelid, a.attnum)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = coalesce(nullif(t.typbasetype, 0), t.oid)
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_KEYS = """
SELECT array_agg(a.attname::text ORDER BY k.place), bool_and(a.attnotnull) FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indisprimary ORDER BY i.indisprimary DESC, i.indexrelid"""
_INDEXES = """
SELECT DISTINCT c.relname, a.attname, m.amname, o.opcname, pg_get_indexdef(i.indexrelid, 1, true),
       pg_get_indexdef(i.indexrelid), i.indpred IS NULL FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
JOIN pg_opclass o ON o.oid = i.indclass[0]
JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refobjid = i.indrelid
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = d.refobjsubid
WHERE i.indrelid = %s AND i.indisvalid AND o.opcname ~ '^(vector|halfvec)_' ORDER BY 1"""


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        name: Of it.
        number: Of it in its table, which stays when it is renamed.
        type_name: Of its type, or of the type that a domain stands for; "enum" for any enum.
        declared: Its type as SQL writes it.
        dim: Of a vector; 0 if the type does not say.
        is_required: True if it is NOT NULL.
        comment: On it.
    """

    name: str
    number: int
    type_name: str
    declared: str
    dim: int
    is_required: bool
    comment: str


@dataclass(frozen=True)
class Index:
    """An index over vectors.

    Attributes:
        name: Of it.
        column: That it orders.
        method: "hnsw" or "ivfflat".
        operators: Its operator class: "vector_cosine_ops".
        expression: What it orders, as SQL: the column, or a cast of it.
        definition: The statement that made it.
        is_whole: False if it has a condition.
    """

    name: str
    column: str
    method: str
    operators: str
    expression: str
    definition: str
    is_whole: bool

    @property
    def metric(self) -> Metric | None:
        """Of its operator class, or None for one that compatstore has not, such as L1."""
        return METRICS.get(self.operators.split("_")[1])


@dataclass(frozen=True)
class Target:
    """A column of target vectors.

    Attributes:
        version: Of the vectors.
        vector: Column that the app reads.
        column: Present name of the target's column: that of the app after a switch.
        metric: Of the version.
        was_required: True if the app's own column was NOT NULL before a switch, and is not.
    """

    version: str
    vector: str
    column: str
    metric: Metric
    was_required: bool = False

    @property
    def is_switched(self) -> bool:
        """True if the app reads the target by its own name."""
        return self.column == self.vector

    @property
    def beside(self) -> str:
        """Name of the target's column while the app reads its own."""
        return f"{self.vector}_{self.version}"

    @property
    def before(self) -> str:
        """Name of the app's own column after a switch."""
        return f"{self.vector}_before_{self.version}"

    @property
    def source(self) -> str:
        """Present name of the app's own column."""
        return self.before if self.is_switched else self.vector

    @property
    def comment(self) -> str:
        """Of the column."""
        values = {"version": self.version, "vector": self.vector, "metric": self.metric}
        return MARK + json.dumps(values | ({"was_required": True} if self.was_required else {}))

    @classmethod
    def of(cls, column: Column) -> Target | None:
        """The target in a column, or None if the column is the app's."""
        if not column.comment.startswith(MARK):
            return None
        try:
            values = json.loads(column.comment[len(MARK) :])
            required = bool(values.get("was_required"))
            return cls(values["version"], values["vector"], column.name, values["metric"], required)
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class TableShape:
    """A table: what its catalog says.

    Attributes:
        number: Its oid.
        schema: Of it.
        name: Of it.
        owner: Role that may alter it.
        columns: By name.
        keys: Columns of unique indexes without a condition, the primary key's first, and True if all are NOT NULL.
        indexes: Over vectors.
        address: That it was found by.
    """

    number: int
    schema: str
    name: str
    owner: str
    columns: dict[str, Column]
    keys: tuple[tuple[tuple[str, ...], bool], ...]
    indexes: tuple[Index, ...]
    address: Address

    @classmethod
    def read(cls, cursor: Cursor, address: Address) -> TableShape:
        """Read the catalog.

        Raises:
            NotFound: There is no such table.
            InvalidInput: Two schemas of the search path have one, or it is none that can be mirrored.
        """
        tables = cursor.execute(_TABLES, {"name": address.collection}).fetchall()
        operation = f"read {address}"
        if not tables:
            raise NotFound(operation, expected=f"a table {address.collection!r}", found="none that this user sees")
        if len(tables) > 1:
            names = " and ".join(f"{schema}.{name}" for _, schema, name, *_ in tables)
            raise InvalidInput(operation, expected="one table", found=names, fix="Give the schema too.")
        number, schema, name, kind, owner = tables[0]
        if kind in _KINDS:
            fix = "Mirror the table that its rows come from: target vectors are written to its rows."
            raise InvalidInput(operation, expected="a table", found=f"{_KINDS[kind]}, {schema}.{name}", fix=fix)
        columns = [
            Column(one, place, type_name, declared, max(modifier, 0), required, comment or "")
            for one, place, type_name, declared, modifier, required, comment in cursor.execute(_COLUMNS, (number,))
        ]
        keys = tuple((tuple(names), required) for names, required in cursor.execute(_KEYS, (number,)))
        indexes = tuple(Index(*values) for values in cursor.execute(_INDEXES, (number,)))
        return cls(number, schema, name, owner, {one.name: one for one in columns}, keys, indexes, address)

    @property
    def targets(self) -> list[Target]:
        """Targets that compatstore added."""
        return [target for target in map(Target.of, self.columns.values()) if target is not None]

    def target(self, version: str) -> Target | None:
        """The target of a version."""
        return next((target for target in self.targets if target.version == version), None)

    def expected_target(self, operation: str, version: str) -> Target:
        """The target of a version.

        Raises:
            NotFound: There is none.
        """
        target = self.target(version)
        if target is None:
            raise NotFound(operation, expected=f"a column of {version!r} that compatstore added", found="none")
        return target

    def expected_source(self, operation: str, target: Target) -> str:
        """Present name of the app's own column.

        Raises:
            UpgradeError: It was dropped.
        """
        if target.source not in self.columns:
            found = f"no column {target.source!r}"
            fix = "They were dropped: what the app reads now is the target alone."
            raise UpgradeError(operation, expected="the vectors before the switch", found=found, fix=fix)
        return target.source

    def index_statement(self, target: Target, dim: int) -> str:
        """The statement that makes an index over a target like the app's."""
        method = next((one.method for one in self.indexes_of(target.source)), "hnsw")
        operators = next(name for name, metric in METRICS.items() if metric == target.metric)
        column, place = f'"{target.column}"', f'"{self.schema}"."{self.name}"'
        kind = "vector" if dim <= LONGEST_INDEXED else "halfvec"
        expression = column if kind == "vector" else f"({column}::halfvec({dim}))"
        return f"CREATE INDEX CONCURRENTLY ON {place} USING {method} ({expression} {kind}_{operators}_ops)"

    def vector(self, named: str = "") -> Column:
        """The app's column of vectors.

        Args:
            named: By the caller, or "" for the only one.

        Raises:
            InvalidInput: There is none, or several and none is named.
        """
        ours = {target.column for target in self.targets if not target.is_switched}
        ours |= {target.before for target in self.targets if target.is_switched}
        found = [one for one in self.columns.values() if one.type_name in VECTORS and one.name not in ours]
        if named:
            column = self.column(named)
            if column.type_name not in VECTORS:
                raise self._refused("a column of type vector or halfvec", f"{named!r} of type {column.declared}", found)
            return column
        if len(found) != 1:
            names = ", ".join(repr(one.name) for one in found) or "none"
            raise self._refused("one column of type vector or halfvec", names, found)
        return found[0]

    def id(self, named: str = "") -> Column:
        """The column of ids.

        Args:
            named: By the caller, or "" for the primary key, or else another unique column.

        Raises:
            InvalidInput: None is unique, not null, and of a type that ids have.
        """
        single = [names[0] for names, required in self.keys if required and len(names) == 1]
        if named and self.column(named).name not in single:
            raise self._no_id(f"{named!r}, which is not unique and NOT NULL", named)
        usable = [self.columns[name] for name in ([named] if named else single)]
        for column in usable:
            if column.type_name in (*INTEGERS, *TEXTS):
                return column
        if usable:
            found = f"{usable[0].name!r} of type {usable[0].declared}"
            raise InvalidInput(self._operation, expected="ids of type bigint, int, uuid or text", found=found)
        composite = next((names for names, required in self.keys if required), None)
        raise self._no_id(
            f"the composite key ({', '.join(composite)}): an item has one id" if composite else "no such column",
            "id" if "id" in self.columns else "COLUMN",
        )

    def column(self, name: str) -> Column:
        """The column of a name.

        Raises:
            NotFound: There is none.
        """
        if name in self.columns:
            return self.columns[name]
        found = f"columns {', '.join(self.columns)}"
        raise NotFound(self._operation, expected=f"a column {name!r}", found=found, fix=meant(name, self.columns))

    def indexes_of(self, column: str) -> list[Index]:
        """Indexes over a column of vectors, those without a condition first."""
        return sorted((one for one in self.indexes if one.column == column), key=lambda one: not one.is_whole)

    @property
    def _operation(self) -> str:
        return f"read {self.address}"

    def _no_id(self, found: str, column: str) -> InvalidInput:
        fix = f'ALTER TABLE "{self.schema}"."{self.name}" ADD UNIQUE ("{column}"), ALTER COLUMN "{column}" SET NOT NULL'
        return InvalidInput(
            self._operation,
            expected="a primary key of one column, or one that is unique and NOT NULL",
            found=found,
            fix=fix,
        )

    def _refused(self, expected: str, found: str, vectors: Sequence[Column]) -> InvalidInput:
        fix = f"Name one: vector={vectors[0].name!r}" if vectors else "Install pgvector, or mirror another table."
        return InvalidInput(self._operation, expected=expected, found=found, fix=fix)
