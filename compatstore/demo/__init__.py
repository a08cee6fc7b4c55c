"""The demo: a live gallery of handwritten digits moves from one embedding model to a better one.

scikit-learn and matplotlib load when `run_demo` is called.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from compatstore.boundary import checked_fields
from compatstore.demo.data import DemoDirectory
from compatstore.errors import InvalidInput, MissingExtra
from compatstore.evaluation import DecisionTable
from compatstore.trainers.settings import Count, at_least
from compatstore.trainers.training import one_thread

__all__ = ["DemoReport", "DemoSettings", "run_demo"]
Epochs = Annotated[int, at_least(2)]
NEEDED = ("torch", "torchvision", "accelerate", "pytorch_metric_learning", "sklearn", "matplotlib")


@checked_fields
@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Size of the models; the defaults are small enough for one core.

    Args:
        source_dim: Values of an embedding of the source model, >= 1.
        source_width: Channels of its first stage, >= 1.
        source_epochs: Passes over its training images, >= 2.
        target_dim: The same for the target model.
        target_width: The same for the target model.
        target_epochs: The same for the target model.
        side_dim: The same for the side-information model.
        side_width: The same for the side-information model.
        side_epochs: The same for the side-information model.
        transform_width: Width of the transform's mixer, >= 4; its branches have a quarter of it.
        transform_epochs: Passes over the pairs that the transform learns from, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    source_dim: Count = 8
    source_width: Count = 8
    source_epochs: Epochs = 15
    target_dim: Count = 32
    target_width: Count = 24
    target_epochs: Epochs = 25
    side_dim: Count = 32
    side_width: Count = 16
    side_epochs: Epochs = 40
    transform_width: Annotated[int, at_least(4)] = 512
    transform_epochs: Count = 150


@dataclass(frozen=True, kw_only=True)
class DemoReport:
    """Result of the demo.

    Args:
        decision: All ways to serve the gallery, as `evaluate` measured them before the upgrade.
        files: Report, picture and artifacts that it wrote.
        gallery: The gallery, which stays.
        items: Items in the gallery.
        queries: Images searched with; none of them is in the gallery.
        seed: Seed of everything.
        seconds: Time taken.
        next_commands: Commands that work on the gallery as it is left.
    """

    decision: DecisionTable
    files: tuple[Path, ...]
    gallery: Path
    items: int
    queries: int
    seed: int
    seconds: float
    next_commands: tuple[str, ...]


def run_demo(
    directory: str | Path,
    *,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    settings: DemoSettings | None = None,
) -> DemoReport:
    """Move a live gallery of real handwritten digits from one embedding model to a better one.

    Needs no network and no GPU, and took 1 to 2 minutes on a machine of two cores. All that it makes stays in
    `directory`: images, queries, the gallery, artifacts, a picture and the report; a demo that is stopped leaves
    nothing. The same seed repeats it on the same machine.

    Args:
        directory: A new or an empty folder.
        seed: Seed of split, training and order of the backfill, >= 0.
        say: Called with a line for each step.
        settings: Size of the models.

    Raises:
        MissingExtra: A library of the extra "demo" is not installed.
        InvalidInput: The seed is negative.
        AlreadyExists: The directory is a file, or holds an earlier demo or anything else; it is left as it is.
        StorageError: The directory cannot be made or written.
    """
    started = time.perf_counter()
    for package in NEEDED:
        if find_spec(package) is None:
            raise MissingExtra(package, "demo")
    if seed < 0:
        raise InvalidInput("run the demo", expected="seed >= 0", found=f"{seed}")
    place = DemoDirectory.prepare(directory)
    gallery = shlex.quote(str(place.gallery))
    with place.emptied_if_stopped(), one_thread():
        from compatstore.demo.story import tell_story

        digits, decision = tell_story(place, settings or DemoSettings(), seed, say or (lambda line: None))
        return DemoReport(
            decision=decision,
            files=place.files,
            gallery=place.gallery,
            items=len(digits.gallery),
            queries=len(digits.queries),
            seed=seed,
            seconds=time.perf_counter() - started,
            next_commands=(
                f"compatstore status {gallery}",
                f"compatstore search {gallery} --image {shlex.quote(str(digits.queries.paths[-1]))} -k 5",
                f"compatstore history {gallery}",
                f"compatstore rollback {gallery}",
            ),
        )
