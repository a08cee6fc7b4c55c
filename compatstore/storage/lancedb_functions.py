"""The embedding functions of a LanceDB table, a JSON list in its schema's metadata.

The identity of a column's model is read from there without any code of LanceDB's. The function itself is built only
where the gallery's code is trusted: its name chooses a class, and its arguments choose the receiver of texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from compatstore.arrays import ArrowSchema
from compatstore.encoders import Encoder
from compatstore.encoders.functions import LanceDBFunction, identity_of
from compatstore.errors import Incompatible, NotFound
from compatstore.versions import EmbeddingVersion

EMBEDDED_BY_LANCEDB = b"embedding_functions"
LANCEDB = "lancedb:"  # of a spec; the column of the vectors follows


@dataclass(frozen=True)
class DeclaredFunction:
    """The function that embeds a column, by the table's metadata.

    Attributes:
        name: In LanceDB's registry.
        arguments: Arguments of its creation; some may be secrets.
        source: Column that it embeds.
        vector: Column of the vectors.
    """

    name: str
    arguments: Mapping[str, Any]
    source: str
    vector: str


def function_of(schema: ArrowSchema, vector: str) -> DeclaredFunction | None:
    """The function that a table's schema names for a column of vectors; None if it names none that can be read."""
    written = (schema.metadata or {}).get(EMBEDDED_BY_LANCEDB)
    try:
        listed = json.loads(written) if written is not None else []
        for one in listed if isinstance(listed, list) else []:
            if one["vector_column"] == vector and isinstance(one["model"], dict):
                return DeclaredFunction(str(one["name"]), one["model"], str(one["source_column"]), vector)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return None


def with_function(version: EmbeddingVersion, declared: DeclaredFunction | None) -> EmbeddingVersion:
    """The version with the identity that its table declares, if no other is named."""
    if declared is None or version.encoder is not None or version.model:
        return version
    return replace(version, model=identity_of(declared.name, declared.arguments))


def build_function(schema: ArrowSchema, vector: str) -> Encoder:
    """Build the function of a column. It may load a model, and reads keys from LanceDB's variables or the environment.

    Raises:
        NotFound: The table names no function for that column any more, or LanceDB has none of that name.
        Incompatible: LanceDB cannot make it.
    """
    operation = f"build LanceDB's embedding function of {vector}"
    declared = function_of(schema, vector)
    if declared is None:
        raise NotFound(operation, expected=f"one in the table's metadata {EMBEDDED_BY_LANCEDB.decode()}", found="none")
    from lancedb.embeddings import get_registry

    try:
        kind = get_registry().get(declared.name)
    except KeyError:
        fix = "Import the module that registers it, and try again."
        expected = "a name of LanceDB's registry"
        raise NotFound(operation, expected=expected, found=repr(declared.name), fix=fix) from None
    try:
        return LanceDBFunction(kind.create(**declared.arguments), spec=f"{LANCEDB}{vector}")
    except Exception as error:  # the message is not shown: pydantic's hold the arguments, some of which are secrets
        expected = f"arguments, variables and libraries with which {declared.name} can be made"
        found = type(error).__name__ + (f": {error.name}" if isinstance(error, ImportError) and error.name else "")
        fix = "Make it by yourself to see why: lancedb.embeddings.get_registry().get(NAME).create(...)."
        raise Incompatible(operation, expected=expected, found=found, fix=fix) from None
