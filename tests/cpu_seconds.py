"""CPU seconds of each test file: `pytest --cpu-seconds [FILES]` prints those that take most at the end of a run.

The seconds are those of the process that runs a test and of the child processes that ended meanwhile, fixtures
included: a fixture that several files share counts for the first one that uses it.
"""

from __future__ import annotations

import resource
from collections import defaultdict

import pytest

PROPERTY = "cpu_seconds"
SECONDS = pytest.StashKey[float]()


def pytest_addoption(parser):
    parser.addoption(
        "--cpu-seconds",
        nargs="?",
        type=int,
        const=10_000,
        default=0,
        metavar="FILES",
        help="print the CPU seconds of the FILES test files that take most, by default of all",
    )


def cpu_seconds():
    """CPU seconds of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def pytest_collection_finish(session):
    session.stash[SECONDS] = cpu_seconds()  # what the first test's set-up takes counts from here


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    now = cpu_seconds()
    before = item.session.stash[SECONDS]
    item.session.stash[SECONDS] = now
    report.user_properties = [*report.user_properties, (f"{PROPERTY} of {call.when}", now - before)]
    return report


def pytest_terminal_summary(terminalreporter, config):
    files = config.getoption("--cpu-seconds")
    if not files:
        return
    seconds = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == f"{PROPERTY} of {getattr(report, 'when', '')}":
                    seconds[report.nodeid.partition("::")[0]] += value
    terminalreporter.section(f"CPU seconds: {sum(seconds.values()):.0f} in {len(seconds)} files")
    for path, value in sorted(seconds.items(), key=lambda entry: -entry[1])[:files]:
        terminalreporter.write_line(f"{value:8.1f}  {path}")
