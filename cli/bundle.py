"""Options that belong together reach a verb as one mapping, to be handed on to the API as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def bundle(parameter: str, options: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    """A decorator that adds the options.

    Args:
        parameter: What the function gets them as, a mapping of their names to their values.
        options: Made by `click.option`.
    """

    def decorate(function: F) -> F:
        names = [made.name for made in _parameters(options)]

        @functools.wraps(function)
        def bundled(*arguments: Any, **given: Any) -> Any:
            return function(*arguments, **{parameter: {name: given.pop(name) for name in names}}, **given)

        decorated: Any = bundled
        for option in reversed(options):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def _parameters(options: Sequence[Callable[[Any], Any]]) -> list[click.Parameter]:
    """The parameters that decorators add, as click itself names them."""

    @click.command("bundle")
    def none() -> None: ...

    for option in reversed(options):
        option(none)
    return none.params
