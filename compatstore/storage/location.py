"""The location of a gallery: a path, an object-store URI, `database#table`, or a LanceDB table object."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compatstore.boundary import shown
from compatstore.errors import InvalidInput

# URI schemes of the object stores that Lance supports.
SCHEMES = ("s3", "s3+ddb", "gs", "az", "abfs", "abfss", "oss", "cos", "tos", "hf", "memory", "file-object-store")


@dataclass(frozen=True)
class Location:
    """Address of one Lance table.

    Args:
        uri: Path or object-store URI of the table's directory.
        storage_options: Settings of the object store (credentials, endpoint), as Lance takes it.
        given: The user's name of it; the address if unknown.
    """

    uri: str
    storage_options: dict[str, str] = field(default_factory=dict, compare=False)
    given: str = field(default="", compare=False)

    @property
    def is_local(self) -> bool:
        """True if the table lies on this machine's file system."""
        return "://" not in self.uri

    @property
    def options(self) -> dict[str, str] | None:
        """`storage_options` as Lance takes them: None for none."""
        return self.storage_options or None

    @property
    def name(self) -> str:
        """Name for messages, as the user gave it."""
        return self.given or self.uri

    def child(self, *parts: str) -> str:
        """Address of something inside the table's directory."""
        return "/".join([self.uri.rstrip("/"), *parts])


def locate(gallery: Any, storage_options: dict[str, str] | None = None) -> Location:
    """Resolve a user's name of a gallery.

    Args:
        gallery: Path, `s3://...`, `az://...`, `gs://...`, `DATABASE#TABLE`, or a LanceDB table.
        storage_options: Options of the object store.

    Raises:
        InvalidInput: It is none of these.
    """
    options = dict(storage_options or {})
    if isinstance(gallery, Location):
        return gallery
    if type(gallery).__module__.startswith("lancedb"):
        return Location(_local(str(gallery.uri)), {**(gallery.initial_storage_options() or {}), **options})
    if not isinstance(gallery, str | os.PathLike) or not str(gallery):
        raise InvalidInput("open a gallery", expected="a path, a URI or a LanceDB table", found=shown(gallery))
    text = str(gallery)
    _require_place(text)
    database, mark, table = text.rpartition("#")
    return Location(_local(f"{database.rstrip('/')}/{table}.lance" if mark else text), options, text)


def is_pattern(gallery: str) -> bool:
    """True if an address matches several tables of a database: `DATABASE#photos_*`."""
    database, _, table = gallery.rpartition("#")
    return bool(database) and any(mark in table for mark in "*?[")


def _require_place(uri: str) -> None:
    """Refuse addresses that cannot hold a table.

    Raises:
        InvalidInput: Its scheme is none of an object store's, or no bucket is named.
    """
    scheme, mark, rest = uri.partition("://")
    if not mark or scheme == "file":
        return
    if scheme not in SCHEMES or not rest.partition("#")[0].strip("/") or rest.startswith("/"):
        bucket = "no bucket" if scheme in SCHEMES else f"{scheme}://"
        expected = f"a path, or BUCKET/TABLE behind one of {', '.join(f'{known}://' for known in SCHEMES)}"
        fix = "Name a bucket and a table: s3://BUCKET/photos.lance"
        raise InvalidInput(f"open a gallery at {uri[:200]}", expected=expected, found=bucket, fix=fix)


def _local(uri: str) -> str:
    uri = uri.removeprefix("file://")
    if "://" in uri:
        return uri
    try:
        return str(Path(uri).expanduser().absolute())
    except FileNotFoundError:
        fix = "Change to a folder that is there, or name the gallery by its whole path."
        raise InvalidInput(f"open a gallery at {uri}", found="a current folder that is gone", fix=fix) from None
    except RuntimeError as error:  # the home of no user
        raise InvalidInput(f"open a gallery at {uri}", expected="a path", found=f"{error}") from None
