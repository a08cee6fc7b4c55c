"""Each result that is shown has its view, whatever was imported before it."""

import json
import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import compatstore
from compatstore.shown import Shown

# One process for each would load Lance sixteen times.
PROGRAM = """
import importlib, json, os, sys
from compatstore.shown import view
for module, name in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        kind = getattr(importlib.import_module(module), name)
        view(kind.__new__(kind))
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(module, name)
"""


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="a process is forked")
def test_each_result_finds_its_view_by_itself():
    for part in ("evaluation", "search", "shards", "stores", "upgrade"):
        package = import_module(f"compatstore.{part}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    assert compatstore.convert
    kinds = [[kind.__module__, kind.__name__] for kind in Shown.__subclasses__() if "compatstore" in kind.__module__]
    assert len(kinds) > 12
    done = subprocess.run([sys.executable, "-c", PROGRAM, json.dumps(kinds)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
