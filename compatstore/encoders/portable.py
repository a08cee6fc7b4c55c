"""Encoders on their way into another process: by what builds them there, and as objects where nothing else does.

Weights and sessions of a model are built where they are used, on that process' device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compatstore.derivation import Derivation
from compatstore.encoders.protocol import Encoder
from compatstore.encoders.registry import from_spec, is_spec
from compatstore.errors import Incompatible


@dataclass(frozen=True, kw_only=True)
class PortableEncoder:
    """What builds an encoder in another process; it pickles where its parts do.

    Args:
        fingerprint: What the encoder must have there.
        stored: The file of a `NetworkEncoder`, or None.
        spec: Its spec, or "".
        encoder: The encoder itself, where neither is known.
        derivations: What is derived of it, in steps.
    """

    fingerprint: str
    stored: bytes | None = None
    spec: str = ""
    encoder: Encoder | None = None
    derivations: Sequence[Derivation] = ()

    @classmethod
    def of(cls, encoder: Encoder) -> PortableEncoder:
        """An encoder of this process, made ready."""
        from compatstore.encoders.derived import Derived
        from compatstore.encoders.network import NetworkEncoder

        fingerprint = encoder.fingerprint
        derivations = encoder.derivations if isinstance(encoder, Derived) else ()
        encoder = encoder.encoder if isinstance(encoder, Derived) else encoder
        if isinstance(encoder, NetworkEncoder):
            return cls(fingerprint=fingerprint, stored=encoder.to_bytes(), derivations=derivations)
        if is_spec(encoder.spec):
            return cls(fingerprint=fingerprint, spec=encoder.spec, derivations=derivations)
        return cls(fingerprint=fingerprint, encoder=encoder, derivations=derivations)

    def build(self) -> Encoder:
        """The encoder, here.

        Raises:
            NotFound: What its spec names is not there.
            Incompatible: What its spec builds here is another model.
        """
        from compatstore.encoders.derived import Derived

        encoder = self._build()
        if self.derivations:
            encoder = Derived(encoder, *self.derivations)
        if encoder.fingerprint != self.fingerprint:
            raise Incompatible(
                f"build the encoder {self.spec or type(encoder).__name__} in another process",
                expected=f"the model that is used here ({self.fingerprint})",
                found=encoder.fingerprint,
                fix="Put the same files and versions of libraries on all machines.",
            )
        return encoder

    def _build(self) -> Encoder:
        from compatstore.encoders.network import NetworkEncoder

        if self.stored is not None:
            return NetworkEncoder.from_bytes(self.stored)
        return from_spec(self.spec) if self.encoder is None else self.encoder
