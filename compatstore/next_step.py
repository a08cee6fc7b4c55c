"""The next step that an error, a warning or a view advises: a call in Python, a command in a shell.

A program that calls the API reads `gallery.upgrade("v2", backfill=1.0)`, and a user of the program `compatstore` reads
`compatstore upgrade GALLERY v2 --backfill 1.0`. One flag decides which; the program sets it before it does anything.
A verb is named as in the shell, its options as in Python.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

# Calls in Python, of verbs that are no method of that name. `{}` takes the first operand.
MAINTENANCE = ("drop-columns", "history", "optimize", "unbackfillable", "unregister", "verify")
PYTHON = {
    "init": "cs.Gallery.create",
    "adopt": "cs.Gallery.adopt",
    **{verb: f"gallery.artifacts.{verb}" for verb in ("link", "unlink")},
    **{verb: f"gallery.maintenance.{verb.replace('-', '_')}" for verb in MAINTENANCE},
    **{f"index {verb}": f"gallery.maintenance.index({{}}).{verb}" for verb in ("create", "drop", "refresh")},
}
# Arguments of `Gallery.upgrade` that are settings -> their section in `--set SECTION.NAME=VALUE`; some are options.
SECTIONS = {"Backfill": "backfill", "Gates": "gates", "RunSettings": "run"}
OWN_OPTIONS = {
    ("Backfill", "share"): "backfill",
    ("Backfill", "max_cost"): "max_cost",
    ("Backfill", "price_per_item"): "price_per_item",
    ("Gates", "require"): "require",
}
ON_A_PATH = ("cs.Gallery.create", "cs.Gallery.adopt")  # no gallery is open: the path is the first operand
OPTIONS = {("link", "source"): "from", ("link", "target"): "to"}  # of a shell, where they have another name
GALLERY = "GALLERY"
# Methods of `compatstore train`: trainer, its training data, and the same as options.
TRAINED = {
    "auto": ("Auto", "pairs", "..."),
    "fct": ("FCT", "pairs", "..."),
    "fastfill": ("FastFill", "pairs", "--gallery GALLERY"),
    "independent": ("Independent", "images", "--images FOLDER"),
}
_shell = False


@dataclass(frozen=True)
class Word:
    """A placeholder that the reader fills in.

    Args:
        python: Its text in a call; None if a call does not take it.
        shell: Its text in a command; None if a command does not take it, "" for a flag.
    """

    python: str | None
    shell: str | None


ARTIFACT, COLUMN, FILE = Word("artifact", "ARTIFACT"), Word("...", "COLUMN"), Word("data", "FILE")
DIM, DIM_FOUND = Word("...", "DIM"), Word("...", None)  # a command finds it in the table, or by the encoder
ENCODER, ENCODER_IN_SHELL = Word("...", "ENCODER"), Word(None, "ENCODER")
IN_SHELL = Word(None, "")  # a flag of a command alone


@dataclass(frozen=True)
class Made:
    """A public dataclass in a call; in a command its fields are options."""

    kind: str
    operands: tuple[object, ...]
    fields: Mapping[str, object]


@contextmanager
def speaking_shell() -> Iterator[None]:
    """Advise commands within."""
    global _shell
    before, _shell = _shell, True
    try:
        yield
    finally:
        _shell = before


def either(*, shell: str, python: str) -> str:
    """One of two texts, where more than the spelling differs."""
    return shell if _shell else python


def same() -> str:
    """Name of the operation to repeat: "the same command" or "the same call"."""
    return f"the same {either(shell='command', python='call')}"


def made(kind: str, *operands: object, **fields: object) -> Made:
    """A public dataclass as an argument of `call`, such as `made("Backfill", order="random")`."""
    return Made(kind, operands, fields)


def call(verb: str, *operands: object, at: str = "", on: str = "gallery", **options: object) -> str:
    """A call of a verb.

    Args:
        verb: As in the shell, such as "index create".
        operands: In their order, without the gallery.
        at: The gallery's path, where it is known.
        on: Object of the call in Python: "gallery" or "shards".
        options: By their names in Python; those that are None are left out.

    Examples:
        >>> from compatstore.next_step import call
        >>> call("upgrade", "v2", backfill=1.0)
        'gallery.upgrade("v2", backfill=1.0)'
    """
    return _command(verb, operands, at, options) if _shell else _call(verb, operands, at, on, options)


def both(*calls: str) -> str:
    """Calls, one after the other."""
    return either(shell=" && ", python="; ").join(calls)


def creating(place: str, dim: int | Word = DIM) -> str:
    """Call that makes an empty gallery."""
    return call("init", made("EmbeddingVersion", "v1", dim=dim), at=place)


def adopting(place: str, *, again: bool = False) -> str:
    """Call that adopts a table; `again` if it is a gallery already."""
    if again and _shell:
        return call("adopt", at=place, again=True)  # columns and version are read from the registry
    version = made("EmbeddingVersion", "v1", dim=DIM_FOUND)
    return call("adopt", version, at=place, vector=COLUMN, id=COLUMN, again=True if again else None)


def encoder(version: str) -> str:
    """The model of a version, given to a command or to `Gallery.open`."""
    return either(shell=f"--encoder {version}=ENCODER", python=f"Gallery.open(..., encoders={{{version!r}: ...}})")


def finishing(target: str) -> str:
    """Calls that finish an upgrade and cut over."""
    return either(
        shell=call("upgrade", target, cutover=IN_SHELL), python=both(call("upgrade", target), call("cutover", target))
    )


def command(verb: str, *operands: object) -> str:
    """A command without a counterpart in Python, for `either`."""
    return _command(verb, operands, "", {})


def in_a_shell(verb: str, *, at: str) -> str:
    """A command without a counterpart in Python, such as one for a gallery that `Gallery.open` cannot read."""
    return _command(verb, (), at, {}) + either(shell="", python=" (in a shell)")


def option(name: str, value: object = ..., *, within: str = "") -> str:
    """An option alone.

    Args:
        name: As in Python.
        value: Its value; by default the reader chooses.
        within: The public dataclass that has it as a field.
    """
    if _shell and within in SECTIONS:
        return " ".join(_setting(within, name, value))
    if _shell:
        return " ".join(_words(name, Word(None, "") if value is ... else value))
    text = f"{name}={_python(value)}"
    return f"{within}({text})" if within else text


def setting(name: str, value: object) -> str:
    """A setting of a trainer."""
    shown = str(value).lower() if value is True else value
    return f"--set {name}={shown}" if _shell else f"{name}={_python(value)}"


def training(method: str, *, out: str = "") -> str:
    """A training run.

    Args:
        method: One of `TRAINED`.
        out: Path of the result; "" if it is left open.
    """
    trainer, data, inputs = TRAINED[method]
    if _shell:
        return f"compatstore train {method} {inputs}" + (f" --out {shlex.quote(out)}" if out else "")
    return f"trainers.{trainer}().fit({data})" + (f".save({_text(out)})" if out else "")


def _call(verb: str, operands: tuple[object, ...], at: str, on: str, options: Mapping[str, object]) -> str:
    function, given = PYTHON.get(verb, f"gallery.{verb}"), _arguments(operands, options)
    if "{}" in function:
        function, given = function.format(given[0]), given[1:]
    if function in ON_A_PATH:
        given.insert(0, _text(at) if at else "...")
    return f"{function.replace('gallery', on, 1)}({', '.join(given)})"


def _arguments(operands: tuple[object, ...], options: Mapping[str, object]) -> list[str]:
    given = [text for each in operands if (text := _python(each)) is not None]
    named = ((name, _python(value)) for name, value in options.items() if value is not None)
    return [*given, *(f"{name}={text}" for name, text in named if text is not None)]


def _python(value: object) -> str | None:
    """The source of a value; None for a placeholder without a counterpart in Python."""
    if isinstance(value, Word):
        return value.python
    if value is ...:
        return "..."
    if isinstance(value, Made):
        return f"cs.{value.kind}({', '.join(_arguments(value.operands, value.fields))})"
    if isinstance(value, str):
        return _text(value)
    return repr(value)


def _text(value: str) -> str:
    """A text in double quotes, as the pages write it."""
    plain = repr(value)
    return plain if plain[0] == '"' or '"' in value else f'"{plain[1:-1]}"'


def _command(verb: str, operands: tuple[object, ...], at: str, options: Mapping[str, object]) -> str:
    words = ["compatstore", *verb.split(), shlex.quote(at) if at else GALLERY]
    for each in operands:
        if not isinstance(each, Made):
            words += _operand(each)
            continue
        words += ["--version"] if verb in ("init", "adopt") else []
        words += [word for operand in each.operands for word in _operand(operand)] + _all_words(verb, each.fields)
    return " ".join([*words, *_all_words(verb, options)])


def _operand(value: object) -> list[str]:
    if isinstance(value, Word):
        return [] if value.shell is None else [value.shell]
    return [shlex.quote(str(value))]


def _all_words(verb: str, options: Mapping[str, object]) -> list[str]:
    return [word for name, value in options.items() for word in _words(OPTIONS.get((verb, name), name), value, verb)]


def _words(name: str, value: object, verb: str = "") -> list[str]:
    """An option of a command."""
    flag = name.replace("_", "-")
    if isinstance(value, Made) and verb == "upgrade":
        return [word for field, each in value.fields.items() for word in _setting(value.kind, field, each)]
    if isinstance(value, Made):
        return _all_words(verb, value.fields)
    if value is None or (isinstance(value, Word) and value.shell is None):
        return []
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", *(word for word in _operand(value) if word)]


def _setting(kind: str, name: str, value: object) -> list[str]:
    """A field of a settings dataclass of `upgrade`: an option of its own, or `--set`."""
    if (kind, name) in OWN_OPTIONS:
        return _words(OWN_OPTIONS[kind, name], Word(None, "") if value is ... else value)
    shown = "..." if value is ... or isinstance(value, Word) else str(value).lower() if value is True else str(value)
    return ["--set", shlex.quote(f"{SECTIONS[kind]}.{name}={shown}")]
