"""Embedding versions: models, their spaces, and the equality of two of them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.boundary import checked_fields, foreign
from compatstore.derivation import StoredAs
from compatstore.digests import fingerprint
from compatstore.documents import WIDEST
from compatstore.encoders.protocol import Encoder
from compatstore.errors import InvalidInput

Metric = Literal["l2", "cosine", "dot"]
DType = StoredAs
HeadLossKind = Literal["cross-entropy", "arcface", "cosface"]
SideDType = Literal["float32", "bits"]
METRICS: tuple[str, ...] = get_args(Metric)

LONGEST_NAME = 180  # characters; Lance adds up to 55 in the file of a tag, and 255 is the most
WORDS = ("id", "source", "vector", "side")  # of `add`, beside which vectors are given under their version's name
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")


def require_usable_name(name: str, operation: str) -> None:
    """Refuse a name that a gallery cannot give to a new version.

    Raises:
        InvalidInput: It is a reserved name of `add`, or too long for the name of a file.
    """
    if name in WORDS or len(name) > LONGEST_NAME:
        expected = f"a name of at most {LONGEST_NAME} characters that is none of {', '.join(WORDS)}"
        found = f"{len(name)} characters" if len(name) > LONGEST_NAME else repr(name)
        raise InvalidInput(operation, expected=expected, found=found, fix="Choose another name.")


OUTSIDE = "outside:"  # of the identity of a model without a name; the version follows


@checked_fields
@dataclass(frozen=True)
class HeadLoss:
    """The loss that a model was trained by through its classifier head.

    Args:
        kind: "cross-entropy"; or of scaled cosines, "arcface" with a margin of the angle or "cosface" of the cosine.
        margin: Of "arcface" in radians, of "cosface" as a cosine, 0 to pi/2; 0 for none, as of "cross-entropy".

    Raises:
        InvalidInput: There is no such loss.

    Examples:
        >>> loss = cs.HeadLoss("arcface", 0.5)
        >>> cs.EmbeddingVersion("v2", dim=512, model="faces@3", normalised=True, head_loss=loss).head_loss.margin
        0.5
    """

    kind: HeadLossKind
    margin: float = 0.0

    def __post_init__(self) -> None:
        most = 0.0 if self.kind == "cross-entropy" else math.pi / 2
        if not 0 <= self.margin <= most:
            expected = f"{self.kind} {'with a margin from 0 to pi/2' if most else 'without a margin'}"
            raise InvalidInput("describe the loss of a head", expected=expected, found=repr(self))


@checked_fields
@dataclass(frozen=True)
class EmbeddingVersion:
    """One embedding model and its space.

    Args:
        name: Letters, digits and single underscores; also the name of its column.
        dim: Length of an embedding, in values.
        metric: Distance of the space: "l2", "cosine" or "dot".
        normalised: True if embeddings have unit length.
        dtype: Storage type of vectors: "float32", "float16", or "bits", the sign of each value, for a `dim` that is a
            multiple of 8. Vectors are -1 and 1 then, which all metrics rank by how many signs differ.
        encoder: The model, or None when vectors come from outside.
        model: Identity of the model; taken from the encoder if there is one, else what its owner declares
            ("text-embedding-3-small@2024-01"). Part of the fingerprint.
        side_dim: Length of the side-information stored with each embedding, or None for no side-information.
        side_dtype: Its storage type: "float32", or "bits", the sign of each value, for a `side_dim` that is a multiple
            of 8 (128 values in 16 bytes). Transforms read -1 and 1.
        side_model: Identity of the side-information model, as `model`.
        side_encoder: The side-information model, or None when side-information comes from outside.
        head: Frozen classifier head of the model, (classes, dim) float32, or None.
        head_loss: The loss that the model was trained by through its head, or None if unknown. Transforms
            that learn through a head take it for theirs.

    Raises:
        InvalidInput: The name cannot be a column, a setting is out of its range, or the encoder gives another
            length than `dim`.

    Examples:
        >>> v2 = cs.EmbeddingVersion("v2", dim=512, metric="cosine", model="text-api@2026-03")
        >>> v2.identity, len(v2.fingerprint)
        ('text-api@2026-03', 32)
    """

    name: str
    dim: int
    metric: Metric = "cosine"
    normalised: bool = False
    dtype: DType = "float32"
    encoder: Encoder | None = field(default=None, compare=False, repr=False)
    model: str = ""
    side_dim: int | None = None
    side_dtype: SideDType = "float32"
    side_model: str = ""
    side_encoder: Encoder | None = field(default=None, compare=False, repr=False)
    head: FloatArray | None = field(default=None, compare=False, repr=False)
    head_loss: HeadLoss | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            expected = "letters, digits and single underscores, a letter first"
            raise InvalidInput("name an embedding version", expected=expected, found=repr(self.name))
        operation = f"make version {self.name}"
        if not 1 <= self.dim <= WIDEST or (self.side_dim is not None and not 1 <= self.side_dim <= WIDEST):
            found = f"dim {self.dim}, side_dim {self.side_dim}"
            raise InvalidInput(operation, expected=f"dimensions from 1 to {WIDEST}", found=found)
        if self.dtype == "bits" and (self.dim % 8 or self.normalised):
            found = f"{self.dim}, {'normalised' if self.normalised else 'not normalised'}"
            expected = "a dim that is a multiple of 8, and no unit length, for bits"
            raise InvalidInput(operation, expected=expected, found=found)
        if self.side_dtype == "bits" and (self.side_dim is None or self.side_dim % 8):
            found = "no side-information" if self.side_dim is None else f"{self.side_dim}"
            raise InvalidInput(operation, expected="a side_dim that is a multiple of 8, for bits", found=found)
        for encoder, dim in ((self.encoder, self.dim), (self.side_encoder, self.side_dim)):
            if encoder is not None and encoder.dim != dim:
                raise InvalidInput(operation, expected=f"an encoder of {dim} values", found=f"{encoder.dim}")
        if self.head is not None:
            with foreign(operation, "a head that is a matrix of numbers"):
                head = np.asarray(self.head, np.float32)
            object.__setattr__(self, "head", head)
            if head.ndim != 2 or head.shape[1] != self.dim:
                raise InvalidInput(operation, expected=f"a head of (classes, {self.dim})", found=f"{head.shape}")

    @property
    def identity(self) -> str:
        """Model identity: the fingerprint of the encoder, or the declared name."""
        return self.encoder.fingerprint if self.encoder is not None else self.model or f"{OUTSIDE}{self.name}"

    @property
    def side_identity(self) -> str:
        """Identity of the side-information model; "" without side-information."""
        if self.side_dim is None:
            return ""
        return self.side_encoder.fingerprint if self.side_encoder is not None else self.side_model or self.identity

    @property
    def fingerprint(self) -> str:
        """Digest (32 hex digits) of the model: its identity, dimension, metric, normalisation."""
        return fingerprint(model=self.identity, dim=self.dim, metric=self.metric, normalised=self.normalised)

    @property
    def side_fingerprint(self) -> str | None:
        """Digest of the side-information model, and of how it is stored; None without side-information."""
        if self.side_dim is None:
            return None
        stored = {} if self.side_dtype == "float32" else {"dtype": self.side_dtype}
        return fingerprint(side=self.side_identity, dim=self.side_dim, **stored)
