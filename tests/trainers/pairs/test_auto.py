import numpy as np
import pytest

from compatstore import trainers
from compatstore.artifacts import Artifact
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.errors import InvalidInput
from compatstore.trainers import DiagonalScale, MeanShift, Pairs, Procrustes, Ridge
from compatstore.trainers.pairs.retrieval import RetrievalTest
from compatstore.trainers.pairs.selection import interval
from compatstore.trainers.pairs.shrinking import HeldOutRows, shrinkage_of

FORMS = (MeanShift(), Procrustes(), DiagonalScale(), Ridge())


def linear(n=1500, seed=0, noise=0.05):
    """Pairs that only a general linear map brings together."""
    rng = np.random.default_rng(seed)
    source = rng.normal(size=(n, 8))
    mix = np.random.default_rng(1).normal(size=(8, 8)) * np.geomspace(0.1, 3, 8)[:, None]
    return source, source @ mix + noise * rng.normal(size=(n, 8))


def rotated(n=60, seed=0):
    """Few pairs, noisy, a rotation apart."""
    rng = np.random.default_rng(seed)
    source = rng.normal(size=(n, 40))
    return source, source @ np.linalg.qr(rng.normal(size=(40, 40)))[0] + 0.5 * rng.normal(size=(n, 40))


def classes(n=1200, count=40, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, count, n)
    hidden = rng.normal(size=(count, 8))[labels] + 0.5 * rng.normal(size=(n, 8))
    mix = np.random.default_rng(1).normal(size=(8, 8)) * np.geomspace(0.1, 3, 8)[:, None]
    return hidden, hidden @ mix, labels


def test_it_keeps_what_retrieves_best_and_says_by_how_much():
    comparison = trainers.Auto(candidates=FORMS, queries=200).compare(Pairs(*linear()))
    assert comparison.decided_by == "recall_at_10"
    assert comparison.best.name == "Ridge"
    assert [c.score for c in comparison.candidates] == sorted((c.score for c in comparison.candidates), reverse=True)
    assert 0 < comparison.lead.low <= comparison.lead.value <= comparison.lead.high
    assert comparison.best.cosine > 0.9
    assert comparison.best.seconds > 0


def test_a_rigid_form_wins_where_pairs_are_few():
    candidates = (Procrustes(), Ridge(penalties=(1e-6,)))
    assert trainers.Auto(candidates=candidates, k=3).compare(Pairs(*rotated())).best.name == "Procrustes"


def test_with_labels_classes_seen_and_unseen_count_alike():
    source, target, labels = classes()
    comparison = trainers.Auto(candidates=(Procrustes(), Ridge())).compare(Pairs(source, target, labels=labels))
    assert comparison.decided_by == "map"
    groups = comparison.best.groups
    assert groups.keys() == {"seen", "unseen"}
    for figures in groups.values():
        assert figures.keys() == {"recall_at_10", "cmc_1", "map"}
        assert all(0 <= figure <= 1 for figure in figures.values())
    assert comparison.best.score == pytest.approx((groups["seen"]["map"] + groups["unseen"]["map"]) / 2)
    by_row = trainers.Auto(candidates=(Ridge(),), by="row").compare(Pairs(source, target, labels=labels))
    assert by_row.best.groups.keys() == {"held_out"}
    assert by_row.lead is None


def test_what_cannot_run_is_skipped_with_the_reason_and_listed_last():
    source, target = linear(300)
    comparison = trainers.Auto(candidates=FORMS, queries=50).compare(Pairs(source, target[:, :5]))
    last = comparison.candidates[-1]
    assert (last.name, last.score) == ("MeanShift", None)
    assert "one dimension" in last.skipped
    with pytest.raises(InvalidInput, match=r"candidate that can run.*MeanShift.*one dimension"):
        trainers.Auto(candidates=(MeanShift(),)).fit(Pairs(source, target[:, :5]))


def test_the_artifact_is_the_winner_fitted_on_all_pairs_with_the_table_in_its_figures():
    pairs = Pairs(*linear(400))
    artifact = trainers.Auto(candidates=FORMS, queries=50).fit(pairs)
    loaded = Artifact.from_bytes(*artifact.to_bytes())
    whole = Ridge(holdout=0.0).fit(pairs)
    np.testing.assert_array_equal(loaded.tensors["h.mixer.0.weight"], whole.tensors["h.mixer.0.weight"])
    table = loaded.manifest.figures["auto"]
    assert table["candidates"][0]["name"] == loaded.manifest.method == "Ridge"
    own = loaded.manifest.figures["h"]
    assert own["recall_at_10"] == table["candidates"][0]["score"]
    assert own["cosine_similarity"] == table["candidates"][0]["cosine"]
    assert table["lead"]["value"] == pytest.approx(table["candidates"][0]["score"] - table["candidates"][1]["score"])
    assert loaded.manifest.settings["auto"]["candidates"] == ["MeanShift", "Procrustes", "DiagonalScale", "Ridge"]


