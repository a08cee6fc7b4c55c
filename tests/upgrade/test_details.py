"""What a report tells query by query: changes, neighbours, groups, and predicted errors."""

from __future__ import annotations

import numpy as np
import pytest
from digit_galleries import DIGITS, IDS, LABELS, gallery_of

import compatstore as cs
from compatstore.report.files import to_page

NOISY = DIGITS[:, ::3] + np.random.default_rng(0).normal(0, 3, (len(DIGITS), 22)).astype(np.float32)
ITEMS = 500


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    made = gallery_of(tmp_path_factory.mktemp("details"), NOISY[:ITEMS], DIGITS[:ITEMS])
    made.upgrade("v2", backfill=0.2)
    return made


def told(gallery, details=None, **asked):
    return gallery.report("v2", **{"sample": 300, "labels": "digit", **asked}, details=details or cs.Details())


@pytest.mark.full
def test_nothing_is_told_unless_it_is_asked_for(gallery):
    before = gallery.status().table_version
    assert told(gallery).details is not None
    assert gallery.report("v2", sample=300, labels="digit").details is None
    assert gallery.status().table_version == before


@pytest.mark.full
def test_the_queries_that_changed_most_come_first(gallery):
    report = told(gallery, cs.Details(worst=4, best=3))
    changes = report.details.changes
    assert changes.risen + changes.fallen + changes.same == report.measured.num_queries
    falls = [change.after - change.before for change in changes.worst]
    rises = [change.after - change.before for change in changes.best]
    assert falls == sorted(falls)
    assert rises == sorted(rises, reverse=True)
    assert (len(falls), len(rises)) == (4, 3)
    assert max(falls) < 0 < min(rises)
    every = told(gallery, cs.Details(worst=50, best=50)).details.changes
    assert every.worst[:4] == changes.worst
    whole = (*every.worst, *every.best)
    assert len({change.query.id for change in whole}) == len(whole)


@pytest.mark.full
def test_neighbours_are_what_searches_of_the_whole_gallery_find(gallery):
    changes = told(gallery, cs.Details(worst=2, best=2, neighbours=7)).details.changes
    for change in (*changes.worst, *changes.best):
        place = IDS.index(change.query.id)
        assert change.query.label == str(LABELS[place])
        for found, version, vector in (
            (change.found_before, "v1", NOISY[place]),
            (change.found_after, "v2", DIGITS[place]),
        ):
            near = gallery.search(vector, k=8, version=version, columns=["id"])["id"].to_pylist()
            assert [item.id for item in found] == [item for item in near if item != change.query.id][:7]
            assert [item.correct for item in found] == [item.label == change.query.label for item in found]


@pytest.mark.full
def test_groups_add_up_to_all_queries(gallery):
    report = told(gallery)
    groups = report.details.groups
    assert (groups.column, groups.others, groups.small) == ("digit", 0, 0)
    assert sum(group.queries for group in groups.groups) == report.measured.num_queries
    mean = sum(group.gain.value * group.queries for group in groups.groups) / report.measured.num_queries
    assert mean == pytest.approx(groups.gain) == pytest.approx(report.measured.row("t/h").gains["map"].value)
    gains = [group.gain.value for group in groups.groups]
    assert gains == sorted(gains)
    for group in groups.groups:
        assert group.after - group.before == pytest.approx(group.gain.value)
        assert group.gain.low <= group.gain.value <= group.gain.high


@pytest.mark.full
def test_a_column_of_as_many_values_as_items_has_no_groups(gallery):
    assert told(gallery, cs.Details(by="id")).details.groups is None


@pytest.mark.parametrize("named", [{"by": "nowhere"}, {"caption": "digit'; --"}])
def test_a_column_that_is_not_there_is_refused_before_anything_is_measured(gallery, named):
    with pytest.raises(cs.errors.InvalidInput, match="a column of id, "):
        told(gallery, cs.Details(**named))


@pytest.mark.parametrize("wrong", [{"worst": -1}, {"best": 51}, {"neighbours": 0}, {"neighbours": 21}])
def test_a_number_out_of_range_is_refused(wrong):
    with pytest.raises(cs.errors.InvalidInput, match="from "):
        cs.Details(**wrong)


@pytest.mark.full
def test_none_may_be_shown(gallery):
    changes = told(gallery, cs.Details(worst=0, best=0)).details.changes
    assert (changes.worst, changes.best) == ((), ())


def test_without_labels_neighbours_have_no_verdict(gallery):
    details = told(gallery, labels=None).details
    assert details.groups is None
    assert all(item.correct is None for change in details.changes.worst for item in change.found_after)


def test_an_app_s_own_queries_are_shown_as_they_were_asked(gallery):
    asked = [f"query {number}" for number in range(60)]
    rows = np.arange(60)
    queries = cs.Queries(
        queries={"id": asked, "source": NOISY[rows], "target": DIGITS[rows]},
        qrels={name: {IDS[row]: 1} for name, row in zip(asked, rows, strict=True)},
    )
    details = told(gallery, labels=queries).details
    shown = (*details.changes.worst, *details.changes.best)
    assert shown
    assert all(change.query.id in asked for change in shown)
    for change in shown:  # a query that is no item finds the item of the same vector
        assert change.found_after[0].id == IDS[int(change.query.id.removeprefix("query "))] or change.after < 1
    assert details.groups is None


@pytest.mark.full
def test_neighbours_of_judged_queries_say_what_was_judged(gallery):
    rows, asked = np.arange(60), [f"query {number}" for number in range(60)]
    judged = {
        name: {IDS[other]: int(LABELS[other] == LABELS[row]) for other in range(ITEMS // 2)}
        for name, row in zip(asked, rows, strict=True)
    }
    queries = cs.Queries(queries={"id": asked, "source": NOISY[rows], "target": DIGITS[rows]}, qrels=judged)
    report = told(gallery, cs.Details(neighbours=20), labels=queries)
    verdicts = set()
    for change in (*report.details.changes.worst, *report.details.changes.best):
        for item in (*change.found_before, *change.found_after):
            grade = judged[change.query.id].get(item.id)
            assert item.correct is (None if grade is None else grade > 0)
            verdicts.add(item.correct)
    assert verdicts == {True, False, None}
    assert to_page(report).count("\N{CHECK MARK}") > 1


@pytest.mark.full
def test_a_gallery_that_is_served_by_both_versions_is_searched_by_both(tmp_path):
    gallery = gallery_of(tmp_path, NOISY[:ITEMS], DIGITS[:ITEMS])
    gallery.upgrade("v2", backfill=0.2)
    gallery.evaluate("v2", weight=0.5)
    changes = told(gallery, cs.Details(worst=2, best=2)).details.changes
    for change in (*changes.worst, *changes.best):
        place = IDS.index(change.query.id)
        both = gallery.search({"v1": NOISY[place], "v2": DIGITS[place]}, k=6, columns=["id"])["id"].to_pylist()
        assert [item.id for item in change.found_after] == [item for item in both if item != change.query.id][:5]


@pytest.mark.full
def test_after_the_source_is_retired_there_is_nothing_to_compare(tmp_path):
    gallery = gallery_of(tmp_path, NOISY[:ITEMS], DIGITS[:ITEMS])
    gallery.upgrade("v2", backfill=0.2)
    gallery.cutover("v2")
    gallery.retire("v1")
    assert told(gallery).details == type(told(gallery).details)(changes=None, groups=None)
