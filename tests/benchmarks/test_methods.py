"""The benchmark on methods runs, goes on where it was stopped, and its tables say what its journal holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.methods.settings import SIZES
from benchmarks.pairs.journal import Journal
from compatstore import trainers
from compatstore.errors import InvalidInput
from digits import load_digits
from lazily import Lazy

pytestmark = pytest.mark.full

methods = Lazy(
    "benchmarks.methods.run",
    "benchmarks.methods.lesson",
    "benchmarks.methods.models",
    "benchmarks.methods.data",
    "benchmarks.methods.rows",
    "benchmarks.methods.report",
    "benchmarks.methods.series",
    "benchmarks.methods.steps",
    "benchmarks.methods.as_one",
    "benchmarks.methods.other_loss",
)

TINY = replace(SIZES["tiny"], images=200, gallery=80, queries=40, epochs=2, transform_epochs=2)
CHOSEN = ("independent", "BCT", "BT2", "DMU", "FCT")
UNSCALED = ("independent, cross-entropy", "BT2, cross-entropy, plain means")
BY_COSFACE = ("independent, CosFace", "FastFill, scale chosen, CosFace")
OURS = ("BCT, refreshed by distance", "FCT, as one", "self-teaching")


@pytest.fixture(scope="module")
def data() -> methods.ImageSet:
    digits = load_digits()
    training, test = trainers.Images((digits.images * 255 / 16).astype(np.uint8), digits.target).split(0.3, seed=0)
    return methods.ImageSet(name="Digits", training=training, test=test)


@pytest.fixture(scope="module")
def journal(data: methods.ImageSet, tmp_path_factory) -> Journal:
    journal = Journal(tmp_path_factory.mktemp("run") / "journal.jsonl")
    methods.run(data, TINY, [0], journal, ["classes"], CHOSEN)
    methods.run(data, TINY, [0], journal, ["classes"], (*UNSCALED, *BY_COSFACE, *OURS))
    methods.run(data, TINY, [0], journal, ["classes"], (f"independent{methods.WIDER}", f"FCT{methods.WIDER}"))
    methods.run(data, TINY, [0], journal, ["steps"], [])
    methods.run(data, TINY, [0], journal, ["series"], ["BT2", "DMU, refreshed", "DMU, refreshed three times"])
    return journal


def test_nothing_that_is_searched_was_learned_from(data: methods.ImageSet) -> None:
    given = {"disjoint": methods.following(data, data), "texts": replace(data, captions=np.eye(10, dtype=np.float32))}
    for setting in methods.SETTINGS:
        trial = methods.lesson(given.get(setting, data), setting, TINY, seed=1)
        learned = {image.tobytes() for image in trial.target.images}
        assert len(trial.gallery) == TINY.gallery
        assert len(trial.queries) == TINY.queries
        searched = [image.tobytes() for part in (trial.gallery, trial.queries) for image in part.images]
        assert not learned & set(searched)
        shown = [len(images.class_names) for images in trial.sources]
        every = {"series": [3, 5], "steps": [5, 6, 7, 8, 9], "subgroups": [6], "texts": []}
        every |= {"data": [10], "disjoint": [10]}
        assert shown == every.get(setting, [5])


def test_a_biased_source_knows_the_majority_and_few_of_the_minority(data: methods.ImageSet, tmp_path: Path) -> None:
    trial = methods.lesson(data, "subgroups", TINY, seed=1)
    assert trial.sources[0].class_names == ("0", "1", "2", "4", "6", "8")
    assert trial.groups is not None
    assert trial.groups.tolist() == ["minority" if label % 2 else "majority" for label in trial.queries.labels]
    journal = Journal(tmp_path / "journal.jsonl")
    methods.run(data, TINY, [0], journal, ["subgroups"], ["independent", "FCT", "residual, sigma"])
    alone, fct, residual = journal.records
    curve = fct["curves"]["random"]
    assert set(curve["gap"]) == {"0%", "25%", "50%", "100%"}
    assert curve["gap"]["100%"] == pytest.approx(alone["t/t"]["gap"])
    assert curve["gap"]["0%"] == pytest.approx(fct["t/h"]["gap"])
    assert residual["curves"]["sigma"]["gap"]["100%"] == pytest.approx(curve["gap"]["100%"])
    mended, broken = (np.array(curve["flips"][kind]) for kind in ("mended", "broken"))
    cmc = np.array(curve["curve"]["cmc1"])
    np.testing.assert_allclose(cmc - cmc[0], mended - broken, atol=2e-5)
    line = methods.fill("<!-- table: subgroups -->\n<!-- end -->", journal.records).splitlines()[-3]
    assert line.startswith("| FCT |")
    told = [f"{100 * curve['gap'][share]['cmc1']:.1f}" for share in ("0%", "25%", "100%")]
    assert f"random: {', '.join(told)}" in line


def test_models_search_another_set_than_they_have_learned_from(data: methods.ImageSet) -> None:
    other = trainers.Images(
        255 - np.asarray(data.test.images), np.asarray(data.test.labels) // 2, ("a", "b", "c", "d", "e")
    )
    inverse = methods.ImageSet(name="Inverse", training=data.training, test=other)
    made = methods.searching(data, inverse)
    assert made.name == "Digits, searching Inverse"
    here, there = methods.lesson(data, "classes", TINY, seed=1), methods.lesson(made, "elsewhere", TINY, seed=1)
    assert there.target.fingerprint == here.target.fingerprint
    assert there.sources[0].fingerprint == here.sources[0].fingerprint
    assert {image.tobytes() for image in there.gallery.images} <= {image.tobytes() for image in other.images}


def test_a_source_of_another_set_knows_nothing_of_the_one_that_is_searched(data: methods.ImageSet) -> None:
    inverse = trainers.Images(255 - np.asarray(data.training.images), data.training.labels, data.training.class_names)
    made = methods.following(data, methods.ImageSet(name="Inverse", training=inverse, test=data.test))
    assert made.name == "Digits after Inverse"
    here, there = methods.lesson(data, "classes", TINY, seed=1), methods.lesson(made, "disjoint", TINY, seed=1)
    assert there.target.fingerprint == here.target.fingerprint
    assert {image.tobytes() for image in there.sources[0].images} <= {image.tobytes() for image in inverse.images}
    with pytest.raises(InvalidInput, match="a set that follows another"):
        methods.lesson(data, "disjoint", TINY, seed=1)


def test_a_gallery_is_searched_by_expected_distances_too(data: methods.ImageSet, tmp_path: Path) -> None:
    small, large = Journal(tmp_path / "small.jsonl"), Journal(tmp_path / "large.jsonl")
    methods.run(data, TINY, [0], small, ["classes"], ["FastFill, level chosen"])
    methods.run(
        data, replace(TINY, images=700, transform_epochs=20), [0], large, ["classes"], ["FastFill, level chosen"]
    )
    (few,), (row,) = small.records, large.records
    assert set(few["curves"]) == {"random", "sigma"}  # 20 pairs held out say nothing
    assert set(row["curves"]) == {"random", "sigma", "random, expected", "sigma, expected"}
    for order in ("random", "sigma"):
        curves = [row["curves"][f"{order}{way}"]["curve"]["map"] for way in ("", ", expected")]
        assert curves[0][-1] == curves[1][-1]  # a full gallery has nothing to doubt
        assert curves[1][0] == pytest.approx(row["t/h, expected"]["map"], abs=1e-4)


def test_captions_are_stored_and_images_ask_for_them(data: methods.ImageSet, tmp_path: Path) -> None:
    names = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    named = replace(data.training, class_names=names)
    made = methods.captioned(replace(data, training=named), "words@256")
    assert made.name == "Digits, captions by words@256"
    assert made.captions is not None
    assert made.captions.shape == (10, 256)
    assert len(np.unique(made.captions, axis=0)) == 10
    trial = methods.lesson(made, "texts", TINY, seed=1)
    assert trial.size.dim == 256
    with pytest.raises(InvalidInput, match="a set with captions"):
        methods.lesson(data, "texts", TINY, seed=1)
    journal = Journal(tmp_path / "journal.jsonl")
    longer = replace(TINY, images=600, epochs=8)
    methods.run(replace(made, captions=np.eye(10, 16, dtype=np.float32)), longer, [0], journal, ["texts"], [])
    alone, across = journal.records
    assert set(across) >= {"t/s", "s/t", "t/t", "curves"}
    assert min(across[way]["map"] for way in ("t/s", "s/t")) > 0.4  # by chance a tenth
    # Full of native vectors, the gallery is searched by the values that are compared.
    assert across["curves"]["compared"]["curve"]["map"][0] == pytest.approx(across["t/s"]["map"], abs=1e-4)
    line = methods.fill("<!-- table: texts -->\n<!-- end -->", journal.records).splitlines()
    assert line[-5].startswith("| row | t/s | s/t | t/t |")
    assert line[-2].startswith(f"| BT2 | {100 * across['t/s']['cmc1']:.1f}")
    assert f"{100 * alone['t/t']['cmc1']:.1f}" in line[-3]


def test_fresh_pairs_are_of_images_that_no_model_learns_from(data: methods.ImageSet, tmp_path: Path) -> None:
    trial = methods.lesson(data, "classes", TINY, seed=1)
    assert trial.fresh is not None
    assert len(trial.fresh) == TINY.images
    learned = {image.tobytes() for image in trial.target.images}
    assert not learned & {image.tobytes() for image in trial.fresh.images}
    whole = replace(TINY, images=len(data.training))
    assert methods.lesson(data, "classes", whole, seed=1).fresh is None
    journal = Journal(tmp_path / "journal.jsonl")
    methods.run(data, whole, [0], journal, ["classes"], [f"FCT{methods.FRESH}"])
    assert not journal.records


def test_a_gallery_that_was_refreshed_three_times_is_measured_beside_each_step(journal: Journal) -> None:
    (row,) = (record for record in journal.records if record["method"] == "DMU, refreshed three times")
    names = {name.removeprefix(methods.OF_FOUR) for name in row if name.startswith(methods.OF_FOUR)}
    assert names == {"1/1", "4/1", "4/h(h(h(1)))", "4/h(h(2))", "4/h(3)", "4/4"}


def test_side_information_is_trained_for_equal_steps_where_the_size_says_so(data: methods.ImageSet) -> None:
    for equal in (True, False):
        models = methods.Models(methods.lesson(data, "classes", replace(TINY, equal_steps=equal), seed=0))
        trainers = [
            models.side_trainers[name] for name in ("SimCLR", f"SimCLR{methods.QUARTER}", f"SimCLR{methods.FOURFOLD}")
        ]
        steps = TINY.epochs * (len(models.lesson.sources[0]) // TINY.batch_size)
        assert [trainer.steps for trainer in trainers] == (
            [steps, max(round(steps / 4), 1), steps * 4] if equal else [None] * 3
        )


def test_each_row_says_how_every_pair_searches(journal: Journal) -> None:
    rows = {record["method"]: record for record in journal.records if record["setting"] == "classes"}
    wide = {f"independent{methods.WIDER}", f"FCT{methods.WIDER}"}
    assert set(rows) == {*CHOSEN, *UNSCALED, *BY_COSFACE, *OURS, *wide} <= set(methods.ROWS)
    for name, pairs in {"BCT": {"s/s", "t/s", "t/t"}, "DMU": {"s/s", "t/s", "t/h", "h/h", "t/t"}}.items():
        assert pairs <= set(rows[name])
    assert set(rows["BT2"]["curves"]) == {"compared", "whole"}
    assert rows["FCT"]["t/t"] == rows["independent"]["t/t"], "a transform leaves the target alone"
    for record in rows.values():
        for curve in record.get("curves", {}).values():
            assert len(curve["curve"]["map"]) == TINY.alphas
    # A full backfill is the target's own gallery.
    assert rows["BCT"]["curves"]["compared"]["curve"]["map"][-1] == pytest.approx(rows["BCT"]["t/t"]["map"], abs=1e-4)
    assert rows["BT2"]["curves"]["whole"]["curve"]["map"][-1] == pytest.approx(rows["BT2"]["t/t"]["map"], abs=1e-4)


def test_rows_of_another_loss_are_measured_against_models_of_their_own(journal: Journal) -> None:
    rows = {record["method"]: record for record in journal.records if record["setting"] == "classes"}
    alone, other = (rows[name] for name in UNSCALED)
    assert other["s/s"] == alone["s/s"] != rows["independent"]["s/s"]
    assert [methods.baseline(row) for row in ("BT2", UNSCALED[1])] == ["independent", UNSCALED[0]]
    alone, other = (rows[name] for name in BY_COSFACE)
    assert other["t/t"] == alone["t/t"] != rows["independent"]["t/t"]
    assert methods.baseline(BY_COSFACE[1]) == BY_COSFACE[0]


def test_fastfill_s_loss_is_the_target_s_own(data: methods.ImageSet) -> None:
    models = methods.Models(methods.lesson(data, "classes", TINY, seed=0))
    for trial, own in (
        (models, {"disc": "arcface", **methods.ARCFACE}),
        (methods.cosface(models), {"disc": "cosface", **methods.COSFACE}),
    ):
        resolved = methods.learned(trainers.FastFill, trial, **methods.target_loss(trial)).manifest.settings["resolved"]
        assert {name: resolved[name] for name in ("disc", "scale", "margin")} == {
            name: own[name] for name in ("disc", "scale", "margin")
        }


def test_rows_of_ours_are_searched_by_both_versions(journal: Journal) -> None:
    rows = {record["method"]: record for record in journal.records if record["setting"] == "classes"}
    for name in OURS:
        curve, weights = rows[name]["curves"][methods.AS_ONE], rows[name]["weights"]
        assert len(weights) == len(curve["curve"]["map"]) == TINY.alphas
        for weight, found in zip(weights, curve["curve"]["map"], strict=True):
            assert 0 <= weight < 1
            assert weight or found == pytest.approx(rows["independent"]["s/s"]["map"], abs=1e-4)
    assert weights[0] == 0, "nothing is learned before anything is embedded"
    assert {"random", methods.AS_ONE} == set(rows["BCT, refreshed by distance"]["curves"])
    assert rows["self-teaching"]["t/t"] == rows["independent"]["t/t"]


def test_a_series_searches_every_earlier_gallery(journal: Journal) -> None:
    record, refreshed, _ = (record for record in journal.records if record["setting"] == "series")
    assert {"1/1", "2/1", "2/2", "3/1", "3/2", "3/3"} <= set(record)
    assert {"3/h(h(1))", "3/h(h(1)), from both", "3/h(2), from both"} <= set(refreshed)
    assert {record["method"], refreshed["method"]} <= set(methods.SERIES)


def test_six_versions_hop_one_gallery_from_each_to_the_next(journal: Journal) -> None:
    rows = {record["method"]: record for record in journal.records if record["setting"] == "steps"}
    assert set(rows) == set(methods.CHAINS)
    assert {f"{n}/{n}" for n in range(1, 7)} | {"6/1"} <= set(rows["independent"])
    for name in ("FCT", f"FCT + {methods.SIDE}"):
        assert {f"{n}/h(1)" for n in range(2, 7)} <= set(rows[name])
    assert rows["FCT"]["6/h(1)"] != rows[f"FCT + {methods.SIDE}"]["6/h(1)"]


def test_rows_of_more_values_are_measured_against_models_of_their_own(journal: Journal) -> None:
    rows = {record["method"]: record for record in journal.records if record["setting"] == "classes"}
    assert (
        rows[f"FCT{methods.WIDER}"]["t/t"] == rows[f"independent{methods.WIDER}"]["t/t"] != rows["independent"]["t/t"]
    )
    assert methods.baseline(f"FCT{methods.WIDER}") == f"independent{methods.WIDER}"


def test_a_divergence_is_of_the_classes_that_the_head_gives(data: methods.ImageSet, monkeypatch) -> None:
    models, heads = methods.Models(methods.lesson(data, "classes", TINY, seed=0)), []
    monkeypatch.setattr(trainers.FCT, "fit", lambda trainer, pairs: heads.append(pairs.head))
    methods.learned(trainers.FCT, models)
    methods.learned(trainers.FCT, models, loss="kl")
    np.testing.assert_allclose(heads[1], methods.ARCFACE["scale"] * heads[0], rtol=1e-6)


def test_a_second_run_adds_nothing(data: methods.ImageSet, journal: Journal) -> None:
    before = journal.path.read_text()
    methods.run(data, TINY, [0], Journal(journal.path), ["classes"], CHOSEN)
    assert journal.path.read_text() == before
    assert all(json.loads(line)["set"] == "Digits" for line in before.splitlines())


def test_tables_are_filled_from_the_journal(journal: Journal) -> None:
    document = "".join(f"<!-- table: {name} -->\nold\n<!-- end -->\n" for name in ("classes", "series", "paper"))
    filled = methods.fill(document, journal.records)
    assert "old" not in filled
    assert "#### Digits, seeds: 1" in filled
    for name in CHOSEN:
        assert f"| {name} |" in filled
    assert methods.fill(filled, journal.records) == filled


def test_a_folder_of_class_folders_is_read(tmp_path: Path) -> None:
    for name in ("cats", "dogs", "clutter"):
        (tmp_path / name).mkdir()
        for number in range(10):
            Image.new("L", (20, 30), number).save(tmp_path / name / f"{number}.png")
    found = methods.read(tmp_path, "Pets", 16, leave_out=["clutter"])
    assert found.training.class_names == ("cats", "dogs")
    assert found.training.images.shape[1:] == (16, 16, 3)
    assert len(found.training) + len(found.test) == 20
