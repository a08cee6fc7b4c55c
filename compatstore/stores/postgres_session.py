"""Connections to a PostgreSQL database: transactions with settings of their own, and its errors as ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote

from compatstore.errors import CompatStoreError, InvalidInput, NotFound, StorageError, load_extra
from compatstore.stores.address import Address
from compatstore.stores.postgres_catalog import Cursor, TableShape

DDL_WAIT = 5  # seconds for the lock of a table that an app reads: all its queries queue behind ours meanwhile
ROW_WAIT = 60  # seconds for rows that an app's transaction has changed and not committed

# Of one transaction, so that they hold behind a pooler too. Types and operators of pgvector are found wherever it was
# installed. Row security is an error where it would hide rows.
_SETTINGS = """
SELECT set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true),
       set_config('lock_timeout', %s, true), set_config('transaction_read_only', %s, true),
       set_config('row_security', 'off', true), set_config('client_min_messages', 'error', true),
       set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''),
           (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace
            WHERE extname = 'vector')), true)"""

# SQLSTATE, or its first characters -> the fix.
_FIXES = {
    "42501": "Connect as the owner of the table, or grant this user the right.",
    "53": "Free space or connections of the server; then the same command goes on.",
    "55P03": "Another transaction holds the lock: see pg_stat_activity for one that is idle in transaction; then "
    "the same command goes on.",
    "40": "Other transactions change the same rows; the same command goes on.",
    "2BP01": "Something of the app still reads the column, a view perhaps: change that first.",
    "25006": "This server is a standby, or read-only: connect to the primary.",
    "57014": "The statement was cancelled; the same command goes on.",
    "57": "The server restarts or shut down; when it accepts connections again, the same command goes on.",
    "08": "The connection was cut; the same command goes on.",
}
_LOST = ("57P", "08")  # SQLSTATE of a connection that is gone


class Session:
    """Connections to the database of an address; one that was cut is made again by the next transaction.

    Attributes:
        address: Of the table, with the columns that the user named.
    """

    def __init__(self, address: Address) -> None:
        login = address.place.partition("//")[2].partition("?")[0].rpartition("@")[0]
        if re.search("[@/]", login):
            found = f"a name or password with a @ or / before #{address.collection}"
            fix = "Write them as %40 and %2F, or give the password as PGPASSWORD or in ~/.pgpass."
            raise InvalidInput("read a store", expected="the address of a database", found=found, fix=fix)
        self._psycopg = load_extra("psycopg", "postgres")
        self.address = address
        self._kept: Any = None
        query = parse_qs(address.place.partition("?")[2])
        self._secrets = {login.partition(":")[2], unquote(login.partition(":")[2]), *query.get("password", [])} - {""}

    @contextmanager
    def transaction(
        self, operation: str, *, writes: bool = False, wait: float = ROW_WAIT, alone: bool = False
    ) -> Iterator[Cursor]:
        """Run one transaction, committed at the end of the block.

        Args:
            operation: Of the caller, for errors.
            writes: False for a transaction that the server keeps from writing.
            wait: Seconds to wait for a lock.
            alone: On a connection of its own, closed at the end: a stream that other calls interrupt.

        Yields:
            A cursor.
        """
        with self._errors(operation):
            connection = self._connect() if alone else self._connection()
            try:
                with connection.transaction(), connection.cursor() as cursor:
                    cursor.execute(_SETTINGS, (f"{round(wait * 1000)}", "off" if writes else "on"))
                    yield cursor
            finally:
                if alone:
                    connection.close()

    def table(self, cursor: Cursor) -> TableShape:
        """The table of the address; see `TableShape.read`."""
        return TableShape.read(cursor, self.address)

    def is_deadlock(self, error: BaseException) -> bool:
        """True if an error of `transaction` is one that the same transaction does not meet again."""
        return getattr(error.__cause__, "sqlstate", None) in ("40P01", "40001")

    def close(self) -> None:
        """Close the connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _connection(self) -> Any:
        if self._kept is None or self._kept.closed or self._kept.broken:
            self._kept = self._connect()
        return self._kept

    def _connect(self) -> Any:
        # Prepared statements outlive a transaction, which poolers do not allow.
        connection = self._psycopg.connect(
            self.address.place, autocommit=True, prepare_threshold=None, client_encoding="utf8"
        )
        connection.isolation_level = self._psycopg.IsolationLevel.READ_COMMITTED
        return connection

    @contextmanager
    def _errors(self, operation: str) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            if error.sqlstate is None or error.sqlstate.startswith(_LOST):
                self.close()
            raise self._as_ours(error, operation) from error

    def _as_ours(self, error: Any, operation: str) -> CompatStoreError:
        state = error.sqlstate or ""
        reason = " ".join((error.diag.message_primary or str(error)).split())
        for secret in self._secrets:
            reason = reason.replace(secret, "***")
        if state in ("42P01", "3F000"):
            return NotFound(operation, expected=str(self.address), found=reason)
        if state.startswith(("42", "22")) and state != "42501":
            return InvalidInput(operation, found=reason)
        if not state:
            fix = "Check that the server runs and the address, user and PGPASSWORD are right; the same command goes on."
        else:
            fix = next((text for start, text in _FIXES.items() if state.startswith(start)), "")
        return StorageError(operation, found=reason, fix=fix)
