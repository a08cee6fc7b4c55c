"""The demo from the outside: what is checked before it starts, and what is reported after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from compatstore.demo.directory import DemoDirectory
from compatstore.demo.report import DemoReport, next_commands, write_report
from compatstore.demo.settings import DemoSettings
from compatstore.errors import InvalidInput, MissingExtra
from compatstore.trainers.training import one_thread

NEEDED = ("torch", "torchvision", "accelerate", "pytorch_metric_learning", "sklearn", "matplotlib")


def run_demo(
    directory: str | Path,
    *,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    settings: DemoSettings | None = None,
) -> DemoReport:
    """Move a live gallery of real handwritten digits from one embedding model to a better one.

    Needs no network and no GPU, and took 1 to 2 minutes on a machine of two cores. All that it makes stays in
    `directory`: images, queries, the gallery, artifacts, two pictures and the report; a demo that is stopped leaves
    nothing. The same seed repeats it on the same machine.

    Args:
        directory: A new or an empty folder.
        seed: Of split, training and order of the backfill, >= 0.
        say: Told what happens, a line a step.
        settings: How large the models are.

    Raises:
        MissingExtra: A library of the extra "demo" is not installed.
        InvalidInput: The seed is negative.
        AlreadyExists: The directory is a file, or holds an earlier demo or anything else; it is left as it is.
        StorageError: The directory cannot be made or written.
    """
    started = time.perf_counter()
    _require_extra()
    if seed < 0:
        raise InvalidInput("run the demo", expected="seed >= 0", found=f"{seed}")
    place = DemoDirectory.prepare(directory)
    with place.emptied_if_stopped(), one_thread():
        from compatstore.demo.story import tell_story

        digits, rows = tell_story(place, settings or DemoSettings(), seed, say or _say_nothing)
        report = DemoReport(
            rows=rows,
            files=place.files,
            gallery=place.gallery,
            items=len(digits.gallery),
            queries=len(digits.queries),
            seed=seed,
            seconds=time.perf_counter() - started,
            next_commands=next_commands(place, digits.queries.paths[-1]),
        )
        write_report(report, place)
    return report


def _require_extra() -> None:
    for package in NEEDED:
        if find_spec(package) is None:
            raise MissingExtra(package, "demo")


def _say_nothing(_line: str) -> None:
    pass
