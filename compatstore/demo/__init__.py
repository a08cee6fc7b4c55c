"""The demo: a live gallery of handwritten digits moves from one embedding model to a better one.

Light to import: torch, scikit-learn and matplotlib load when `run_demo` is called.
"""

from compatstore.demo.report import DemoReport, DemoRow
from compatstore.demo.run import run_demo
from compatstore.demo.settings import DemoSettings

__all__ = ["DemoReport", "DemoRow", "DemoSettings", "run_demo"]
