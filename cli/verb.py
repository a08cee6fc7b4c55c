"""Parts of all verbs: `--json` and `--log`, examples in the help, options made of dataclasses, opening a gallery."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import click
from click.core import ParameterSource

import compatstore as cs
from compatstore.cli.logs import log_option
from compatstore.cli.output import Output, pass_output
from compatstore.cli.settings import Options, listed_settings, named_settings

# Former options and what replaces them; an option that became a setting is found by its name.
FORMER = {
    "--via": "--transform",
    "--encoders": "--encoder",
    "--no-learn": "--set learn=none",
    "--refit": "--set learn=improve",
}
_ENCODERS = "compatstore.encoders"  # of a context: version -> spec, as `--encoder` names them
Function = TypeVar("Function", bound=Callable[..., object])


class Verb(click.Command):
    """A command.

    `requests` are options made of frozen dataclasses, by the names of the parameters as which the command's function
    gets one of each. With `groups`, heading -> names of parameters, the help lists options by them. `settings` gives
    the dataclasses that `--set` and `--config` fill, by their sections; the help has a sentence on each field.
    """

    requests: Mapping[str, Options] = {}
    settings: Callable[[], Mapping[str, type]] = dict
    groups: Mapping[str, Sequence[str]] = {}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """List the parameters: the command's own, the generated ones, those of all verbs, and --help."""
        own = super().get_params(ctx)
        declared, help = own[: len(self.params)], own[len(self.params) :]
        return [*declared, *self._generated, *_for_all(), *help]

    def settings_kinds(self, ctx: click.Context) -> Mapping[str, type]:
        """The dataclasses that `--set` and `--config` fill, by their sections; none for most verbs."""
        return self.settings()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the line; an option that is a setting is answered with how it is set."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.removeprefix("--").removeprefix("no-").replace("-", "_")
            known = named_settings(self.settings_kinds(ctx))
            sets = [f"--set {each}=VALUE" for each in known if each.rpartition(".")[2] == name]
            meant = FORMER.get(error.option_name) or next(iter(sets), None)
            if meant is None:
                raise
            raise click.UsageError(f"No such option: {error.option_name}. It is {meant}.", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, in groups if there are some; options without a group come last."""
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        named = {name for names in self.groups.values() for name in names}
        groups = list((self.groups or {"Options": ()}).items())
        for at, (heading, names) in enumerate(groups):
            last = at == len(groups) - 1
            own = [each for name in names for each in options if each.name == name]
            own += [each for each in options if last and each.name not in named]
            with formatter.section(heading):
                formatter.write_dl([record for each in own if (record := each.get_help_record(ctx)) is not None])
        if self.settings is not dict:
            with formatter.section("Settings, by --set NAME=VALUE or as lines of --config FILE"):
                formatter.write_dl(listed_settings(str(self.name)))

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """The same in every context: click keeps the option of the first one."""
        return ["-h", "--help"]

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first sentence of the help, whole: a list of commands wraps it on a narrow terminal."""
        return super().get_short_help_str(limit=1_000)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        output = ctx.find_object(Output)
        if output is not None:
            output.gallery = ctx.params.get("gallery") or ""
            if output.log is not None:
                output.log.begin(ctx.command_path.partition(" ")[2], ctx.params)
        for name, options in self.requests.items():
            ctx.params[name] = options.collect(ctx.params)
        code = super().invoke(ctx)
        return ctx.exit(code) if code else None

    @cached_property
    def _generated(self) -> list[click.Option]:
        return [option for options in self.requests.values() for option in options.made()]


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
    requests: Mapping[str, Options] | None = None,
    kind: type[Verb] = Verb,
    groups: Mapping[str, Sequence[str]] | None = None,
    settings: Callable[[], Mapping[str, type]] = dict,
) -> Callable[[Callable[..., int | None]], Verb]:
    """Make a function a verb; its docstring is the help, and a number that it returns the exit code.

    Args:
        name: Of the verb.
        examples: One to three command lines, without the program's name, shown at the end of the help.
        requests: Its options made of dataclasses, see `Verb`.
        kind: The class of the command.
        groups: Of options in the help, see `Verb`.
        settings: See `Verb`.
    """

    def make(function: Callable[..., int | None]) -> Verb:
        made = click.command(name, cls=kind, epilog=shown_examples(examples))(function)
        made.groups, made.requests, made.settings = groups or {}, requests or {}, settings
        return made

    return make


