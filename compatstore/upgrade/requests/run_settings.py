"""Execution of an upgrade: engine, device and precision; batches, retries and pace of the backfill."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from compatstore.artifacts.network import PrecisionRequest
from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput

EngineName = Literal["local", "ray"]


@checked_fields
@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Engine, device, precision, batches, retries and pace of an upgrade; none changes which items are embedded.

    Args:
        device: Device of the hop's network: cpu (the default) or cuda, which needs torch.
        precision: Precision of the hop: float32; bfloat16, which needs torch and is faster on processors that have it
            and slower on others; or auto, which tries both on rows of the gallery and takes bfloat16 where it is faster
            and the cosines with float32's vectors are at least 0.999.
        batch_rows: Items that go through the encoder at once. By default as many as take about 10 s, 1024 at most
            (1 s where the pace is held).
        retries: Further tries after the encoder raised, with growing waits. Then the batch is taken apart to find
            the items that are at fault.
        encoder_timeout: Seconds that the encoder may take for a batch before the run ends with an error.
        retry_unbackfillable: Retry items that could not be embedded before.
        throttle: Maximum items per second.
        latency_bound: Milliseconds of the app's search latency above which the backfill slows down.
        latency_file: File into which the app writes its search latency in milliseconds.
        engine: Engine that transforms fragments and embeds items: local, in this process; or ray, on a cluster,
            which needs the extra ray. The results are the same.
        address: Cluster to join with the engine ray: HOST:PORT, or auto for the one that runs on this machine. By
            default one is started here and ends with the upgrade.
        encoders: Actors of the engine ray that embed side by side, each with the model loaded once; 1 by default.
        num_gpus: GPUs that each of these actors takes (0 by default), and each task of a hop on cuda (1 by default).
        latency: Function that gives the latency in milliseconds, or None when it is not known.

    Raises:
        InvalidInput: A setting is out of its range, or a bound has no latency to look at.

    Examples:
        >>> night = cs.RunSettings(throttle=50.0, retries=5, encoder_timeout=120.0)
        >>> night.retries
        5
    """

    device: str | None = field(default=None, metadata={"unit": "DEVICE"})
    precision: PrecisionRequest = "float32"
    batch_rows: int | None = field(default=None, metadata={"unit": "ITEMS"})
    retries: int = field(default=3, metadata={"unit": "TRIES"})
    encoder_timeout: float | None = field(default=None, metadata={"unit": "SECONDS"})
    retry_unbackfillable: bool = False
    throttle: float | None = field(default=None, metadata={"unit": "ITEMS/S"})
    latency_bound: float | None = field(default=None, metadata={"unit": "MS"})
    latency_file: str | None = field(default=None, metadata={"unit": "FILE"})
    engine: EngineName = "local"
    address: str | None = field(default=None, metadata={"unit": "ADDRESS"})
    encoders: int | None = field(default=None, metadata={"unit": "ACTORS"})
    num_gpus: float | None = field(default=None, metadata={"unit": "GPUS"})
    latency: Callable[[], float | None] | None = None

    def __post_init__(self) -> None:
        self._require_engine()
        for name in ("batch_rows", "encoder_timeout", "throttle", "latency_bound"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidInput("set up a backfill", expected=f"{name} > 0", found=f"{value}")
        if self.retries < 0:
            raise InvalidInput("set up a backfill", expected="retries >= 0", found=f"{self.retries}")
        given = [source for source in (self.latency, self.latency_file) if source is not None]
        if len(given) != (self.latency_bound is not None):
            expected = "latency_bound with one of latency and latency_file"
            found = f"{'a' if self.latency_bound else 'no'} bound and {len(given)} sources of the latency"
            raise InvalidInput("slow a backfill down by latency", expected=expected, found=found)
        if self.latency_file is not None and read_latency(self.latency_file) is None:
            expected = "a file that holds a number of milliseconds"
            fix = "Let the app write one before the upgrade starts."
            raise InvalidInput("slow a backfill down by latency", expected=expected, found=self.latency_file, fix=fix)

    def _require_engine(self) -> None:
        """Refuse settings that the engine has no use for."""
        operation = "choose the engine of an upgrade"
        given = [name for name in ("address", "encoders", "num_gpus") if getattr(self, name) is not None]
        if given and self.engine != "ray":
            raise InvalidInput(operation, expected=f"the engine ray beside {given[0]}", found=self.engine)
        if self.encoders is not None and self.encoders < 1:
            raise InvalidInput(operation, expected="encoders >= 1", found=f"{self.encoders}")
        if self.num_gpus is not None and not 0 <= self.num_gpus < math.inf:
            raise InvalidInput(operation, expected="num_gpus >= 0", found=f"{self.num_gpus}")


def read_latency(path: str | Path) -> float | None:
    """The milliseconds that an app wrote into a file, or None while there is no number in it."""
    try:
        return float(Path(path).read_text())
    except (OSError, ValueError):
        return None
