"""An encoder whose vectors are derived of another encoder's: a Matryoshka model at fewer values, unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal

from compatstore.arrays import BoolArray, FloatArray
from compatstore.boundary import checked
from compatstore.derivation import Derivation
from compatstore.encoders.metering import Bill, Metered
from compatstore.encoders.protocol import Encoder, QueryEncoder
from compatstore.errors import InvalidInput


@checked
class Derived:
    """Embeds as another encoder does, and derives its vectors; no other model is called.

    Args:
        encoder: The model. One that is derived itself is taken apart.
        derivations: Steps, one or more, each of what the one before gives.

    Raises:
        InvalidInput: There is no step. A step keeps more values than it is given.

    Examples:
        >>> whole = cs.encoders.Precomputed({"a": [3.0, 4.0, 12.0]})
        >>> shorter = cs.encoders.Derived(whole, cs.Derivation(dim=2, normalise=True))
        >>> shorter.encode(["a"]).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """

    spec = ""  # a gallery keeps that of the model, and the steps beside it
    request_rows: int  # both only where the model is `Metered`
    expected_bill: Callable[[Sequence[Any]], Bill]

    def __init__(self, encoder: Encoder, *derivations: Derivation) -> None:
        if not derivations:
            raise InvalidInput("derive an encoder", expected="a derivation, or several", found="none")
        known: tuple[Derivation, ...] = encoder.derivations if isinstance(encoder, Derived) else ()
        self.encoder: Encoder = encoder.encoder if isinstance(encoder, Derived) else encoder
        self.derivations: tuple[Derivation, ...] = (*known, *derivations)
        dim = self.encoder.dim
        for derivation in self.derivations:
            if derivation.dim > dim:
                expected = f"{dim} values at most, as the encoder gives"
                raise InvalidInput("derive an encoder", expected=expected, found=f"{derivation.dim}")
            dim = derivation.dim
        if isinstance(self.encoder, Metered):
            self.request_rows, self.expected_bill = self.encoder.request_rows, self.encoder.expected_bill

    @property
    def dim(self) -> int:
        """Length of an embedding."""
        return self.derivations[-1].dim

    @property
    def reads(self) -> Literal["source", "id"]:
        """What the model reads of an item."""
        return self.encoder.reads

    @property
    def knows(self) -> Callable[[Sequence[Any]], BoolArray]:
        """Which ids the model knows, where it can say."""
        knows: Callable[[Sequence[Any]], BoolArray] = self.encoder.knows  # type: ignore[attr-defined]
        return knows

    @cached_property
    def fingerprint(self) -> str:
        """Digest (32 hex digits) of the model's fingerprint and the steps."""
        return identity_of(self.encoder.fingerprint, self.derivations)

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed a batch: (n, dim) float32; NaN for what has no direction and is to be scaled.

        Raises:
            SourceError: The model cannot read some sources.
        """
        return self._derived(self.encoder.encode(sources))

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed a batch of queries as the model does, (n, dim) float32; the same otherwise.

        Raises:
            SourceError: The model cannot read some queries.
        """
        model = self.encoder
        return self._derived(
            model.encode_queries(queries) if isinstance(model, QueryEncoder) else model.encode(queries)
        )

    def _derived(self, vectors: FloatArray) -> FloatArray:
        for derivation in self.derivations:
            vectors = derivation.apply(vectors)
        return vectors


def identity_of(model: str, derivations: Sequence[Derivation]) -> str:
    """Identity of what is derived of a model in steps; the model's own where there is none."""
    for derivation in derivations:
        model = derivation.identity(model)
    return model
