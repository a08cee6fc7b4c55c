"""Metrics of galleries and their upgrades for Prometheus: the figures of `status`, with labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from compatstore.errors import CompatStoreError, InvalidInput, MissingExtra
from compatstore.gallery import Gallery
from compatstore.upgrade.estimates.estimate import WaveMeasurement
from compatstore.upgrade.status import RunStatus, Status

try:
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra("prometheus_client", "metrics") from error

PREFIX = "compatstore"


class GalleryCollector(Collector):
    """Reads the status of galleries at each scrape; register it in an app's own registry.

    A gallery that cannot be read has `compatstore_up` 0 and no other metric.

    Args:
        galleries: One or more.

    Examples:
        >>> from prometheus_client import CollectorRegistry, generate_latest, start_http_server
        >>> from compatstore.integrations.prometheus import GalleryCollector
        >>> registry = CollectorRegistry()
        >>> registry.register(GalleryCollector(gallery))
        >>> b"compatstore_items{" in generate_latest(registry)
        True
    """

    def __init__(self, *galleries: Gallery) -> None:
        self._galleries = {gallery.status().gallery: gallery for gallery in galleries}

    def describe(self) -> Sequence[Metric]:
        """Return nothing: names are known when the galleries are read, not at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read all galleries."""
        families = _Families()
        for address, gallery in self._galleries.items():
            try:
                found = gallery.status()
            except CompatStoreError:
                families.add("up", "1 if the gallery can be read.", 0, gallery=address)
                continue
            _add_status(families, found, address)
        yield from families.made.values()


def exposition(*galleries: Gallery) -> str:
    """The metrics of galleries as text, in Prometheus' format.

    Examples:
        >>> from compatstore.integrations.prometheus import exposition
        >>> "# TYPE compatstore_items gauge" in exposition(gallery)
        True
    """
    registry = CollectorRegistry()
    registry.register(GalleryCollector(*galleries))
    return generate_latest(registry).decode()


@contextmanager
def listening(*galleries: Gallery, host: str = "localhost", port: int = 0) -> Iterator[int]:
    """Answer Prometheus from threads of its own, until the block is left.

    Args:
        galleries: One or more.
        host: Address that is listened at.
        port: Port, 0 for one that is free.

    Yields:
        The port.

    Raises:
        InvalidInput: The address cannot be listened at.

    Examples:
        >>> from compatstore.integrations.prometheus import listening
        >>> with listening(gallery) as port:
        ...     port > 0
        True
    """
    registry = CollectorRegistry()
    registry.register(GalleryCollector(*galleries))
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        operation, found = f"listen at {host}:{port}", f"{type(error).__name__}: {error}"
        raise InvalidInput(
            operation, expected="an address that is free", found=found, fix="Name another port."
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


class _Families:
    """Metrics by name, each with its samples."""

    def __init__(self) -> None:
        self.made: dict[str, GaugeMetricFamily] = {}

    def add(self, name: str, help: str, value: float, **labels: str) -> None:
        """Add a sample; all samples of a name have the same labels."""
        family = self.made.get(name)
        if family is None:
            family = self.made[name] = GaugeMetricFamily(f"{PREFIX}_{name}", help, labels=tuple(labels))
        family.add_metric(tuple(labels.values()), value)


def _add_status(families: _Families, status: Status, gallery: str) -> None:
    families.add("up", "1 if the gallery can be read.", 1, gallery=gallery)
    families.add("items", "Items of the gallery.", status.rows, gallery=gallery)
    families.add("table_version", "Lance's version number of the table.", status.table_version, gallery=gallery)
    for version in status.versions:
        labels = {"gallery": gallery, "version": version.name}
        active = version.name == status.active
        families.add("version_active", "1 if searches use the version.", active, **labels)
        for kind in ("native", "transformed", "bridged", "missing"):
            count = getattr(version, kind)
            families.add("version_items", "Items by their vector in a version.", count, **labels, kind=kind)
        if version.recall is not None:
            families.add("version_recall", "Recall@10 when the index was built.", version.recall, **labels)
    for run in status.upgrades:
        _add_run(families, run, {"gallery": gallery, "source": run.source, "target": run.target})


def _add_run(families: _Families, run: RunStatus, labels: dict[str, str]) -> None:
    now = run.activity
    info = {"state": run.state, "doing": now.doing, "step": now.step}
    families.add("upgrade_info", "State, activity and step of an upgrade.", 1, **labels, **info)
    for kind, rows in (("done", now.done), ("total", now.total)):
        families.add("upgrade_step_rows", "Rows of the present step in this call.", rows, **labels, kind=kind)
    expires = datetime.fromisoformat(now.expires).timestamp() if now.expires else None
    for name, help, value in (
        ("running", "1 if a worker is active.", now.doing == "running"),
        ("failed", "1 if its last work ended in an error.", now.doing == "failed"),
        ("rows_per_second", "Since the step began.", now.rate),
        ("eta_seconds", "Until the step ends at this rate.", now.eta),
        ("lease_expires_timestamp_seconds", "Unless it is renewed.", expires),
        ("staged_items", "Natives that are durable, but not in the table yet.", run.staged),
        ("unbackfillable_items", "Items that cannot be embedded.", run.unbackfillable),
        ("spent_rows", "Items that the backfill has embedded.", run.spent.rows),
        ("spent_seconds", "Seconds that the backfill has used.", run.spent.seconds),
        ("spent_cost", "Money that the backfill has used.", run.spent.cost),
    ):
        if value is not None:
            families.add(f"upgrade_{name}", help, value, **labels)
    if run.waves:
        _add_quality(families, run.waves[-1], labels)


def _add_quality(families: _Families, wave: WaveMeasurement, labels: dict[str, str]) -> None:
    """Figures of the last round of a self-training upgrade."""
    estimates = {"status quo": wave.status_quo, "served": wave.served, "gain": wave.gain}
    for of, estimate in estimates.items():
        for bound in ("value", "low", "high") if estimate is not None else ():
            value = getattr(estimate, bound)
            figure = {"figure": wave.criterion, "of": of, "bound": bound}
            help = "Figures of the last round, with their interval."
            families.add("upgrade_quality", help, value, **labels, **figure)
