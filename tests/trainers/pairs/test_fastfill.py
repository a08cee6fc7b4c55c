import numpy as np
import pytest
from labelled_spaces import classes

import compatstore as cs
from compatstore import trainers
from compatstore.artifacts import Artifact
from compatstore.errors import InvalidInput
from compatstore.evaluation import kendall_tau, retrieval_metrics
from compatstore.trainers import Pairs
from lazily import Lazy

heads = Lazy("compatstore.trainers.pairs.two_branch")
torch = Lazy("torch")

NETWORK = {"epochs": 30, "branch_width": 32, "mixer_width": 64, "batch_size": 128, "learning_rate": 4e-3}
SMALL = NETWORK | {"scale": 64.0, "disc_weight": 1.0}


def heteroscedastic(n=2000, seed=0):
    """A linear map whose noise has a deviation that the first value of x decides."""
    rng = np.random.default_rng(seed)
    source = rng.normal(size=(n, 4))
    maps = np.random.default_rng(99).normal(size=(4, 6))
    deviation = 0.5 * np.exp(source[:, 0])
    return source, source @ maps + deviation[:, None] * rng.normal(size=(n, 6)), deviation


def fit(seed=0, unit=True, rows=1500, **changed):
    source, native, labels = classes(rows, unit=unit)
    return trainers.FastFill(**SMALL | {"seed": seed} | changed).fit(Pairs(source, native, labels=labels))


@pytest.fixture(scope="module")
def aligned():
    return fit()


@pytest.mark.full
def test_sigma2_follows_the_variance_of_the_noise_where_that_is_known():
    source, target, _ = heteroscedastic()
    artifact = trainers.FastFill(**SMALL, loss="l2").fit(Pairs(source, target))
    fresh, _, deviation = heteroscedastic(seed=1)
    sigma2 = artifact.apply(fresh).uncertainty
    assert kendall_tau(sigma2, deviation) > 0.7
    assert 0.3 < np.median(sigma2 / deviation**2) < 3
    assert artifact.manifest.figures["h"]["kendall_tau"] > 0.4


@pytest.mark.full
def test_the_backfill_gains_most_in_the_order_of_sigma2(aligned):
    source, native, labels = classes(300, seed=1)
    moved = aligned.apply(source)

    def area(artifact, order):
        vectors = artifact.apply(source).vectors
        ids = np.arange(300)
        mixed = [np.where(np.isin(ids, order[:count])[:, None], native, vectors) for count in range(0, 301, 30)]
        return np.mean([retrieval_metrics(native, one, labels, labels, ids, ids).map for one in mixed])

    by_sigma = area(aligned, np.argsort(-moved.uncertainty))
    assert by_sigma > area(aligned, np.random.default_rng(0).permutation(300))
    assert by_sigma > area(aligned, np.argsort(moved.uncertainty))
    l2 = trainers.FCT(**NETWORK).fit(Pairs(*classes(600)[:2]))
    assert by_sigma > area(l2, np.random.default_rng(0).permutation(300))


def test_figures_say_how_well_sigma2_orders_the_losses(aligned):
    figures = Artifact.from_bytes(*aligned.to_bytes()).manifest.figures["h"]
    assert figures["rows"] == 150
    assert figures["kendall_tau"] > 0.3
    assert figures["kendall_tau_l2"] > 0.2
    assert figures["mean_sigma2"] > 0


@pytest.mark.full
@pytest.mark.parametrize(("unit", "disc", "head"), [(True, "arcface", "means"), (False, "cross-entropy", "regression")])
def test_loss_and_head_follow_the_space_and_stand_in_the_manifest(unit, disc, head):
    resolved = fit(unit=unit, rows=300, epochs=1).manifest.settings["resolved"]
    assert (resolved["loss"], resolved["disc"], resolved["inverse_lambda"]) == (
        "l2+disc",
        disc,
        trainers.FastFill().inverse_lambda * 8,
    )
    assert head in resolved["head"]


@pytest.mark.full
def test_the_targets_own_head_is_taken_where_there_is_one():
    source, native, labels = classes(300)
    head = heads.class_means(Pairs(source, native, labels=labels)).rows
    pairs = Pairs(source, native, labels=labels, head=head)
    short = SMALL | {"epochs": 1}
    assert trainers.FastFill(**short).fit(pairs).manifest.settings["resolved"]["head"] == "given"
    assert "fitted" in trainers.FastFill(**short, head="fitted").fit(pairs).manifest.settings["resolved"]["head"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("told", "named", "used"),
    [
        (None, {}, ("arcface", 0.5)),
        (None, {"disc": "cosface"}, ("cosface", 0.35)),
        (cs.HeadLoss("arcface", 0.3), {}, ("arcface", 0.3)),
        (cs.HeadLoss("cosface", 0.2), {}, ("cosface", 0.2)),
        (cs.HeadLoss("cosface", 0.2), {"margin": 0.1}, ("cosface", 0.1)),
        (cs.HeadLoss("cosface", 0.2), {"disc": "arcface"}, ("arcface", 0.5)),
        (cs.HeadLoss("cosface"), {}, ("cosface", 0.0)),
        (cs.HeadLoss("cross-entropy"), {}, ("cross-entropy", None)),
    ],
)
def test_the_loss_through_the_head_is_the_target_s_own_where_its_version_says_it(told, named, used):
    source, native, labels = classes(300)
    version = cs.EmbeddingVersion("v2", dim=native.shape[1], normalised=True, head_loss=told)
    trainer = trainers.FastFill(**SMALL | {"epochs": 1}, **named)
    resolved = trainer.fit(Pairs(source, native, labels=labels, target_version=version)).manifest.settings["resolved"]
    assert (resolved["disc"], resolved.get("margin")) == used


