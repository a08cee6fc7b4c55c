"""Encoders as specs, "KIND:ARGUMENT?name=value&name=value": read, written, built, and sent to another process.

Settings are the keyword arguments of the encoder's class. Those at their default are not written, so that a spec stays
short. A spec is stored with the gallery and shown by `status`; so no encoder takes a secret as a setting.

An encoder is sent as its spec or its bytes, and as an object if neither can build it there. Weights and sessions
of a model are built in the process that uses them, on its device.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl, quote, unquote, urlencode

from compatstore.boundary import checked
from compatstore.derivation import Derivation
from compatstore.encoders.protocol import Encoder
from compatstore.errors import Incompatible, InvalidInput, NotFound, first_offenders, meant

Value = str | int | float | bool
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def join_spec(
    kind: str, arguments: Sequence[str], make: Callable[..., Encoder], settings: Mapping[str, Value | None]
) -> str:
    """Write a spec without the settings that are at their default.

    "#" separates arguments; a "?", "%" or "#" within one is written as %3F.
    """
    defaults = {name: parameter.default for name, parameter in inspect.signature(make).parameters.items()}
    changed = {name: value for name, value in settings.items() if value is not None and value != defaults[name]}
    written = {name: str(value).lower() if isinstance(value, bool) else value for name, value in changed.items()}
    escaped = "#".join(quote(argument, safe="/:@!$&'()*+,;=~. ") for argument in arguments)
    return f"{kind}:{escaped}" + (f"?{urlencode(written, quote_via=quote)}" if written else "")


def build(kind: str, text: str, make: Callable[..., Encoder]) -> Encoder:
    """Build an encoder from its spec without the kind.

    Raises:
        InvalidInput: A setting is unknown, twice there, of another type, or one is missing that has no default. Values
            are not shown: one may be a secret.
    """
    before, _, settings = text.partition("?")
    arguments = [unquote(argument) for argument in before.split("#")]
    parameters = inspect.signature(make).parameters.values()
    wanted = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    if len(arguments) != len(wanted) or not all(arguments):
        operation, expected = f"build an encoder {kind}:...", f"{kind}:{'#'.join(name.upper() for name in wanted)}"
        raise InvalidInput(operation, expected=expected, found=f"{len(arguments)} parts, parted by '#'")
    read = read_settings(kind, settings, make)
    required = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
    missing = [name for name in required if name not in read]
    if missing:
        operation, expected = (
            f"build an encoder {kind}:...",
            f"{kind}:...?{'&'.join(f'{name}=...' for name in missing)}",
        )
        raise InvalidInput(operation, expected=expected, found=f"no {', '.join(missing)}")
    return make(*arguments, **read)


def read_settings(kind: str, settings: str, make: Callable[..., Encoder]) -> dict[str, Value]:
    """Read "name=value&name=value" as keyword arguments of a class of encoders.

    Raises:
        InvalidInput: See `build`.
    """
    types = _settings_of(make)
    pairs = parse_qsl(settings, keep_blank_values=True)
    names = [name for name, _ in pairs]
    unknown = [name for name in names if name not in types or names.count(name) > 1]
    operation = f"read the settings of an encoder {kind}:..."
    if unknown or (settings and not pairs):
        found = first_offenders([name[:40] for name in unknown]) or "no name=value"
        fix = "A key belongs into the environment, never into a spec." if "key" in "".join(unknown).lower() else ""
        raise InvalidInput(operation, expected=f"name=value, each once, of {', '.join(types)}", found=found, fix=fix)
    return {name: _read(operation, name, value, types[name]) for name, value in pairs}


def _settings_of(make: Callable[..., Encoder]) -> dict[str, type]:
    """Name -> type of the keyword arguments that a spec can name."""
    made = inspect.unwrap(vars(make)["__init__"]) if isinstance(make, type) else make
    hints, found = get_type_hints(made), {}
    for name, parameter in inspect.signature(made).parameters.items():
        plain = [_plain(hint) for hint in (hints[name], *get_args(hints[name]))] if name in hints else []
        kinds = [kind for kind in plain if kind is not None]
        if parameter.kind is parameter.KEYWORD_ONLY and kinds:
            found[name] = kinds[0]
    return found


def _plain(hint: Any) -> type | None:
    if get_origin(hint) is Literal:
        return str
    return hint if hint in (str, int, float, bool) else None


def _read(operation: str, name: str, value: str, kind: type) -> Value:
    try:
        read: Value = _TRUTHS[value.lower()] if kind is bool else kind(value)
    except (KeyError, ValueError):
        expected = f"{name}: {'true or false' if kind is bool else f'a value of type {kind.__name__}'}"
        raise InvalidInput(operation, expected=expected, found=f"{len(value)} other characters") from None
    return read


_SECRET = re.compile(r"key$|token$|secret|password|passphrase|credential|^auth", re.IGNORECASE)
_RUNNING = frozenset({"batch_size", "device", "max_retries", "num_workers", "show_progress_bar"})
_WITHIN = re.compile(r"(?<=://)[^/@]*@")  # a name and password in an address


def without_secrets(value: Any) -> Any:
    """A value as JSON can hold it, without secrets; other objects become the name of their type."""
    if isinstance(value, Mapping):
        kept = {f"{key}": item for key, item in value.items() if not _SECRET.search(f"{key}") and key not in _RUNNING}
        return {key: without_secrets(item) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    if isinstance(value, str):
        return _WITHIN.sub("", value)
    return value if value is None or isinstance(value, bool | int | float) else f"{type(value).__name__}"


@checked
def from_spec(spec: str) -> Encoder:
    """Build an encoder from its spec.

    Args:
        spec: One of these, settings behind a "?" if the kind has some
            ("openai:https://api.openai.com/v1#text-embedding-3-small?dim=1536&key_env=OPENAI_API_KEY"):

            * "timm:NAME" or "torchvision:NAME": pretrained weights;
            * "network:PATH": a saved `NetworkEncoder`;
            * "sentence-transformers:FOLDER", "transformers:FOLDER", "fastembed:FOLDER" or "model2vec:FOLDER": a text
              model in a local folder, "open_clip:FOLDER" or "open_clip:NAME?weights=...": images, and texts as queries;
            * "openai:BASE_URL#MODEL": an HTTP endpoint of OpenAI's form;
            * "files:FOLDER?encoder=network:PATH&suffix=.jpg": the file of each item's id, by an encoder of images;
            * "precomputed:PATH": id -> vector;
            * "python:package.module:attribute": an encoder, or a class of encoders that needs no arguments. This
              imports that module: use it only for specs you trust.

    Raises:
        NotFound: The kind, model, file, module or attribute does not exist.
        InvalidInput: The spec names no encoder, or a setting is unknown or of another type.

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
    if kind == "python":
        return _python(argument)
    from compatstore import encoders

    make: Any = getattr(encoders, _KINDS[kind])
    if kind in ("network", "precomputed"):  # the path as it is, nothing in it is escaped
        built: Encoder = make.load(argument) if kind == "network" else make(argument)
        return built
    return build(kind, argument, make)


