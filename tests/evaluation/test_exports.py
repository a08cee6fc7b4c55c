"""What the package offers, and what importing it costs."""

import subprocess
import sys

from compatstore import evaluation


def test_every_exported_name_is_documented():
    for name in evaluation.__all__:
        assert getattr(evaluation, name).__doc__, name


def test_measuring_loads_no_heavy_library():
    heavy = "{'torch', 'matplotlib', 'sklearn', 'timm', 'click'}"
    script = f"import sys, compatstore.evaluation; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
