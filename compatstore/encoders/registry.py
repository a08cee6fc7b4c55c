"""Encoders from their specs, the strings by which a gallery stores them, and encoders on their way to another process.

An encoder travels as its spec or its bytes, and as an object where nothing else builds it there. Weights and sessions
of a model are built where they are used, on that process' device.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compatstore.boundary import checked
from compatstore.derivation import Derivation
from compatstore.encoders.protocol import Encoder
from compatstore.encoders.specs import build
from compatstore.errors import Incompatible, InvalidInput, NotFound, meant


@checked
def from_spec(spec: str) -> Encoder:
    """Build an encoder from its spec.

    Args:
        spec: One of these, settings behind a "?" where the kind has some
            ("openai:https://api.openai.com/v1#text-embedding-3-small?dim=1536&key_env=OPENAI_API_KEY"):

            * "timm:NAME" or "torchvision:NAME": pretrained weights;
            * "network:PATH": a saved `NetworkEncoder`;
            * "sentence-transformers:FOLDER", "transformers:FOLDER", "fastembed:FOLDER" or "model2vec:FOLDER": a text
              model in a local folder, "open_clip:FOLDER" or "open_clip:NAME?weights=...": images, and texts that ask;
            * "openai:BASE_URL#MODEL": an HTTP endpoint of OpenAI's form;
            * "files:FOLDER?encoder=network:PATH&suffix=.jpg": the file of each item's id, by an encoder of images;
            * "precomputed:PATH": id -> vector;
            * "python:package.module:attribute": an encoder, or a class of encoders that needs no arguments. This
              imports that module: use it only for specs you trust.

    Raises:
        NotFound: The kind, model, file, module or attribute does not exist.
        InvalidInput: What the spec names is not an encoder, or a setting is unknown or of another type.

    Examples:
        >>> np.savez("vectors.npz", id=np.array(["a"]), vector=np.array([[0.0, 1.0]], np.float32))
        >>> cs.encoders.from_spec("precomputed:vectors.npz").encode(["a"]).tolist()
        [[0.0, 1.0]]
    """
    kind, _, argument = spec.partition(":")
    if kind not in _KINDS or not argument:
        raise NotFound(
            f"build the encoder {kind!r}" if argument else f"build the encoder {spec!r}",
            expected=f"KIND:ARGUMENT, KIND one of {', '.join(_KINDS)}",
            found=repr(kind) if argument else repr(spec),
            fix=f'{meant(kind, _KINDS)}For an encoder of your own use "python:package.module:attribute", or hand the '
            "object over.",
        )
    return _KINDS[kind](argument)


def is_spec(text: str) -> bool:
    """Whether `from_spec` knows what kind of encoder this is; others, as lancedb:COLUMN, need a gallery beside it."""
    return text.partition(":")[0] in _KINDS


def _built(kind: str, module: str, name: str) -> Callable[[str], Encoder]:
    """Builds a kind of encoder from the arguments and settings of a spec."""
    return lambda text: build(kind, text, _class(module, name))


def _class(module: str, name: str) -> Callable[..., Encoder]:
    made: Callable[..., Encoder] = getattr(importlib.import_module(f"compatstore.encoders.{module}"), name)
    return made


def _network(path: str) -> Encoder:
    from compatstore.encoders.network import NetworkEncoder

    return NetworkEncoder.load(path)


def _python(path: str) -> Encoder:
    module_name, _, attribute = path.partition(":")
    asked = f"build the encoder 'python:{path}'"
    try:
        value = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        fix = "Check that the module can be imported from here."
        raise NotFound(asked, expected="package.module:attribute", found=str(error), fix=fix) from error
    # Only classes of encoders are called, so that a spec cannot run any function of any module.
    encoder = value() if isinstance(value, type) and hasattr(value, "encode") else value
    if isinstance(encoder, type) or not isinstance(encoder, Encoder):
        raise InvalidInput(
            asked, expected="an encoder (dim, fingerprint, spec, reads, encode)", found=type(value).__name__
        )
    return encoder


_KINDS: dict[str, Callable[[str], Encoder]] = {
    "timm": lambda name: _class("published_models", "TimmModel")(name),
    "torchvision": lambda name: _class("published_models", "TorchvisionModel")(name),
    "network": _network,
    "precomputed": lambda path: _class("precomputed", "Precomputed")(path),
    "python": _python,
    "openai": _built("openai", "openai_compatible", "OpenAICompatible"),
    "sentence-transformers": _built("sentence-transformers", "text_models", "SentenceTransformersModel"),
    "transformers": _built("transformers", "text_models", "TransformersModel"),
    "fastembed": _built("fastembed", "text_models", "FastembedModel"),
    "model2vec": _built("model2vec", "text_models", "Model2VecModel"),
    "open_clip": _built("open_clip", "open_clip_model", "OpenClipModel"),
    "files": _built("files", "derived", "FilesById"),
}


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
