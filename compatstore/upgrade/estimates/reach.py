"""Whether the backfill that a target quality needs is within reach: only what can be embedded can become native."""

from __future__ import annotations

from compatstore.errors import GateFailed
from compatstore.evaluation import Estimate
from compatstore.evaluation.curve import native_count
from compatstore.storage.catalog import Catalog
from compatstore.storage.records import RunRecord
from compatstore.upgrade.backfilling.account import read_account
from compatstore.upgrade.backfilling.embeddable import ask_embeddable
from compatstore.upgrade.estimates.estimate import UpgradeEstimate
from compatstore.upgrade.estimates.gates import Gate


def gate_of_reach(catalog: Catalog, run: RunRecord, estimate: UpgradeEstimate) -> tuple[Gate, ...]:
    """The gate of a target quality whose backfill asks for more items than can be embedded; none where it does not."""
    registry, share = catalog.registry(), estimate.share
    refused = read_account(catalog, registry, run)[1]["id"].combine_chunks()
    possible, _ = ask_embeddable(catalog, registry, run, refused)
    if estimate.terms.target_quality is None or native_count(share, possible.items) <= possible.most:
        return ()
    name = f"a backfill of {possible.most / possible.items:.4g} at most, as {possible}"
    return (Gate(name=name, estimate=Estimate(value=share, low=share, high=share), passed=False),)


def require_within_reach(catalog: Catalog, run: RunRecord, estimate: UpgradeEstimate) -> None:
    """Refuse to promise a quality that the items which can be embedded cannot give.

    Raises:
        GateFailed: The backfill that the target quality needs asks for more items.
    """
    for gate in gate_of_reach(catalog, run, estimate):
        raise GateFailed(
            f"upgrade to {run.target} with a target quality of {estimate.terms.target_quality}",
            expected=gate.name,
            found=f"{estimate.share:.4g} needed",
            fix="Nothing was written. Ask for less quality, or name the backfill: --backfill.",
        )
