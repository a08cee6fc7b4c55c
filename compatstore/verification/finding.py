"""What a verification finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        check: Name of the check that found it.
        severity: "error": results are wrong or something cannot be read; "warning": something is incomplete, stale or
            slow; "note": harmless.
        what: What was found, and where.
        repair: What to do about it, a command where there is one.
    """

    check: str
    severity: Severity
    what: str
    repair: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was found in a gallery, as of one table version.

    Attributes:
        gallery: Its address.
        table_version: Lance's version number of the table.
        rows: Items.
        checks: Names of the checks that were made.
        findings: What they found, in their order.
    """

    gallery: str
    table_version: int
    rows: int
    checks: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing was found but notes."""
        return all(finding.severity == "note" for finding in self.findings)
