"""What an examination of the environment says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One thing that was looked at.

    Attributes:
        topic: What it is.
        level: "ok"; "warning": something is slow, missing or may go wrong; "problem": something cannot work.
        what: What was found.
        fix: What to do about it; with "ok", how to have more.
    """

    topic: str
    level: Level
    what: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """All that was looked at, in order."""

    diagnoses: tuple[Diagnosis, ...]

    @property
    def fit(self) -> bool:
        """Whether there is no problem."""
        return all(diagnosis.level != "problem" for diagnosis in self.diagnoses)