def _python(path: str) -> Encoder:
    module_name, _, attribute = path.partition(":")
    operation = f"build the encoder 'python:{path}'"
    try:
        value = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        fix = "Check that the module can be imported from here."
        raise NotFound(operation, expected="package.module:attribute", found=str(error), fix=fix) from error
    # Only classes of encoders are called, so that a spec cannot run any function of any module.
    encoder = value() if isinstance(value, type) and hasattr(value, "encode") else value
    if isinstance(encoder, type) or not isinstance(encoder, Encoder):
        raise InvalidInput(
            operation, expected="an encoder (dim, fingerprint, spec, reads, encode)", found=type(value).__name__
        )
    return encoder


_KINDS = {
    "timm": "TimmModel",
    "torchvision": "TorchvisionModel",
    "network": "NetworkEncoder",
    "precomputed": "Precomputed",
    "python": "",
    "openai": "OpenAICompatible",
    "sentence-transformers": "SentenceTransformersModel",
    "transformers": "TransformersModel",
    "fastembed": "FastembedModel",
    "model2vec": "Model2VecModel",
    "open_clip": "OpenClipModel",
    "files": "FilesById",
}


@dataclass(frozen=True)
class PortableEncoder:
    """Builder of an encoder in another process; it pickles if its parts do.

    Args:
        fingerprint: Required fingerprint of the built encoder.
        make: Builds the encoder.
        arguments: Arguments of `make`: the file of a `NetworkEncoder`, a spec, or the encoder itself without either.
    """

    fingerprint: str
    make: Callable[..., Encoder]
    arguments: tuple[Any, ...]

    @classmethod
    def of(cls, encoder: Encoder) -> PortableEncoder:
        """An encoder of this process, made ready."""
        from compatstore.encoders import Derived, NetworkEncoder

        if isinstance(encoder, Derived):
            return cls(encoder.fingerprint, _derived, (cls.of(encoder.encoder), *encoder.derivations))
        if isinstance(encoder, NetworkEncoder):
            return cls(encoder.fingerprint, NetworkEncoder.from_bytes, (encoder.to_bytes(),))
        known = encoder.spec.partition(":")[0] in _KINDS  # others, as lancedb:COLUMN, need a gallery beside it
        return cls(encoder.fingerprint, from_spec if known else _itself, (encoder.spec if known else encoder,))

    def build(self) -> Encoder:
        """The encoder, here.

        Raises:
            NotFound: The object that its spec names does not exist.
            Incompatible: Its spec builds another model here.
        """
        encoder = self.make(*self.arguments)
        if encoder.fingerprint != self.fingerprint:
            raise Incompatible(
                f"build the encoder {encoder.spec or type(encoder).__name__} in another process",
                expected=f"the model that is used here ({self.fingerprint})",
                found=encoder.fingerprint,
                fix="Put the same files and versions of libraries on all machines.",
            )
        return encoder


def _derived(model: PortableEncoder, *derivations: Derivation) -> Encoder:
    from compatstore.encoders.derived import Derived

    return Derived(model.build(), *derivations)


def _itself(encoder: Encoder) -> Encoder:
    return encoder
