"""Fingerprints: digests of what decides an embedding, and the refusal of what belongs to another model."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from compatstore.errors import FingerprintMismatch


def fingerprint(**parts: Any) -> str:
    """Digest (32 hex digits) of JSON-able parts, independent of their order."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def require_fingerprint(asked: str, expected: str, found: str, fix: str = "") -> None:
    """Refuse what belongs to another model.

    Raises:
        FingerprintMismatch: `found` is not `expected`.
    """
    if expected != found:
        raise FingerprintMismatch(asked, expected=f"fingerprint {expected}", found=found, fix=fix)
