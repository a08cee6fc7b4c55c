"""An app that uses its table through plain LanceDB notices nothing of an upgrade, and nothing of what it did is stale.

This is the short form of `python -m benchmarks plain_app`.
"""

from __future__ import annotations

import pytest

from tests.known.plain_app import measure

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return measure(tmp_path_factory.mktemp("app"), rows=1000, rate=50, seconds=3)


def test_an_app_sees_no_error_during_a_whole_upgrade(measured):
    assert [operation.error for operation in measured.app.operations if operation.error] == []


def test_an_app_searches_and_writes_in_every_phase(measured):
    for phase, operations in measured.phases().items():
        assert operations, phase
    during = measured.phases()["during"]
    assert {operation.name for operation in during} > {"search"}


def test_what_an_app_wrote_is_found_in_the_target_by_what_it_is_now(measured):
    assert measured.violations == []
    assert measured.app.written, "items were changed"
    assert measured.app.gone, "and deleted"
