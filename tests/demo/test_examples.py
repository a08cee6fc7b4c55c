import re
import runpy
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_first_example_shows_the_life_of_an_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runpy.run_path(str(EXAMPLES / "01_upgrade.py"))
    printed = capsys.readouterr().out
    first = [float(value) for value in re.findall(r"CMC-1 (\S+)", printed)]
    assert len(first) == 4
    assert first[-1] > first[0]
    assert "plan: expand, hop, backfill, catch-up, cutover" in printed
    assert "active=v2 items=800" in printed
