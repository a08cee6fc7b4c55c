"""The demo from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from compatstore.cli import views
from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import verb

if TYPE_CHECKING:
    from click import Command


@verb("demo", example="demo compatstore-demo")
@click.argument("directory", default="compatstore-demo", type=click.Path(path_type=Path))
@click.option("--seed", default=0, show_default=True, help="Seed of training, split and order of the backfill.")
@pass_output
def demo(output: Output, directory: Path, seed: int) -> None:
    """Upgrade a gallery of real images.

    From training to cutover, without a network or a GPU, in less than a minute. The gallery, the artifacts, pictures
    and a report stay in DIRECTORY, which must be new or empty.
    """
    from compatstore.demo import run_demo

    output.show(run_demo(directory, seed=seed, say=output.note), views.demo)


VERBS: tuple[Command, ...] = (demo,)
