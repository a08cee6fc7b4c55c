"""Blind comparisons of an upgrade's versions: which lists are compared, what is drawn, and what answers come to."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shutil
from dataclasses import replace
from urllib.parse import unquote

import numpy as np
import pytest
from two_spaces import ASKING, IDS, World

import compatstore as cs
from compatstore.errors import InvalidInput, NotFound, UpgradeError
from compatstore.trainers import Pairs, Ridge
from compatstore.upgrade.estimates.side_by_side import preference_of

TEXTS = {"id": ASKING, "text": ASKING}
NAME = re.compile(r'data-query="([^"]*)"')


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture(scope="module")
def upgraded(world, tmp_path_factory):
    path = tmp_path_factory.mktemp("upgraded") / "g.lance"
    world.gallery(path).upgrade("v2", backfill=0.3)
    return path


@pytest.fixture
def gallery(world, upgraded, tmp_path):
    path = shutil.copytree(upgraded, tmp_path / "g.lance")
    return cs.Gallery.open(path, encoders=world.encoders())


def found(gallery, world, name, version):
    """Ids that a query finds in one version, by a search of its own."""
    row = world.names.index(name)
    query = {"v1": world.v1[row], "v2": world.v2[row]}[version]
    return gallery.search({version: query}, k=10, columns=["id"])["id"].to_pylist()


def ids(items):
    return [item.id for item in items]


def answer_all(gallery, world, judging, preferred="v2", cases=None):
    """Prefer one version in every case, as someone who knows which list is whose."""
    for case in judging.cases if cases is None else cases:
        left = ids(case.left) == found(gallery, world, case.query.id, preferred)
        judging.answer(case, "left" if left else "right")


def history(gallery):
    return [entry for entry in gallery.maintenance.history() if entry.step == "judge"]


def stored(gallery):
    return preference_of(gallery._catalog, "v2")


def test_both_lists_are_what_searches_of_each_version_find(gallery, world):
    judging = gallery.judge("v2", TEXTS, num=30)
    assert len(judging.cases) == 30
    sides = set()
    for case in judging.cases:
        v1, v2 = (found(gallery, world, case.query.id, version) for version in ("v1", "v2"))
        assert v1 != v2
        assert (ids(case.left), ids(case.right)) in ((v1, v2), (v2, v1))
        assert case.query.source == case.query.id
        sides.add(ids(case.left) == v2)
    assert sides == {True, False}
    assert [item.label for item in judging.cases[0].left] == [
        str(world.labels[IDS.index(item.id)]) for item in judging.cases[0].left
    ]


def test_the_target_is_searched_as_it_is_served(gallery, world):
    gallery.evaluate("v2", weight=0.5)
    row = world.names.index(ASKING[0])
    vectors = {"v1": world.v1[row], "v2": world.v2[row]}
    fused = gallery.search(vectors, k=10, columns=["id"], serving="fused")["id"].to_pylist()
    (case,) = gallery.judge("v2", {"id": ["q"], **{name: value[None] for name, value in vectors.items()}}).cases
    assert sorted([ids(case.left), ids(case.right)]) == sorted([found(gallery, world, ASKING[0], "v1"), fused])
    assert case.query.id == "q"


def test_an_item_does_not_find_itself(gallery):
    judging = gallery.judge("v2", {"id": ["a", "b", "c"], "item": IDS[:3]})
    own = dict(zip("abc", IDS, strict=False))
    assert judging.cases
    for case in judging.cases:
        assert own[case.query.id] not in ids(case.left) + ids(case.right)
        assert case.query.label
        assert len(case.left) == len(case.right) == 10


def test_cases_are_a_random_draw_in_rounds_of_falling_disagreement(gallery):
    every = {case.query.id: case for case in gallery.judge("v2", TEXTS, num=1_000).cases}
    judging = gallery.judge("v2", TEXTS, num=35)
    again = gallery.judge("v2", TEXTS, num=35)
    other = gallery.judge("v2", TEXTS, num=35, seed=1)
    assert judging.cases == again.cases
    names, others = ([case.query.id for case in each.cases] for each in (judging, other))
    assert set(names) != set(others)
    assert {*names, *others} <= every.keys()
    swapped = [case for case in other.cases if case.left != every[case.query.id].left]
    assert 0 < len(swapped) < len(others)
    common = [len({*ids(case.left)} & {*ids(case.right)}) for case in judging.cases]
    for start in range(0, len(common), 10):
        assert common[start : start + 10] == sorted(common[start : start + 10])


def test_answers_of_an_early_stop_stand_for_all_that_differ(gallery):
    """What a judge prefers depends on how much two lists differ; 50 judges answer 25 of 40 cases each."""
    every = gallery.judge("v2", TEXTS, num=1_000)
    random = np.random.default_rng(0)
    common = {case.query.id: len({*ids(case.left)} & {*ids(case.right)}) for case in every.cases}
    median = np.median(list(common.values()))
    taste = {name: random.random() < (0.8 if value <= median else 0.3) for name, value in common.items()}
    truth, covered = np.mean(list(taste.values())), 0
    compared = every._found
    for seed in range(50):
        wins = [taste[name] for name in compared.draw(40, seed)[:25]]
        counts = {"target_wins": sum(wins), "source_wins": 25 - sum(wins), "same": 0}
        preference = cs.evaluation.Preference(
            source="v1", target="v2", queries=len(ASKING), differing=len(common), **counts
        )
        covered += preference.win_rate.low <= truth <= preference.win_rate.high
    assert len(common) > 40
    assert covered >= 45


def test_answers_are_stored_and_read_back_with_their_interval(gallery, world):
    assert stored(gallery) is None
    before = gallery.status().table_version
    judging = gallery.judge("v2", TEXTS, num=40)
    assert gallery.status().table_version == before
    answer_all(gallery, world, judging)
    preference = judging.save()
    assert (preference.target_wins, preference.source_wins, preference.same) == (40, 0, 0)
    assert (preference.source, preference.target, preference.better) == ("v1", "v2", "v2")
    differing = sum(found(gallery, world, name, "v1") != found(gallery, world, name, "v2") for name in ASKING)
    assert (preference.queries, preference.differing) == (len(ASKING), differing)
    assert stored(cs.Gallery.open(gallery._catalog.store.location.uri)) == preference
    (entry,) = history(gallery)
    assert entry.note == str(preference)


def test_later_answers_replace_earlier_ones_until_the_upgrade_ends(gallery, world):
    judging = gallery.judge("v2", TEXTS, num=20)
    answer_all(gallery, world, judging, "v1")
    assert judging.save().source_wins == 20
    again = gallery.judge("v2", TEXTS, num=20)
    assert again.answered == {case.query.id for case in again.cases}
    again.save()
    assert len(history(gallery)) == 1, "nothing new is stored"
    for case in again.cases[:15]:
        again.answer(case, "same")
    again.save()
    assert (stored(gallery).source_wins, stored(gallery).same, stored(gallery).answered) == (5, 15, 20)
    other = gallery.judge("v2", {"id": ASKING[:30], "text": ASKING[:30]})
    assert not other.answered
    answer_all(gallery, world, other)
    other.save()
    assert (stored(gallery).source_wins, stored(gallery).queries) == (0, 30), "answers to other queries do not count"
    gallery.abort("v2")
    assert stored(gallery) is None
    gallery.upgrade("v2", backfill=0.3)
    assert stored(gallery) is None
    assert not gallery.judge("v2", TEXTS).answered


def test_answers_stay_while_the_lists_change_but_are_asked_for_again(gallery, world):
    judging = gallery.judge("v2", TEXTS, num=10)
    answer_all(gallery, world, judging)
    judging.save()
    gallery.upgrade("v2", backfill=0.6)
    assert not gallery.judge("v2", TEXTS, num=10).answered
    assert stored(gallery).answered == 10


def test_clicks_prefer_the_list_that_ranks_them_higher(gallery, world):
    clicks, expected = {}, {}
    for place, name in enumerate(ASKING):
        v1, v2 = (found(gallery, world, name, version) for version in ("v1", "v2"))
        item, count = [(v2[0], 3), (v1[1], 2), ("nothing", 1), (v2[5], 0)][place % 4]
        clicks[name] = {item: count, "lost": 1}
        ranks = [1 / (each.index(item) + 1) if item in each else 0.0 for each in (v1, v2)]
        if v1 != v2 and any(ranks) and count > 0:
            expected[name] = "same" if ranks[0] == ranks[1] else ("source", "target")[ranks[1] > ranks[0]]
    judging = gallery.judge("v2", TEXTS, num=1)
    judging.from_clicks(clicks)
    assert judging.answered == expected.keys()
    preference = judging.save()
    counts = [list(expected.values()).count(each) for each in ("target", "source", "same")]
    assert [preference.target_wins, preference.source_wins, preference.same] == counts
    assert min(counts[:2]) > 0


def test_clicks_weigh_by_their_number(gallery, world):
    name = ASKING[0]
    v1, v2 = (found(gallery, world, name, version) for version in ("v1", "v2"))
    first, other = (next(item for item in a if item not in b) for a, b in ((v1, v2), (v2, v1)))
    ranks = v1.index(first) + 1, v2.index(other) + 1
    for counts in ((9 * ranks[0], ranks[1]), (ranks[0], 9 * ranks[1]), (ranks[0], ranks[1])):
        judging = gallery.judge("v2", TEXTS)
        judging.from_clicks({name: {first: counts[0], other: counts[1]}})
        expected = "same" if counts == ranks else "source" if counts[0] > counts[1] else "target"
        preference = judging.save()
        assert {"target": preference.target_wins, "source": preference.source_wins, "same": preference.same}[
            expected
        ] == 1


def page_of(judging, path):
    """The digest of a page, and the ids of its queries in their order."""
    judging.page(path)
    text = path.read_text(encoding="utf-8")
    return re.search(r'data-digest="(\w+)"', text)[1], [unquote(html.unescape(name)) for name in NAME.findall(text)]


def test_answers_of_a_page_are_read_by_another_process(gallery, world, tmp_path):
    judging = gallery.judge("v2", TEXTS, num=20)
    digest, names = page_of(judging, tmp_path / "page.html")
    assert names == [case.query.id for case in judging.cases]
    answer_all(gallery, world, judging)
    sides = {
        case.query.id: "left" if ids(case.left) == found(gallery, world, case.query.id, "v2") else "right"
        for case in judging.cases
    }
    (tmp_path / "answers.json").write_text(json.dumps({"digest": digest, "answers": sides | {"no such query": "left"}}))
    other = cs.Gallery.open(gallery._catalog.store.location.uri, encoders=world.encoders()).judge("v2", TEXTS, num=5)
    other.load(tmp_path / "answers.json")
    preference = other.save()
    assert (preference.target_wins, preference.answered) == (20, 20)


def test_a_page_names_no_version_and_escapes_what_the_gallery_holds(world, tmp_path):
    attack = "<script>alert(1)</script>\"'&\u202e%22__proto__"
    names = [f"{attack} {name}" for name in ASKING]
    gallery = world.gallery(tmp_path / "g.lance")
    gallery.upgrade("v2")
    vectors = {"v1": world.v1[world.queries], "v2": world.v2[world.queries]}
    judging = gallery.judge("v2", {"id": names, **vectors}, num=10)
    digest, shown = page_of(judging, tmp_path / "page.html")
    assert shown == [case.query.id for case in judging.cases]
    assert {*shown} <= {*names}
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    body = text[text.index("<body") :]
    assert text.count("<script") == 1
    assert "alert(1)" in body
    assert not re.search(r"\bv[12]\b|source|target", body[: body.index("<script")])
    (tmp_path / "answers.json").write_text(json.dumps({"digest": digest, "answers": dict.fromkeys(shown, "same")}))
    judging.load(tmp_path / "answers.json")
    assert judging.save().same == 10


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("no json", "no JSON"),
        ("[]", "not an object"),
        ('{"digest": "DIGEST"}', "answers"),
        ('{"digest": "DIGEST", "answers": {"query-001": "better"}}', "left, right or same"),
        ('{"digest": "other", "answers": {}}', "answers of another comparison"),
    ],
)
def test_a_wrong_file_of_answers_is_refused(gallery, tmp_path, answers, said):
    judging = gallery.judge("v2", TEXTS)
    digest, _ = page_of(judging, tmp_path / "page.html")
    (tmp_path / "answers.json").write_text(answers.replace("DIGEST", digest))
    with pytest.raises(InvalidInput, match=said):
        judging.load(tmp_path / "answers.json")
    assert not judging.answered


def test_answers_of_another_seed_target_or_queries_are_refused(gallery, tmp_path):
    digest, names = page_of(gallery.judge("v2", TEXTS), tmp_path / "page.html")
    (tmp_path / "a.json").write_text(json.dumps({"digest": digest, "answers": dict.fromkeys(names, "left")}))
    for judging in (
        gallery.judge("v2", TEXTS, seed=1),
        gallery.judge("v2", {"id": ASKING[:50], "text": ASKING[:50]}),
    ):
        with pytest.raises(InvalidInput, match="another comparison"):
            judging.load(tmp_path / "a.json")
    with pytest.raises(NotFound):
        gallery.judge("v2", TEXTS).load(tmp_path / "gone.json")


def test_what_cannot_be_judged_says_why(world, tmp_path):
    gallery = world.gallery(tmp_path / "g.lance")
    with pytest.raises(UpgradeError, match="an upgrade under way; found none"):
        gallery.judge("v2", TEXTS)
    with pytest.raises(NotFound):
        gallery.judge("v9", TEXTS)
    gallery.upgrade("v2")
    for wrong in ({"num": 0}, {"num": "many"}, {"seed": None}):
        with pytest.raises(InvalidInput):
            gallery.judge("v2", TEXTS, **wrong)
    with pytest.raises(InvalidInput, match="one of text, path and item"):
        gallery.judge("v2", {"id": ["a"]})
    with pytest.raises(NotFound):
        gallery.judge("v2", tmp_path / "gone.jsonl")
    judging = gallery.judge("v2", TEXTS)
    with pytest.raises(InvalidInput, match="at least one answer"):
        judging.save()
    with pytest.raises(InvalidInput, match="answer"):
        judging.answer(judging.cases[0], "both")
    case = judging.cases[0]
    with pytest.raises(InvalidInput, match="one of the cases of this comparison"):
        judging.answer(replace(case, left=case.right, right=case.left), "left")
    with pytest.raises(InvalidInput, match="a click on an item of either top 10"):
        judging.from_clicks({"query-001": {"nothing": 4}})
    assert not judging.answered
    assert history(gallery) == []


def test_a_target_without_vectors_is_not_judged(world, tmp_path):
    gallery = world.gallery(tmp_path / "g.lance")
    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade("v2", should_stop=lambda: True)
    with pytest.raises(UpgradeError, match="items with a vector in v2; found none"):
        gallery.judge("v2", TEXTS)


def test_two_versions_that_find_the_same_leave_nothing_to_judge(world, tmp_path):
    v1 = cs.EmbeddingVersion("v1", dim=10, metric="l2", model="one")
    v2 = cs.EmbeddingVersion("v2", dim=10, metric="l2", model="other")
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), v1)
    gallery.add({"id": IDS, "vector": world.v1[world.items]})
    gallery.register(v2)
    rotated = np.linalg.qr(np.random.default_rng(0).normal(size=(10, 10)))[0].astype(np.float32)
    pairs = Pairs(world.v1[world.pairs], world.v1[world.pairs] @ rotated, source_version=v1, target_version=v2)
    gallery.artifacts.link(Ridge(penalties=(1e-9,)).fit(pairs))
    gallery.upgrade("v2")
    queries = world.v1[world.queries]
    with pytest.raises(UpgradeError, match="the top 10 of all 120 queries are the same in both versions"):
        gallery.judge("v2", {"id": ASKING, "v1": queries, "v2": queries @ rotated})


def test_the_upgrade_that_ended_meanwhile_takes_no_answers(gallery):
    judging = gallery.judge("v2", TEXTS)
    judging.answer(judging.cases[0], "left")
    gallery.abort("v2")
    with pytest.raises(cs.errors.Interrupted):
        judging.save()
    assert history(gallery) == []


def test_after_a_cutover_both_versions_are_compared_as_before(gallery, world):
    before = gallery.judge("v2", TEXTS, num=20).cases
    gallery.cutover("v2")
    assert gallery.judge("v2", TEXTS, num=20).cases == before


def test_async_apps_judge_too(gallery):
    judging = asyncio.run(gallery.aio.judge("v2", TEXTS, num=3))
    assert len(judging.cases) == 3
