"""Addresses of collections: `postgresql://HOST/DB#schema.table`, `chroma:PATH#collection`, `faiss:PATH`, ...

Secrets are not part of an address that is kept or shown: they come from the environment or the client's own
configuration. An address with a password is used for the call that names it, and shown and kept without it.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from typing import Any

from compatstore.boundary import shown
from compatstore.errors import InvalidInput, meant
from compatstore.stores.store import Parts, VectorStore

# Scheme of an address -> (module of its store, the class or function that opens it).
STORES = {
    "postgresql": ("postgres", "Postgres"),
    "chroma": ("chroma", "Chroma"),
    "qdrant": ("qdrant", "open_qdrant"),
    "milvus": ("milvus", "Milvus"),
    "faiss": ("faiss_file", "FaissFile"),
    "sqlite": ("sqlite_vec", "SqliteVec"),
}
FORMS = (
    "postgresql://HOST/DB#SCHEMA.TABLE",
    "chroma:PATH#COLLECTION",
    "chroma+http://HOST:PORT#COLLECTION",
    "qdrant:PATH#COLLECTION",
    "qdrant+http://HOST:PORT#COLLECTION",
    "milvus:PATH.db#COLLECTION",
    "milvus+http://HOST:PORT#COLLECTION",
    "faiss:PATH",
    "sqlite:PATH#TABLE",
)
OPEN_OPTIONS = ("host", "port", "user", "dbname", "sslmode")  # of a connection string, that are kept
_ADDRESS = re.compile(r"(?P<scheme>[a-z]+)(?P<transport>\+https?)?:(?P<rest>.*)", re.DOTALL)

# A URL in which login and path cannot be separated: an unescaped / # or ? before the @ of its host.
_HIDDEN_LOGIN = re.compile(r"[a-z+]+://[^@/#?]*:[^@/#?]*[/#?].*@.*", re.DOTALL)


@dataclass(frozen=True)
class Address:
    """Address of a collection.

    Attributes:
        scheme: Of the store: a key of `STORES`.
        place: For the client: a path, an http(s) URL, or for PostgreSQL the whole connection string.
        collection: Table, collection or class in it; "" for a file.
        is_remote: True if the place is a URL.
        parts: Columns that the user named, for a store that has several: a vector among two, an id beside the key.
    """

    scheme: str
    place: str
    collection: str
    is_remote: bool
    parts: Parts = field(default_factory=Parts)

    @classmethod
    def of(cls, text: str, operation: str = "read a store") -> Address:
        """Read an address.

        Raises:
            InvalidInput: It is none, or names no collection.
        """
        if _HIDDEN_LOGIN.fullmatch(text):  # no client reads it, and no message may show it
            expected, found = "a login whose / # and ? are written as %2F, %23 and %3F", "an @ behind one of them"
            raise InvalidInput(operation, expected=expected, found=found)
        match = _ADDRESS.fullmatch(text.replace("postgres://", "postgresql://", 1))
        if match is None or match["scheme"] not in STORES:
            scheme = text.partition(":")[0]
            fix = f"{meant(scheme, STORES)}Take one of {', '.join(FORMS)}, or an export: compatstore convert"
            raise InvalidInput(
                operation, expected="the address of a store", found=shown(without_secrets(text)), fix=fix
            )
        scheme, rest = match["scheme"], match["rest"]
        if scheme == "faiss":
            place, collection = rest, ""
        else:
            place, _, collection = rest.rpartition("#")
        remote = bool(match["transport"]) or scheme == "postgresql"
        if not place.strip("/") or (scheme != "faiss" and not collection):
            form = next(form for form in FORMS if form.startswith(scheme) and ("://" in form) == remote)
            raise InvalidInput(operation, expected=form, found=shown(without_secrets(text)))
        if scheme == "postgresql":
            place = f"postgresql:{place}"
        elif match["transport"]:
            place = f"{match['transport'][1:]}:{place}"
        return cls(scheme, place, collection, remote)

    def __str__(self) -> str:
        """The address without secrets."""
        if self.scheme == "postgresql":
            return f"{without_secrets(self.place)}#{self.collection}"
        transport = "+" if self.is_remote else ":"
        mark = f"#{self.collection}" if self.collection else ""
        place = without_secrets(self.place) if self.is_remote else self.place
        return f"{self.scheme}{transport}{place}{mark}"

    def open(self) -> VectorStore:
        """Connect to the store.

        Raises:
            MissingExtra: Its client is not installed.
            StorageError: It cannot be reached.
        """
        module, name = STORES[self.scheme]
        made: Any = getattr(importlib.import_module(f"compatstore.stores.{module}"), name)
        store: VectorStore = made(self)
        return store


def without_secrets(text: str) -> str:
    """An address or a URL without its password, and of the query only what is no secret."""
    scheme, mark, rest = text.partition("//")
    if not mark:
        return text.partition("?")[0]
    rest, _, query = rest.partition("?")
    netloc, slash, path = rest.partition("/")
    login, at, host = netloc.rpartition("@")
    kept = "&".join(part for part in query.split("&") if part.partition("=")[0] in OPEN_OPTIONS)
    return f"{scheme}//{login.partition(':')[0]}{at}{host}{slash}{path}{'?' if kept else ''}{kept}"
