"""What all verbs share: `--json` and `--log`, examples in the help, options made of dataclasses, opening a gallery."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from compatstore.cli.logs import log_option
from compatstore.cli.output import Output
from compatstore.cli.settings import Options
from compatstore.errors import AlreadyExists
from compatstore.paths import exists

if TYPE_CHECKING:
    from compatstore.encoders import Encoder
    from compatstore.gallery import Gallery

_ENCODERS = "compatstore.encoders"  # of a context: version -> spec, as `--encoders` names them
Function = TypeVar("Function", bound=Callable[..., object])


class Verb(click.Command):
    """A command.

    Set `requests` to a function that gives options made of frozen dataclasses, by the names of the parameters as which
    the command's function gets one of each. The function is called when the options are needed, not before, so that
    listing commands loads no trainer.
    """

    requests: Callable[[], Mapping[str, Options]] = dict

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All parameters: the command's own, the generated ones, those of all verbs, and --help."""
        own = super().get_params(ctx)
        declared, help = own[: len(self.params)], own[len(self.params) :]
        if not ctx.resilient_parsing:
            return [*declared, *self._generated, *_for_all(), *help]
        from compatstore.cli.offers import completed  # a shell asks for completions
        from compatstore.cli.option_list import listed_options

        return [completed(parameter) for parameter in (*declared, *listed_options(ctx), *_for_all(), *help)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the line; while its last value is still to be completed, without the option that waits for it."""
        if ctx.resilient_parsing and args and args[-1] in self._waiting(ctx):
            args = args[:-1]
        return super().parse_args(ctx, args)

    def _waiting(self, ctx: click.Context) -> set[str]:
        """Options that take a value."""
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        return {flag for option in options if not option.is_flag for flag in option.opts}

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of the help, whole: a list of commands folds it where the terminal is narrow."""
        return super().get_short_help_str(limit=1_000)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        output = ctx.find_object(Output)
        if output is not None:
            output.gallery = ctx.params.get("gallery") or ""
            if output.log is not None:
                output.log.begin(ctx.command_path.partition(" ")[2], ctx.params)
        for name, options in self.requests().items():
            ctx.params[name] = options.collect(ctx.params)
        return super().invoke(ctx)

    @cached_property
    def _generated(self) -> list[click.Option]:
        return [option for options in self.requests().values() for option in options.made()]


def _for_all() -> tuple[click.Option, ...]:
    # --json takes effect in App.parse_args, so that a command line that cannot be parsed is answered in JSON too.
    return click.Option(["--json"], is_flag=True, expose_value=False, help="Print the result as JSON."), log_option()


def shown_examples(examples: Sequence[str]) -> str:
    """The end of a help: command lines, given without the program's name, one below the other."""
    return "\n".join(["\b", "Examples:", *(f"  compatstore {example}" for example in examples)])


def verb(
    name: str,
    *,
    examples: Sequence[str],
    settings: Callable[[], type] | None = None,
    requests: Callable[[], Mapping[str, Options]] | None = None,
) -> Callable[[Callable[..., None]], Verb]:
    """Make a function a verb; its docstring is the help.

    Args:
        name: Of the verb.
        examples: One to three command lines, without the program's name, shown at the end of the help.
        settings: Gives the one dataclass of which the function gets `settings`.
        requests: Gives the options of several, see `Verb`.
    """

    def make(function: Callable[..., None]) -> Verb:
        made = click.command(name, cls=Verb, epilog=shown_examples(examples))(function)
        if settings is not None:
            made.requests = lambda: {"settings": Options(kind=settings())}
        elif requests is not None:
            made.requests = requests
        return made

    return make


gallery_argument = click.argument("gallery")


def trust_code_option(function: Function) -> Function:
    """`--trust-code`, and `--import` of modules that register what the gallery names."""
    imports = click.option(
        "--import",
        "modules",
        metavar="MODULE",
        multiple=True,
        expose_value=False,
        is_eager=True,
        callback=_import,
        help="Module to import first, for example one that registers an embedding function with LanceDB; repeatable.",
    )
    encoders = click.option(
        "--encoders",
        "given",
        metavar="VERSION=ENCODER",
        multiple=True,
        expose_value=False,
        callback=_note_encoders,
        help="A version's model, where the gallery cannot build it; repeatable.",
    )
    trust = click.option(
        "--trust-code", is_flag=True, help="Build encoders that the gallery names as Python code or as an address."
    )
    return trust(encoders(imports(function)))


def _note_encoders(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> None:
    """Keep the encoders that are named until a gallery is opened.

    Raises:
        UsageError: One is not VERSION=ENCODER.
    """
    pairs = [text.partition("=") for text in given]
    wrong = [text for text, (name, mark, spec) in zip(given, pairs, strict=True) if not (name and mark and spec)]
    if wrong:
        raise click.UsageError(f"--encoders takes VERSION=ENCODER, not {wrong[0]!r}.", context)
    context.meta[_ENCODERS] = {name: spec for name, _, spec in pairs}


def _import(context: click.Context, parameter: click.Parameter, modules: tuple[str, ...]) -> None:
    """Import modules, which may lie in the current folder.

    Raises:
        InvalidInput: There is no such module, or it cannot be imported.
    """
    from compatstore.boundary import foreign

    if modules:
        _import_from_here()
    for module in modules:
        with foreign(f"import {module[:120]}", "a module that can be imported from here"):
            importlib.import_module(module)


target_encoder_option = click.option(
    "--encoder", metavar="ENCODER", help="The target's model, where the gallery cannot build it."
)

wait_option = click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for another process to finish its batch.",
)


def build_encoder(spec: str) -> Encoder:
    """Build an encoder that the command line names; its Python code may lie in the working directory."""
    from compatstore.encoders import from_spec

    if spec.startswith("python:"):
        _import_from_here()
    return from_spec(spec)


def _import_from_here() -> None:
    """Find modules in the working directory too, behind all that is installed: nothing there takes the place of it."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def open_gallery(gallery: str, *, trust_code: bool, encoders: Mapping[str, Encoder] | None = None) -> Gallery:
    """Open a gallery; Lance loads here and not before."""
    from compatstore.gallery import Gallery

    if trust_code:
        _import_from_here()
    context = click.get_current_context(silent=True)
    named = {} if context is None else context.meta.get(_ENCODERS, {})
    every = {name: build_encoder(spec) for name, spec in named.items()} | dict(encoders or {})
    return Gallery.open(gallery, encoders=every or None, trust_code=trust_code)


def open_target(gallery: str, target: str, encoder: str | None, *, trust_code: bool) -> Gallery:
    """Open a gallery with the encoder of an upgrade's target, where one is named."""
    if encoder is None:
        return open_gallery(gallery, trust_code=trust_code)
    return open_gallery(gallery, trust_code=trust_code, encoders={target: build_encoder(encoder)})


def require_free(out: str, overwrite: bool) -> None:
    """Refuse before hours of training what would be refused after them.

    Raises:
        AlreadyExists: Something is there, and is not to be replaced.
    """
    if exists(out) and not overwrite:
        fix = "Choose another name, or pass --overwrite."
        raise AlreadyExists(f"write {out}", expected="nothing there", found="something", fix=fix)


def version_settings() -> type:
    """The dataclass behind the options that describe an embedding version."""
    from compatstore.cli.requests import VersionSettings

    return VersionSettings
