"""FastFill's balance: what is chosen where nothing is named, by what, and what is left as it was named."""

import numpy as np
import pytest
from labelled_spaces import classes

from compatstore import trainers
from compatstore.artifacts import Artifact
from compatstore.trainers import Pairs
from compatstore.trainers.pairs.balance import ROWS, SCALES, apart, balanced
from compatstore.trainers.pairs.retrieval import RetrievalTest

QUICK = {"epochs": 2, "branch_width": 8, "mixer_width": 16, "learning_rate": 4e-3, "device": "cpu"}


def pairs_of(rows=400, unit=True, factor=1.0, labelled=True):
    source, native, labels = classes(rows, unit=unit)
    return Pairs(source, factor * native, labels=labels if labelled else None)


def tried(figures):
    return {candidate["name"]: candidate["score"] for candidate in figures["balance"]["candidates"]}


@pytest.fixture(scope="module")
def by_default():
    told = []
    return trainers.FastFill(**QUICK).fit(pairs_of(), told.append), told


@pytest.mark.full
def test_the_scale_and_the_batch_are_chosen_by_the_area_and_the_artifact_says_how(by_default):
    artifact = Artifact.from_bytes(*by_default[0].to_bytes())
    settings, figures = artifact.manifest.settings, artifact.manifest.figures
    scores = tried(figures)
    assert figures["balance"]["decided_by"] == "area"
    assert {f"scale {scale:g}, batch_size 256" for scale in SCALES} <= scores.keys()
    behind = [one["name"] for one in figures["balance"]["candidates"] if one["skipped"].startswith("behind after 10%")]
    assert len(behind) == len(SCALES) // 2
    assert [name for name, score in scores.items() if score is None] == behind
    best = max(scores.keys() - behind, key=scores.get)
    assert best == ", ".join(f"{name} {value:g}" for name, value in settings["balance"].items())
    assert settings["scale"] == settings["resolved"]["scale"] == settings["balance"]["scale"]
    assert settings["batch_size"] == settings["balance"]["batch_size"]
    held_out = figures["balance"]["candidates"][0]["groups"]["held_out"]
    assert figures["balance"]["candidates"][0]["score"] == pytest.approx(
        (held_out["area_cmc_1"] + held_out["area_map"]) / 2
    )


def test_what_was_chosen_is_then_trained_as_if_it_had_been_named(by_default):
    chosen = by_default[0].manifest.settings["balance"]
    named = trainers.FastFill(**QUICK, **chosen).fit(pairs_of())
    assert named.manifest.weights_sha256 == by_default[0].manifest.weights_sha256
    assert named.manifest.figures["h"] == by_default[0].manifest.figures["h"]
    assert "balance" not in named.manifest.settings
    assert "balance" not in named.manifest.figures


def test_progress_names_what_is_tried(by_default):
    networks = list(dict.fromkeys(at.network for at in by_default[1]))
    assert networks[-1] == "h"
    assert networks[0] == "h, scale 64, batch_size 256"
    assert len(networks) == 1 + len(tried(by_default[0].manifest.figures))


def test_the_time_of_choosing_is_told_from_that_of_training(by_default):
    seconds = by_default[0].manifest.figures["seconds"]
    assert seconds.keys() == {"choosing", "training"}
    assert min(seconds.values()) > 0
    named = trainers.FastFill(**QUICK, scale=4.0, batch_size=64).fit(pairs_of())
    assert named.manifest.figures["seconds"]["choosing"] < 0.1 * seconds["choosing"]


@pytest.mark.full
def test_a_weight_is_chosen_for_a_cross_entropy_in_the_unit_of_the_space():
    weights = []
    for factor in (1.0, 32.0):
        pairs = pairs_of(300, unit=False, factor=factor)
        found = balanced(trainers.FastFill(**QUICK, batch_size=64), pairs)
        names = [float(name.removeprefix("disc_weight ")) for name in tried(found.figures)]
        variance = np.square(pairs.target - pairs.target.mean(axis=0)).sum(axis=1).mean()
        assert sorted(names) == pytest.approx(sorted([1.0, 0.1 * variance, variance]), rel=1e-4)
        weights.append(found.trainer.disc_weight)
    assert found.trainer.batch_size == 64


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ({"scale": 9.0}, ["batch_size 256", "batch_size 1024"]),
        ({"batch_size": 50}, [f"scale {scale:g}" for scale in SCALES]),
        ({"loss": "l2"}, ["batch_size 256", "batch_size 1024"]),
    ],
    ids=str,
)
def test_only_what_is_not_named_is_chosen(named, found):
    chosen = balanced(trainers.FastFill(**QUICK, **named), pairs_of(420))
    assert tried(chosen.figures).keys() == set(found)
    assert all(getattr(chosen.trainer, name) == value for name, value in named.items())


@pytest.mark.parametrize("named", [{"scale": 9.0, "batch_size": 50}, {"loss": "l2", "batch_size": 50}], ids=str)
def test_where_all_is_named_nothing_is_tried(named):
    chosen = balanced(trainers.FastFill(**QUICK, **named), pairs_of(50), lambda at: pytest.fail("trained"))
    assert (chosen.settings, chosen.figures) == ({}, {})
    assert chosen.trainer == trainers.FastFill(**QUICK, **named)


def test_without_labels_the_batch_is_chosen_by_the_recall_of_neighbours():
    chosen = balanced(trainers.FastFill(**QUICK), pairs_of(420, labelled=False))
    best = chosen.figures["balance"]["candidates"][0]
    assert best["score"] == best["groups"]["held_out"]["area_recall_at_10"]
    assert chosen.trainer.scale is None


@pytest.mark.parametrize("rows", [2, 3, 7])
@pytest.mark.parametrize("unit", [True, False])
def test_with_few_pairs_nothing_is_compared_and_the_manifest_says_it(rows, unit):
    artifact = trainers.FastFill(**QUICK, holdout=0.0).fit(
        Pairs(*(array[:rows] for array in classes(40, unit=unit)[:2]), labels=np.arange(rows))
    )
    settings = artifact.manifest.settings
    assert "Too few pairs" in settings["balance"]["note"]
    assert settings["batch_size"] == 256
    assert (settings["scale"] == 4.0) if unit else (settings["disc_weight"] < 1.0)


def test_the_part_that_is_compared_on_is_bounded_and_whole_classes_are_kept_apart_where_asked():
    source, native, _ = classes(9000)
    pairs = Pairs(source, native, labels=np.arange(9000) % 100)
    for by, shared in (("class", 0), ("row", 100)):
        fitted, held_out = apart(trainers.FastFill(**QUICK, holdout_by=by), pairs)
        assert len(fitted) + len(held_out) == ROWS
        assert len(set(fitted.labels.tolist()) & set(held_out.labels.tolist())) == shared


def test_the_area_is_that_of_the_backfilling_curve_and_a_useless_sigma_costs():
    source, native, labels = classes(300)
    pairs = Pairs(source, native, labels=labels)
    settings = {"k": 5, "queries": 100, "rows": 300, "metric": "l2", "seed": 0, "backfill": True}
    test = RetrievalTest(pairs.subset(range(150)), {"held_out": pairs.subset(range(150, 300))}, **settings)
    scores = test.run(
        trainers.FastFill(**QUICK | {"epochs": 12}, scale=4.0, batch_size=64).fit(pairs.subset(range(150)))
    ).scores
    assert np.nanmean(scores["map"]) < np.nanmean(scores["area_map"])
    np.testing.assert_allclose(scores["area"], (scores["area_cmc_1"] + scores["area_map"]) / 2)
