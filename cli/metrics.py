"""The verb for monitoring: metrics, printed once or served to Prometheus."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from compatstore.cli.output import Output, pass_output
from compatstore.cli.verb import open_gallery, verb
from compatstore.errors import InvalidInput

if TYPE_CHECKING:
    from compatstore.gallery import Gallery


@verb(
    "metrics",
    examples=(
        "metrics photos.lance",
        "metrics photos.lance texts.lance --listen 9464",
        "metrics photos.lance --listen 0.0.0.0:9464",
    ),
)
@click.argument("galleries", metavar="GALLERY...", nargs=-1, required=True)
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    help="Answer Prometheus at http://HOST:PORT/metrics until stopped; each answer is of a new look. HOST is "
    "localhost by default.",
)
@pass_output
def metrics(output: Output, galleries: tuple[str, ...], listen: str | None) -> None:
    """Print items, versions and upgrades as metrics for Prometheus.

    The names begin with compatstore_. A gallery that cannot be read any more has compatstore_up 0.
    """
    opened = [open_gallery(gallery, trust_code=False) for gallery in galleries]
    if listen is None:
        from compatstore.integrations.prometheus import exposition

        text = exposition(*opened)
        output.show(_samples(opened) if output.as_json else text, lambda _: text.splitlines())
        return
    host, port = _address(listen)
    _serve(opened, host, port, output)


def _samples(galleries: list[Gallery]) -> list[dict[str, object]]:
    from compatstore.integrations.prometheus import GalleryCollector

    return [
        {"name": sample.name, "labels": sample.labels, "value": sample.value}
        for family in GalleryCollector(*galleries).collect()
        for sample in family.samples
    ]


def _serve(galleries: list[Gallery], host: str, port: int, output: Output) -> None:
    from compatstore.integrations.prometheus import listening

    with listening(*galleries, host=host, port=port) as taken:
        output.note(f"metrics at http://{host}:{taken}/metrics; Ctrl-C ends")
        while True:
            time.sleep(3600)


def _address(listen: str) -> tuple[str, int]:
    """Host and port of an option's value."""
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise InvalidInput("listen", expected="[HOST:]PORT with a port from 0 to 65535", found=repr(listen))
    return host or "localhost", int(port)
