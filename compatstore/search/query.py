"""What users hand to a search, as vectors of a version: vectors as they are, sources through its encoder."""

from __future__ import annotations

from typing import Any

from compatstore.arrays import FloatArray
from compatstore.artifacts.matrix import as_matrix
from compatstore.encoders import encode_readable
from compatstore.errors import DimensionMismatch, InvalidInput
from compatstore.storage.catalog import Catalog
from compatstore.storage.registry import Registry
from compatstore.storage.version_hints import of_another_length


def as_queries(catalog: Catalog, registry: Registry, version: str, query: Any) -> FloatArray:
    """Read a query.

    Args:
        catalog: The gallery, whose encoder embeds a source.
        registry: Its state.
        version: Version of the query.
        query: (d,) or (q, d) array, list or torch tensor, or one source (path, text, image).

    Returns:
        (q, dim) float32; (1, dim) for one vector or source.

    Raises:
        DimensionMismatch: The vectors have another length.
        NonFiniteVectors: NaN or infinite values.
        InvalidInput: No vector at all, a source that cannot be embedded, or no encoder for it.
    """
    asked = f"search with a query of {version}"
    dim = registry.record(version).dim
    shape = getattr(query, "shape", None)
    shape = shape if isinstance(shape, tuple) else None
    if _is_vectors(query, shape, dim):
        if shape is not None and len(shape) == 2 and not shape[0]:
            raise InvalidInput(asked, expected="one vector or more", found="none")
        single = len(shape) == 1 if shape is not None else not any(hasattr(value, "__len__") for value in query)
        try:
            return as_matrix(asked, [query] if single else query, dim)
        except DimensionMismatch as error:
            raise of_another_length(catalog.store, registry, version, error) from None
    encoder = catalog.encoder(version)
    if encoder is None:
        if shape is not None and len(shape) == 2:
            unlike = DimensionMismatch(asked, found=f"shape {tuple(shape)}", dim=shape[1])
            raise of_another_length(catalog.store, registry, version, unlike)
        raise InvalidInput(
            asked,
            expected=f"a vector of {dim} values, or an encoder for {version}",
            found=f"{type(query).__name__} and no encoder",
            fix=f"Open the gallery with encoders={{'{version}': ...}}.",
        )
    encoded = encode_readable(encoder, [query])
    if encoded.failures:
        raise InvalidInput(asked, expected="a source that can be embedded", found=encoded.failures[0])
    return encoded.vectors


def _is_vectors(query: Any, shape: Any, dim: int) -> bool:
    """Whether a query is vectors; an array of two dimensions that are not (q, dim) may be a grey image."""
    if shape is None:
        return isinstance(query, list | tuple)
    return len(shape) == 1 or (len(shape) == 2 and shape[1] == dim)