VERSION = {"settings": Options("compatstore.cli.versions:VersionSettings")}  # of verbs that make an embedding version
gallery_argument = click.argument("gallery", type=click.Path())


def gallery_verb(name: str, *examples: str, **settings: Any) -> Callable[[Callable[..., int | None]], Verb]:
    """Make a function a verb of one gallery, or of several; its first arguments are the output and the address.

    Args:
        name: Of the verb.
        examples: See `verb`.
        settings: See `verb`.
    """

    def make(function: Callable[..., int | None]) -> Verb:
        return verb(name, examples=examples, **settings)(gallery_argument(pass_output(function)))

    return make


def trust_code_option(function: Function) -> Function:
    """`--trust-code`, and `--import` of modules that register names used by the gallery."""
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
        "--encoder",
        "given",
        metavar="[VERSION=]ENCODER",
        multiple=True,
        expose_value=False,
        callback=_note_encoders,
        help="A version's model, if the gallery cannot build it; without VERSION= that of TARGET. Repeatable.",
    )
    trust = click.option(
        "--trust-code", is_flag=True, help="Build encoders that the gallery names as Python code or as an address."
    )
    return trust(encoders(imports(function)))


def _note_encoders(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> None:
    """Keep the encoders that are named until a gallery is opened.

    Raises:
        UsageError: One names no version, and the verb has no target.
    """
    named = dict(_encoder_of(text) for text in given)
    takes_target = any(each.name == "target" for each in context.command.params)
    if None in named and not takes_target:
        raise click.UsageError(f"--encoder takes VERSION=ENCODER here, not {named[None]!r}.", context)
    context.meta[_ENCODERS] = named


def _encoder_of(text: str) -> tuple[str | None, str]:
    """(version, ENCODER); a name before the first "=" is that of a version unless it begins an ENCODER."""
    name, mark, spec = text.partition("=")
    return (name, spec) if mark and ":" not in name else (None, text)


def target_encoder() -> str | None:
    """ENCODER that the command line gives the target of an upgrade."""
    named: Mapping[str | None, str] = click.get_current_context().meta.get(_ENCODERS, {})
    return named.get(None)


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


def is_given(option: str) -> bool:
    """True if the command line names an option."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def settings_options(function: Function) -> Function:
    """`--set` and `--config`, for `read_settings`."""
    words = click.option(
        "--set", "words", metavar="NAME=VALUE", multiple=True, help="A setting, of those listed below; repeatable."
    )
    config = click.option("--config", metavar="FILE", help="TOML file of settings; --set and options go before it.")
    return words(config(function))


wait_option = click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for another process to finish its batch.",
)


def build_encoder(spec: str) -> cs.encoders.Encoder:
    """Build an encoder that the command line names; its Python code may lie in the working directory."""
    if spec.startswith("python:"):
        _import_from_here()
    return cs.encoders.from_spec(spec)


def _import_from_here() -> None:
    """Find modules in the working directory too, behind all that is installed: nothing there takes the place of it."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def open_gallery(gallery: str, *, trust_code: bool, target: str | None = None) -> cs.Gallery:
    """Open a gallery with the encoders that the command line names; Lance loads here and not before.

    Args:
        gallery: Its address.
        trust_code: Build encoders that it names as Python code or as an address.
        target: The version of an ENCODER that is given without one.
    """
    return cs.Gallery.open(gallery, encoders=named_encoders(trust_code, target), trust_code=trust_code)


def named_encoders(trust_code: bool, target: str | None) -> dict[str, cs.encoders.Encoder] | None:
    """The encoders that the command line names, by their versions; arguments as of `open_gallery`."""
    if trust_code:
        _import_from_here()
    context = click.get_current_context(silent=True)
    named = {} if context is None else context.meta.get(_ENCODERS, {})
    wanted = {name or target: spec for name, spec in named.items()}
    return {name: build_encoder(spec) for name, spec in wanted.items() if name is not None} or None
