"""The engine that a run's settings ask for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from compatstore.upgrade.engines.engine import Engine, LocalEngine
from compatstore.upgrade.engines.ray_engine import RayEngine
from compatstore.upgrade.requests.run_settings import RunSettings


def engine_of(settings: RunSettings) -> AbstractContextManager[Engine]:
    """The engine for a block.

    Raises:
        MissingExtra: Ray was asked for and is not installed.
    """
    if settings.engine == "local":
        return nullcontext(LocalEngine())
    on_gpu = settings.device is not None and settings.device != "cpu"
    return RayEngine(settings.address, settings.encoders or 1, settings.num_gpus, on_gpu)
