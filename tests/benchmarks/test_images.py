"""Models in the papers' own settings: their losses and distances, named methods, and the harder half of the classes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.images.methods import METHODS, PAPER, method_of
from benchmarks.images.models import LOSSES, METRICS, Models, embed
from benchmarks.images.run import run
from benchmarks.images.sizes import SIZES
from benchmarks.images.trial import draw, hard_classes, read
from compatstore import trainers


def models(loss, setting="classes", size="smoke"):
    trial = draw(read(None, "", 8), setting, SIZES[size], 0, METRICS.get(loss, "cosine"))
    return Models(trial, loss)


def test_each_method_of_the_papers_is_known_and_trains_by_a_known_loss():
    assert PAPER.keys() <= LOSSES.keys()
    assert {name for plan in PAPER.values() for names in plan.values() for name in names} <= METHODS.keys()


def test_a_method_takes_settings_of_its_trainer():
    given = method_of("DMU: selection=least-confidence adapter_width=512 adaptation_weight=0.5").keywords
    assert given == {"selection": "least-confidence", "adapter_width": 512, "adaptation_weight": 0.5}
    assert method_of("UniBCT: restart=1.0").args == (trainers.UniBCT,)
    assert method_of("RBT").args == (trainers.RBT,)
    with pytest.raises(AttributeError):
        method_of("Nothing")


def test_features_of_softmax_have_any_length_and_are_compared_by_l2():
    plain = models("softmax")
    vectors = embed(plain.source.encoder, plain.trial.queries)
    assert vectors.min() == 0
    assert np.ptp(np.linalg.norm(vectors, axis=1)) > 0.01
    assert plain.version().metric == "l2"
    assert not plain.version().normalised


def test_a_changed_architecture_makes_the_better_model_the_target():
    better = models("cosine", "architecture", "paper")
    assert [better.loop(target=target)["width"] for target in (False, True)] == [4, 8]
    assert better.loop()["architecture"] == ""


def test_a_run_measures_cmc_5_and_flips_along_the_curve():
    (row,) = run(size="smoke", loss="softmax", settings=("classes",), methods=("FCT",), seeds=1)
    assert row["method"] == "FCT, softmax"
    assert row["area random cmc1"] <= row["area random cmc5"] <= 100
    start, end = row["t/h cmc1"], row["t/t cmc1"]
    assert {row["positive random cmc1"] > 0, row["negative random cmc1"] > 0} >= {end != start}


def test_the_harder_half_has_the_classes_that_pixels_confuse():
    random = np.random.default_rng(0)
    clear, mixed = np.zeros((4, 10, 8, 8)), random.random((4, 10, 8, 8))
    for label in range(4):
        clear[label, :, label] = 1
    pixels = np.concatenate([clear + 0.1 * random.random(clear.shape), mixed]).reshape(80, 8, 8)
    images = trainers.Images((200 * pixels / pixels.max()).astype(np.uint8), np.repeat(np.arange(8), 10))
    assert hard_classes(images).tolist() == [False] * 4 + [True] * 4
