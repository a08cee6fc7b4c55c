"""What a wheel holds is what the tree holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]


def tree_modules():
    found = set()
    for folder in ("compatstore", "trainers", "cli"):
        for path in [path for suffix in ("py", "pyi") for path in (ROOT / folder).rglob(f"*.{suffix}")]:
            relative = path.relative_to(ROOT)
            if relative.parts[:2] in (("compatstore", "trainers"), ("compatstore", "cli")):
                continue
            found.add(str(relative if folder == "compatstore" else Path("compatstore", relative)))
    styles = {f"compatstore/report/{name}.css" for name in ("chart", "page")}
    data = {"compatstore/py.typed", "compatstore/report/judging.js", "compatstore/cli/settings.json"}
    return found | styles | data


def test_the_wheel_holds_the_tree(tmp_path):
    copy = tmp_path / "copy"
    ignore = shutil.ignore_patterns(".*", "tests", "docs", "benchmarks", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignore)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(copy)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == tree_modules()
    assert any(name.endswith("licenses/LICENSE") for name in names)