def test_equal_seeds_give_equal_tables():
    pairs = Pairs(*linear(300))
    auto = trainers.Auto(candidates=(Procrustes(), trainers.DriftAdapter(epochs=2, device="cpu")), queries=50)
    one, two = (auto.compare(pairs) for _ in range(2))
    assert [(c.name, c.score) for c in one.candidates] == [(c.name, c.score) for c in two.candidates]
    assert one.lead == two.lead
    assert one.candidates[0].name == "Procrustes" or "epochs=2" in one.candidates[0].name


def judged(groups, fitted, **settings):
    defaults = {"k": 2, "queries": 50, "rows": 500, "metric": "l2", "seed": 0}
    return RetrievalTest(fitted, groups, **defaults | settings)


def test_a_perfect_transform_scores_one_and_a_constant_one_scores_nothing():
    vectors, labels = np.random.default_rng(0).normal(size=(90, 3)), np.arange(90) % 5
    centres = np.random.default_rng(1).normal(size=(5, 3))[labels] * 50 + vectors
    pairs = Pairs(centres, centres, labels=labels)
    test = judged({"seen": pairs.subset(range(45))}, pairs.subset(range(45, 90)))
    perfect = test.run(MeanShift(holdout=0.0).fit(pairs)).scores
    for figure in ("recall_at_2", "cmc_1", "map"):
        np.testing.assert_allclose(perfect[figure], 1.0)
    constant = Ridge(penalties=(1e30,), holdout=0.0).fit(Pairs(np.ones((9, 3)), np.ones((9, 3))))
    flat = test.run(constant).scores
    assert flat["recall_at_2"].max() == flat["cmc_1"].max() == 0
    assert flat["map"].max() < 0.3


def test_fitted_rows_are_never_a_right_answer_but_may_be_a_wrong_one():
    rows, near = np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([[0.1], [5.0], [10.5]])
    held_out, fitted = Pairs(rows, rows, labels=[0, 0, 1, 1]), Pairs(near, near, labels=[0, 2, 1])
    identity = MeanShift(holdout=0.0).fit(held_out)
    scores = judged({"held_out": held_out}, fitted, k=1).run(identity).scores
    assert scores["cmc_1"].min() == scores["recall_at_1"].min() == 1
    wrong = Pairs(near, near, labels=[7, 8, 9])
    found = judged({"held_out": held_out}, wrong, k=1).run(identity).scores
    assert found["cmc_1"].max() < 1
    assert found["recall_at_1"].min() == 1


def test_nothing_to_judge_by_is_refused():
    source, target = linear(40)
    with pytest.raises(InvalidInput, match="two held-out rows of one class"):
        trainers.Auto(candidates=FORMS).fit(Pairs(source, target, labels=np.arange(40)))
    assert trainers.Auto(candidates=FORMS).compare(Pairs(source, target, labels=np.zeros(40, int))).best.groups


def test_the_interval_covers_the_true_mean_and_widens_with_whole_classes():
    rng = np.random.default_rng(0)
    units = np.arange(400) // 20
    scores = 0.1 + rng.normal(size=20)[units] * 0.2 + rng.normal(size=400) * 0.1
    scores[::7] = np.nan
    groups = {"a": slice(0, 200), "b": slice(200, 400)}
    whole = interval(scores, groups, units, seed=0)
    single = interval(scores, groups, np.arange(400), seed=0)
    assert whole.low < 0.1 < whole.high
    assert whole.high - whole.low > 2 * (single.high - single.low)


@pytest.mark.full
def test_the_default_candidates_run_with_side_information():
    source, target = linear(300)
    pairs = Pairs(source[:, :5], target, side=source[:, 5:])
    comparison = trainers.Auto(queries=50).compare(pairs)
    assert len(comparison.candidates) == len(trainers.Auto().candidates)
    assert [c.name for c in comparison.candidates if c.skipped] == ["MeanShift"]
    assert comparison.best.name.partition("(")[0] in ("Ridge", "LowRankRidge", "Residual"), "these read it"


@pytest.mark.full
@pytest.mark.parametrize("by", ["row", "class"])
def test_what_a_winner_lets_expect_of_cosines_is_measured_on_rows_that_the_first_fit_has_not_seen(by):
    source, target = linear(600)
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    pairs = Pairs(source, target, labels=np.arange(600) % 8)
    found = trainers.Auto(candidates=(Ridge(),), queries=50, by=by).fit(pairs)
    assert found.manifest.method == "Ridge"
    shrinkage = Shrinkage.of(found.manifest.figures)
    assert shrinkage is not None
    fitted, held_out = pairs.split(0.2, 0, by)
    if by == "class":
        fitted, held_out = fitted.split(0.2, 0)
    made = Ridge(holdout=0).fit(fitted).apply(held_out.source)
    assert shrinkage == shrinkage_of(HeldOutRows(made.uncertainty, made.vectors, held_out.target, held_out.labels))
    of_one = trainers.Auto(candidates=(Procrustes(),), queries=50, by=by).fit(pairs)
    assert Shrinkage.of(of_one.manifest.figures) is None
