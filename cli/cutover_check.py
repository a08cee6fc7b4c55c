"""The answer of `cutover --check`."""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.cli.exit_codes import exit_code
from compatstore.errors import RowsMissing


@dataclass(frozen=True)
class CutoverCheck:
    """Whether an upgrade can cut over.

    Attributes:
        target: Its target.
        missing: Items without a vector in it.
    """

    target: str
    missing: int

    @property
    def exit_code(self) -> int:
        """0, or that of the error with which the cutover would be refused."""
        return exit_code(RowsMissing("cut over")) if self.missing else 0
