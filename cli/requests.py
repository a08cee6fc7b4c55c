"""The options by which a command line says what it asks of an upgrade, made of the dataclasses of the API."""

from __future__ import annotations

from compatstore.cli.settings import Earlier, Options
from compatstore.upgrade.requests.backfill import Backfill
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.run_settings import RunSettings

_ORDER = Earlier(flag="--policy")
_WRITE_MODE = Earlier(flag="--natives", values={"auto": "auto", "rows": "move_rows", "columns": "rewrite_columns"})


def of_upgrade() -> dict[str, Options]:
    """The options of `upgrade`."""
    return {**_of_plan(), "settings": Options(kind=RunSettings)}


def of_plan() -> dict[str, Options]:
    """The options of `plan`: what `upgrade` takes and a plan depends on."""
    return {**_of_plan(), "settings": Options(kind=RunSettings, only=["precision"])}


def of_evaluate() -> dict[str, Options]:
    """The options of `evaluate`."""
    return {
        "asked": Options(kind=Gates, only=["require", "max_negative_flips", "labels", "criterion", "sample"]),
        "backfill": Options(kind=Backfill, only=["order", "seed"], earlier={"order": _ORDER}),
    }


def of_report() -> dict[str, Options]:
    """The options of `report`."""
    return {"asked": Options(kind=Gates, only=["labels", "criterion"])}


def _of_plan() -> dict[str, Options]:
    earlier = {"order": _ORDER, "write_mode": _WRITE_MODE}
    return {
        "backfill": Options(kind=Backfill, flags={"share": "--backfill"}, earlier=earlier),
        "gates": Options(kind=Gates),
    }
