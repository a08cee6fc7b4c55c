"""The app's own queries decide on an upgrade: questions that are no items, with judgements of what is correct."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from two_spaces import ASKING, IDS, ITEMS, World

import compatstore as cs
from compatstore.errors import GateFailed, InvalidInput, UpgradeError
from compatstore.evaluation import Judgements
from compatstore.evaluation.distances import measure
from compatstore.evaluation.relevance import relevance_from_judgements
from compatstore.evaluation.sampled import find_in_galleries
from compatstore.trainers import Pairs, Ridge
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.sample import draw_sample

ALL = {"cmc@1", "cmc@5", "recall@10", "ndcg@10", "mrr@10", "map"}


def judged(world, most=2):
    """For each query the first items of its class, worth 2, 1, ..."""
    correct = {}
    for name, label in zip(ASKING, world.asked, strict=True):
        own = [item for item, other in zip(IDS, world.labels, strict=True) if other == label][:most]
        correct[name] = {item: len(own) - rank for rank, item in enumerate(own)}
    return correct


def texts(world, **more):
    return cs.Queries(queries={"id": ASKING, "text": ASKING}, qrels=judged(world), **more)


def vectors(world, names=("v1", "v2"), **changed):
    given = dict(zip(names, (world.v1[world.queries], world.v2[world.queries]), strict=True))
    return cs.Queries(queries={"id": ASKING, **given, **changed}, qrels=judged(world))


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture
def gallery(world, tmp_path):
    return world.gallery(tmp_path / "g.lance")


def brute(world, space, metric):
    """Figures of the queries in a space, by the same judgements."""
    grades = judged(world)
    pairs = [(row, IDS.index(item), grade) for row, q in enumerate(ASKING) for item, grade in grades[q].items()]
    rows, items, gains = zip(*pairs, strict=True)
    relevance = relevance_from_judgements(
        Judgements(queries=rows, items=items, gains=gains), len(ASKING), ITEMS, gallery_ids=IDS, depth=10
    )
    distances = measure(space[world.queries], space[world.items], metric)
    (found,) = find_in_galleries(distances, relevance, [np.arange(ITEMS)], (1, 5))
    return dict(
        zip(("cmc@1", "cmc@5", "recall@10", "ndcg@10", "mrr@10", "map"), found.values.mean(axis=1), strict=True)
    )


def values(row):
    return {name: figure.value for name, figure in row.figures.items()}


@pytest.mark.full
def test_a_gallery_that_fits_is_searched_as_a_whole(gallery, world):
    before = gallery.status().table_version
    table = gallery.evaluate("v2", labels=texts(world))
    assert gallery.status().table_version == before
    assert (table.truth, table.num_queries, table.num_skipped) == ("qrels", 120, 0)
    assert table.provenance == "120 application queries against 240 items of 240."
    for way, space, metric in (("s/s", world.v1, "l2"), ("t/t", world.v2, "cosine")):
        assert values(table.row(way)) == pytest.approx(brute(world, space, metric))
    assert all(set(row.figures) == ALL for row in table.rows)
    for row in table.rows:
        assert all(figure.low <= figure.value <= figure.high for figure in row.figures.values())


@pytest.mark.full
@pytest.mark.parametrize("names", ["v1 v2", "source target"])
def test_vectors_of_both_models_need_no_encoder_and_ask_the_same(gallery, world, names):
    by_text = gallery.evaluate("v2", labels=texts(world))
    by_vector = gallery.evaluate("v2", labels=vectors(world, names.split()))
    assert [values(row) for row in by_vector.rows] == [values(row) for row in by_text.rows]


@pytest.mark.full
def test_a_sample_has_all_that_is_correct_and_knows_the_gallery_where_no_native_is_needed(gallery, world):
    full, part = (gallery.evaluate("v2", labels=texts(world), sample=size) for size in (ITEMS, 170))
    assert part.num_queries < 120
    said = f"{part.num_queries} application queries against 170 items of 240, of which "
    assert part.provenance.startswith(said)
    assert f"({120 - part.num_queries} were not drawn)" in part.provenance
    assert {way: set(part.row(way).figures) for way in ("s/s", "t/h", "t/t")} == {
        "s/s": ALL, "t/h": ALL, "t/t": {"map"},
    }  # fmt: skip
    for way in ("t/t", "s/s & t/t"):
        found, truth = part.row(way).figures["map"], full.row(way).figures["map"].value
        assert found.low <= truth <= found.high


@pytest.mark.full
@pytest.mark.parametrize("criterion", ["ndcg@10", "recall@10", "mrr@10", "cmc@1"])
def test_by_a_figure_that_a_sample_does_not_tell_of_backfills_nothing_is_advised_against_them(
    gallery, world, criterion
):
    table = gallery.evaluate("v2", labels=texts(world), sample=ITEMS // 2, criterion=criterion)
    assert table.has_ground_truth
    unmeasured = [row.name for row in table.budgets if criterion not in row.figures]
    assert "full backfill" in unmeasured
    assert table.advice.verdict != "do not upgrade"
    assert f"{criterion} of backfill" in table.advice.text
    assert "best way" not in table.advice.text
    whole = gallery.evaluate("v2", labels=texts(world), sample=ITEMS, criterion=criterion)
    assert "was not measured" not in whole.advice.text


def test_the_sample_of_an_estimate_holds_every_correct_item_and_weighs_the_others(gallery, world):
    gallery.upgrade("v2")
    catalog = gallery._catalog
    context = UpgradeContext.of(catalog, catalog.registry().runs["v2"])
    sample = draw_sample(context, 170, labels=texts(world))
    correct = {item for items in judged(world).values() for item in items}
    judged_correct = {IDS[place] for place in sample.queries.judged.items}
    assert set(sample.ids.filter(~sample.drawn).to_pylist()) >= judged_correct <= correct
    assert len(sample.places) == 170
    assert len(set(sample.places)) == 170


@pytest.mark.full
def test_gates_of_judged_figures(gallery, world):
    asked = texts(world)
    planned = gallery.upgrade(
        "v2",
        backfill=0.5,
        gates=cs.Gates(labels=asked, criterion="ndcg@10", require=("ndcg@10>=0.1", "mrr@10>=0.05")),
        dry_run=True,
    )
    assert planned.estimate.passed
    assert [gate.name for gate in planned.estimate.gates] == ["ndcg@10>=0.1", "mrr@10>=0.05"]
    assert planned.estimate.promise.endswith("ndcg@10, correct by qrels, for queries like the given ones.")
    too_much = cs.Gates(labels=asked, require=("recall@10>=0.9",))
    with pytest.raises(GateFailed, match=r"recall@10>=0.9, for the whole confidence interval"):
        gallery.upgrade("v2", backfill=0.5, gates=too_much)
    assert gallery.status().versions[1].native == 0
    with pytest.raises(
        InvalidInput, match=r"estimate ndcg@10>=0.1.*a backfill of 0.5, which cannot be measured on a sample"
    ):
        gallery.upgrade(
            "v2", backfill=0.5, gates=cs.Gates(labels=asked, require=("ndcg@10>=0.1",), sample=170), dry_run=True
        )
    hop = gallery.upgrade("v2", gates=cs.Gates(labels=asked, require=("ndcg@10>=0.01",), sample=170), dry_run=True)
    assert hop.estimate.passed


@pytest.mark.parametrize("criterion", ["recall@10", "ndcg@10", "mrr@10"])
def test_judged_figures_need_judgements(gallery, criterion):
    with pytest.raises(InvalidInput, match=f"measure {criterion}; expected queries, and judgements"):
        cs.Gates(criterion=criterion)
    with pytest.raises(InvalidInput, match="judgements of their correct items"):
        cs.Gates(require=(f"{criterion}>=0.5",), labels=cs.Queries(queries={"id": ["a"], "text": ["a"]}))
    with pytest.raises(InvalidInput, match="judgements of their correct items"):
        gallery.evaluate("v2", criterion=criterion, labels="label")


@pytest.mark.full
def test_an_upgrade_is_fused_by_queries_and_its_report_asks_them_again(gallery, world, tmp_path):
    questions, qrels = tmp_path / "q.jsonl", tmp_path / "qrels.tsv"
    questions.write_text("".join(json.dumps({"_id": name, "text": name}) + "\n" for name in ASKING))
    lines = [f"{q}\t{i}\t{grade}" for q, items in judged(world).items() for i, grade in items.items()]
    qrels.write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    asked = cs.Queries(queries=questions, qrels=str(qrels))
    assert asked == texts(world)
    gates = cs.Gates(labels=asked, criterion="ndcg@10", serving="fused")
    gallery.upgrade("v2", backfill=0.5, gates=gates)
    choice = (
        gallery.search({"v1": world.v1[:1], "v2": world.v2[:1]}, k=1)
        and gallery.evaluate("v2", labels=asked, criterion="ndcg@10", weight="best").choice
    )
    assert (choice.criterion, choice.truth, choice.num_queries) == ("ndcg@10", "qrels", 120)
    told = gallery.report("v2")
    assert told.estimate.terms.labels == asked
    assert told.measured.truth == "qrels"
    before, after = told.estimate.table.row("s/s"), told.measured.row("s/s")
    assert values(after) == pytest.approx(values(before), abs=1e-5)
    assert {row.what: row.agrees for row in told.compared}["as served: ndcg@10"]
    served = told.measured.row("fused as served")
    assert set(served.figures) == ALL
    # of a sample, what searches give now is still known of the whole gallery
    part = gallery.report("v2", labels=asked, sample=170).measured.row("fused as served")
    assert set(part.figures) == ALL
    questions.write_text(questions.read_text().replace('"query-001"}', '"query-002"}'))
    with pytest.raises(InvalidInput, match="expected the same; found others"):
        gallery.report("v2")


@pytest.mark.full
def test_what_a_sample_says_of_the_fusion_that_is_served_is_of_the_whole_gallery(gallery, world):
    gallery.upgrade("v2", backfill=0.3)
    gallery.evaluate("v2", labels=texts(world), weight=0.5)
    gallery.cutover("v2", serving="fused")
    asked = dataclasses.replace(texts(world), queries={"id": ASKING[:60], "text": ASKING[:60]}, digest="")
    whole, part = (gallery.report("v2", labels=asked, sample=size).measured for size in (ITEMS, 220))
    assert values(part.row("fused as served")) == pytest.approx(values(whole.row("fused as served")))


@pytest.mark.full
def test_queries_of_a_program_are_asked_for_again(gallery, world):
    gallery.upgrade("v2", gates=cs.Gates(labels=texts(world), sample=ITEMS))
    with pytest.raises(InvalidInput, match="queries that a program held"):
        gallery.report("v2")
    assert gallery.report("v2", labels=texts(world)).measured.num_queries == 120


@pytest.mark.full
def test_without_judgements_agreement_is_measured(gallery, world):
    asked = cs.Queries(queries={"id": ASKING, "text": ASKING})
    table = gallery.evaluate("v2", labels=asked, sample=120)
    assert (table.truth, table.criterion, table.num_queries) == ("", "agreement", 120)
    assert table.row("t/t").figures["agreement"].value == 1.0


@pytest.mark.full
def test_items_that_ask_do_not_find_themselves_and_are_left_out_where_learned_from(tmp_path, world):
    """The judgements of each item name the item itself, which counts for nothing."""
    gallery = world.gallery(tmp_path / "items.lance")
    correct = {item: {item: 1, IDS[(row + 1) % ITEMS]: 1} for row, item in enumerate(IDS)}
    asked = cs.Queries(queries={"id": IDS, "item": IDS}, qrels=correct)
    table = gallery.evaluate("v2", labels=asked)
    assert table.num_queries == ITEMS
    apart = np.linalg.norm(world.v1[:ITEMS, None] - world.v1[None, :ITEMS], axis=-1)
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(axis=1)
    expected = np.mean(nearest == (np.arange(ITEMS) + 1) % ITEMS)
    assert table.row("s/s").figures["cmc@1"].value == pytest.approx(expected)
    seen = Pairs(
        world.v1[:100], world.v2[:100], source_version=gallery.version("v1"), target_version=gallery.version("v2")
    )
    learned = gallery.artifacts.link(Ridge().fit(seen))
    table = gallery.evaluate("v2", labels=asked, transform=learned)
    assert table.num_queries == ITEMS - 100
    assert "100 cannot be embedded" not in table.provenance
    assert "100 were learned from by the artifact" in table.provenance


@pytest.mark.full
def test_what_is_not_in_the_gallery_is_counted_and_said(gallery, world):
    grades = {**judged(world), ASKING[0]: {"gone": 1}, ASKING[1]: {IDS[0]: 1, "lost": 3}, "nobody": {IDS[3]: 1}}
    table = gallery.evaluate("v2", labels=cs.Queries(queries={"id": ASKING, "text": ASKING}, qrels=grades))
    assert table.num_queries == 119
    assert "1 have no correct item in the gallery" in table.provenance
    assert "2 items that were judged correct are not in the gallery." in table.provenance


@pytest.mark.full
def test_queries_that_cannot_be_embedded_are_counted(gallery, world):
    names = [*ASKING, "unknown"]
    asked = cs.Queries(queries={"id": names, "text": names}, qrels={**judged(world), "unknown": {IDS[0]: 1}})
    assert "1 cannot be embedded" in gallery.evaluate("v2", labels=asked).provenance


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda w: vectors(w, ("v1", "v3")), InvalidInput, "vectors called v1 and v2, or source and target"),
        (lambda w: vectors(w, v2=w.v1[w.queries]), InvalidInput, "in v2; expected 16 values; found 10"),
        (
            lambda w: cs.Queries(queries={"id": ASKING, "text": ASKING}, qrels={"x": {IDS[0]: 1}}),
            InvalidInput,
            "none of 120 .120 have no correct item in the gallery",
        ),
        (
            lambda w: cs.Queries(queries={"id": ["a"], "item": ["gone"]}),
            InvalidInput,
            "1 name items that the gallery lacks",
        ),
        (
            lambda w: cs.Queries(queries={"id": ASKING[:30], "text": ASKING[:30]}, qrels=judged(w)),
            UpgradeError,
            "40 queries; found 30 application queries",
        ),
        (
            lambda w: cs.Queries(queries={"id": ["x", "y"], "text": ["x", "y"]}),
            UpgradeError,
            "none: no vector for id 'x'",
        ),
    ],
)
def test_queries_that_say_nothing_are_refused(gallery, world, make, error, said):
    with pytest.raises(error, match=said):
        gallery.evaluate("v2", labels=make(world))


def test_a_sample_without_room_is_refused(gallery, world):
    asked = cs.Queries(queries={"id": ASKING, "text": ASKING}, qrels=judged(world, most=8))
    with pytest.raises(UpgradeError, match=r"a sample of \d+ or more"):
        gallery.evaluate("v2", labels=asked, sample=90)


@pytest.mark.full
def test_texts_need_encoders_of_both_versions(gallery, world):
    alone = cs.Gallery.open(gallery.status().gallery, encoders={"v2": world.encoders()["v2"]})
    with pytest.raises(UpgradeError, match="encoders of v1 and v2; found none of v1"):
        alone.evaluate("v2", labels=texts(world))
    assert alone.evaluate("v2", labels=vectors(world)).num_queries == 120


@pytest.mark.full
def test_an_upgrade_without_a_hop_is_merged_by_queries(tmp_path, world):
    encoders = world.encoders()
    v1 = cs.EmbeddingVersion("v1", dim=10, metric="l2", encoder=encoders["v1"])
    gallery = cs.Gallery.create(str(tmp_path / "merged.lance"), v1)
    gallery.add({"id": IDS, "vector": world.v1[world.items]})
    gallery.register(cs.EmbeddingVersion("v2", dim=16, metric="cosine", encoder=encoders["v2"]))
    gallery.upgrade("v2", backfill=cs.Backfill(share=1.0, max_rows=120), learn=None)
    whole = gallery.evaluate("v2", labels=texts(world), sample=ITEMS, criterion="recall@10", weight="best")
    assert (whole.criterion, whole.truth, whole.num_queries) == ("recall@10", "qrels", 120)
    part = gallery.evaluate("v2", labels=texts(world), sample=200, weight="best")
    assert (part.criterion, part.truth) == ("map", "qrels")


@pytest.mark.full
def test_an_estimate_by_queries_is_taken_up_again_by_the_same_queries(gallery, world):
    gates = cs.Gates(labels=texts(world), require=("map>=0.05",), sample=ITEMS)
    gallery.upgrade("v2", backfill=0.2, gates=gates)
    gallery.upgrade("v2", backfill=0.2, gates=dataclasses.replace(gates, labels=texts(world)))
    assert [entry.step for entry in gallery.maintenance.history()].count("estimate") == 1
    other = cs.Queries(queries={"id": ASKING[:80], "text": ASKING[:80]}, qrels=judged(world))
    gallery.upgrade("v2", backfill=0.2, gates=dataclasses.replace(gates, labels=other))
    assert [entry.step for entry in gallery.maintenance.history()].count("estimate") == 2


@pytest.mark.full
def test_whole_numbers_as_ids_odd_names_and_vectors_of_more_versions(tmp_path):
    random = np.random.default_rng(0)
    source = random.normal(size=(120, 4)).astype(np.float32)
    target = (source @ random.normal(size=(4, 6))).astype(np.float32)
    v1 = cs.EmbeddingVersion("v1", dim=4, metric="dot")
    gallery = cs.Gallery.create(str(tmp_path / "numbers.lance"), v1, id_type="int64")
    gallery.add({"id": np.arange(120), "vector": source})
    encoder = cs.encoders.Precomputed(dict(zip(range(120), target, strict=True)))
    gallery.register(cs.EmbeddingVersion("v2", dim=6, metric="cosine", encoder=encoder))
    pairs = Pairs(source[:40], target[:40], source_version=v1, target_version=gallery.version("v2"))
    gallery.artifacts.link(Ridge().fit(pairs))
    names = ["'; DROP TABLE x--", "ü 蓝", *map(str, range(48))]
    silent = target[:50].copy()
    silent[1] = 0.0  # no direction, so nothing that cosine could compare
    given = {"v1": source[:50], "v2": silent, "v3": np.ones((50, 2))}
    qrels = {name: {row: 1, 9999: 2, "p7": 1} for row, name in enumerate(names)}
    table = gallery.evaluate("v2", labels=cs.Queries(queries={"id": names, **given}, qrels=qrels))
    assert table.num_queries == 49
    assert "1 cannot be embedded" in table.provenance
    assert "2 items that were judged correct are not in the gallery." in table.provenance
    assert table.row("t/t").figures["ndcg@10"].value == 1.0
