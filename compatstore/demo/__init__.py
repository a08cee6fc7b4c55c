"""The demo: a live gallery of handwritten digits moves from one embedding model to a better one.

Light to import: torch, scikit-learn and matplotlib load when `run_demo` is called.
"""

from compatstore.demo.run import DemoReport, DemoSettings, run_demo

__all__ = ["DemoReport", "DemoSettings", "run_demo"]
