"""The verb `completion`: the script by which a shell asks for completions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click
from click.shell_completion import get_completion_class

from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import verb
from compatstore.shown import Table

VARIABLE = "_COMPATSTORE_COMPLETE"  # of the environment: how a shell asks, by click's own scripts
SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Script:
    """What a shell reads to complete the program's words.

    Attributes:
        shell: Which one.
        script: Its text.
    """

    shell: str
    script: str


@verb(
    "completion",
    examples=(
        "completion bash > ~/.local/share/bash-completion/completions/compatstore",
        "completion zsh > ~/.zfunc/_compatstore",
        "completion fish > ~/.config/fish/completions/compatstore.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@pass_output
def completion(output: Output, shell: str) -> None:
    """Print the script that completes words in a shell.

    It completes verbs, options, and names that are in the gallery on the line: versions, columns, artifacts, tables. A
    new shell reads it where the examples write it. For the shell at hand: eval "$(compatstore completion bash)".
    """
    output.show(Script(shell, script_for(shell)), _script)


def script_for(shell: str) -> str:
    """The script of a shell, one of `SHELLS`."""
    made = get_completion_class(shell)
    assert made is not None
    return made(click.Command("compatstore"), {}, "compatstore", VARIABLE).source()


def _script(result: Script) -> Iterator[str | Table]:
    yield from result.script.splitlines()
