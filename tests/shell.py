"""The program `compatstore`, run in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass

from click.testing import CliRunner

from compatstore.cli.app import app


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def invoke(*words):
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    return Run(result.exit_code, result.stdout, result.stderr)
