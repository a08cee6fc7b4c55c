"""Seeds of random draws: every draw has a domain of its own, so that no two of them choose the same items."""

from __future__ import annotations

from hashlib import blake2b

BACKFILL = (
    "backfill"  # keeps the seeds of earlier releases, so that a backfill that one of them began goes on as it was
)


def seed_of(domain: str, seed: int) -> int:
    """Make the seed of one draw.

    Args:
        domain: What is drawn: "backfill", "estimate", "report". Two draws of one domain are tied, of two domains not.
        seed: The caller's seed.

    Returns:
        A whole number in [0, 2^64).
    """
    if domain == BACKFILL:
        return (seed * 0x9E3779B97F4A7C15 + 1) % 2**64
    return int.from_bytes(blake2b(f"{domain}\0{seed}".encode(), digest_size=8).digest(), "little")