def test_labels_that_are_no_rows_of_the_head_are_refused_by_name():
    source, native, labels = classes(40)
    for wrong, named in ((labels + 3, "8"), (np.array(["a", "b"])[labels % 2], "b")):
        pairs = Pairs(source, native, labels=wrong, head=np.eye(8)[:6])
        with pytest.raises(InvalidInput, match=f"0 to 5.*{named}.*fitted"):
            trainers.FastFill(**SMALL).fit(pairs)
    with pytest.raises(InvalidInput, match="a head"):
        heads.given_head(Pairs(source, native, labels=labels))


def test_without_labels_it_says_what_is_lost():
    source, native, _ = classes()
    notes = set()
    artifact = trainers.FastFill(**SMALL | {"epochs": 2}).fit(
        Pairs(source, native), lambda report: notes.add(report.note)
    )
    assert len(notes) == 1
    assert "no labels" in notes.pop()
    assert artifact.manifest.settings["resolved"]["loss"] == "l2"
    assert "no labels" in artifact.manifest.settings["resolved"]["note"]
    assert artifact.apply(source).uncertainty is not None
    with pytest.raises(InvalidInput, match="labels"):
        trainers.FastFill(**SMALL, loss="disc").fit(Pairs(source, native))


@pytest.mark.full
def test_the_loss_through_the_head_keeps_items_in_their_class():
    source, native, labels = classes(800, seed=2, unit=False)
    both, plain = (
        fit(unit=False, rows=600, loss=loss, uncertainty=False).apply(source).vectors for loss in ("l2+disc", "l2")
    )
    centres = np.array([native[labels == label].mean(axis=0) for label in range(6)])
    logits = [vectors @ centres.T for vectors in (both, plain)]
    doubt = [np.log(np.exp(each).sum(axis=1)) - each[np.arange(800), labels] for each in logits]
    assert doubt[0].mean() < doubt[1].mean()


@pytest.mark.full
def test_fitted_heads_know_their_classes():
    source, native, labels = classes(unit=False)
    pairs = Pairs(source, 50 * native, labels=np.array(list("abcdef"))[labels])
    regression = heads.logistic_regression(pairs, label_smoothing=0.1, seed=0, device=torch.device("cpu"))
    for head in (regression, heads.class_means(pairs)):
        assert head.names.tolist() == list("abcdef")
        assert (regression.names[(pairs.target @ head.rows.T).argmax(axis=1)] == pairs.labels).mean() > 0.9
    np.testing.assert_allclose(np.linalg.norm(heads.class_means(pairs).rows, axis=1), 1, atol=1e-6)
    with pytest.raises(InvalidInput, match="two classes"):
        heads.class_means(Pairs(source, native, labels=np.zeros(len(source))))


@pytest.mark.full
def test_side_information_is_read_by_h_and_made_by_g():
    source, native, labels = classes(600)
    side = native[:, 4:]
    pairs = Pairs(source, native, labels=labels, side=side, target_side=side[:, :2])
    short = SMALL | {"epochs": 12}
    artifact = trainers.FastFill(**short, side_transform=True).fit(pairs)
    moved = artifact.apply(source, side)
    blind = trainers.FastFill(**short).fit(Pairs(source, native, labels=labels)).apply(source)
    assert np.square(moved.vectors - native).mean() < np.square(blind.vectors - native).mean()
    assert moved.side.shape == (600, 2)
    assert artifact.manifest.figures["g"].keys().isdisjoint({"kendall_tau", "mean_sigma2"})


@pytest.mark.full
def test_a_long_target_space_is_learned_as_a_short_one_where_the_losses_are_weighed_alike():
    source, native, labels = classes(400, unit=False)
    short = SMALL | {"epochs": 8, "head": "fitted", "holdout": 0.2}
    far = np.float32(64)  # a power of two: no product is rounded another way
    one = trainers.FastFill(**short).fit(Pairs(source, native, labels=labels)).apply(source)
    other = (
        trainers.FastFill(**short | {"disc_weight": far**2})
        .fit(Pairs(source, far * native, labels=labels))
        .apply(source)
    )
    # All but the optimiser's epsilon and the rounding of sigma^2's logarithm is the same.
    np.testing.assert_allclose(other.vectors / far, one.vectors, atol=0.02)
    np.testing.assert_allclose(other.uncertainty / far**2, one.uncertainty, rtol=0.05)


@pytest.mark.full
def test_equal_seeds_give_equal_weights():
    short = {"rows": 300, "epochs": 2, "device": "cpu"}
    first, again, other = fit(**short), fit(**short), fit(**short, seed=1)
    assert first.manifest.weights_sha256 == again.manifest.weights_sha256 != other.manifest.weights_sha256


@pytest.mark.full
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_both_precisions_learn(precision):
    source, native, labels = classes(600)
    pairs = Pairs(source, native, labels=labels)
    artifact = trainers.FastFill(**SMALL | {"epochs": 8}, precision=precision).fit(pairs)
    figures = artifact.manifest.figures["h"]
    assert figures["mean_squared_error"] < 0.8 * figures["mean_squared_error_of_mean"]
    assert all(tensor.dtype == np.float32 for tensor in artifact.tensors.values())
