from dataclasses import replace

import numpy as np
import pytest

from compatstore import trainers
from compatstore.artifacts import Architecture, Artifact
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.errors import InvalidInput
from compatstore.trainers import Pairs
from digits import load_digits
from lazily import Lazy

loop = Lazy("compatstore.trainers.pairs.loop")
torch = Lazy("torch")
two_branch = Lazy("compatstore.trainers.pairs.two_branch")

SMALL = {"epochs": 24, "branch_width": 32, "mixer_width": 64, "batch_size": 128, "learning_rate": 4e-3}


def made_up(n=1600, seed=0):
    """Source and side see different halves of what the target is made of."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n, 8))
    maps = np.random.default_rng(99).normal(size=(8, 6)) / 2
    target = np.tanh(hidden @ maps)
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    return np.tanh(hidden[:, :4]), np.tanh(hidden[:, 4:]), target


@pytest.fixture(scope="module")
def trained():
    source, side, target = made_up()
    pairs = Pairs(source, target, side=side)
    reports = []
    return trainers.FCT(**SMALL).fit(pairs, reports.append), trainers.FCT(**SMALL).fit(Pairs(source, target)), reports


def error(artifact, *inputs, target):
    return np.square(artifact.apply(*inputs).vectors - target).sum(axis=1).mean()


@pytest.mark.full
def test_it_learns_a_nonlinear_map_on_rows_it_never_saw(trained):
    source, side, target = made_up(seed=1)
    of_mean = np.square(target - target.mean(axis=0)).sum(axis=1).mean()
    assert error(trained[0], source, side, target=target) < 0.15 * of_mean


def test_side_information_helps_where_it_carries_what_is_missing(trained):
    with_side, without, _ = trained
    source, side, target = made_up(seed=1)
    assert error(with_side, source, side, target=target) < 0.5 * error(without, source, target=target)
    assert without.manifest.side_source is None


def test_output_has_unit_length_where_the_target_has(trained):
    source, side, _ = made_up(50, seed=2)
    np.testing.assert_allclose(np.linalg.norm(trained[0].apply(source, side).vectors, axis=1), 1, atol=1e-6)
    scaled = trainers.FCT(**SMALL | {"epochs": 1}).fit(Pairs(source, 3 * source))
    assert not scaled.manifest.networks["h"].normalise


def test_figures_and_settings_stand_in_the_manifest(trained):
    manifest = Artifact.from_bytes(*trained[0].to_bytes()).manifest
    figures = manifest.figures["h"]
    assert figures["rows"] == 160
    assert figures["mean_squared_error"] < 0.2 * figures["mean_squared_error_of_mean"]
    assert figures["cosine_similarity"] > 0.9
    assert figures["recall_at_10"] > 0.6
    assert 0 <= figures["recall_at_1"] <= 1
    assert (manifest.method, manifest.settings["epochs"]) == ("FCT", 24)


def test_progress_is_reported_per_epoch_and_falls(trained):
    reports = trained[2]
    assert [(r.network, r.epoch, r.epochs) for r in reports] == [("h", i, 24) for i in range(1, 25)]
    assert reports[-1].loss < 0.2 * reports[0].loss
    assert reports[-1].held_out_loss < 0.2 * reports[0].held_out_loss


def test_equal_seeds_give_equal_weights_and_leave_torchs_state_alone():
    source, side, target = made_up(100)
    pairs = Pairs(source, target, side=side)
    short = SMALL | {"epochs": 2, "device": "cpu"}
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = trainers.FCT(**short).fit(pairs)
    assert torch.equal(torch.rand(1), expected)
    again = trainers.FCT(**short).fit(pairs, lambda report: None)
    assert first.manifest.weights_sha256 == again.manifest.weights_sha256
    other = trainers.FCT(**short, seed=1).fit(pairs)
    assert first.manifest.weights_sha256 != other.manifest.weights_sha256


@pytest.mark.full
def test_the_side_transform_makes_the_next_side_information():
    source, side, target = made_up()
    next_side = np.tanh(side @ np.random.default_rng(3).normal(size=(4, 3)))
    pairs = Pairs(source, target, side=side, target_side=next_side)
    artifact = trainers.FCT(**SMALL, side_transform=True).fit(pairs)
    predicted = artifact.apply(source, side).side
    assert np.square(predicted - next_side).mean() < 0.1 * next_side.var()
    assert artifact.manifest.figures.keys() == {"h", "g", "seconds"}
    with pytest.raises(InvalidInput, match="target_side"):
        trainers.FCT(**SMALL, side_transform=True).fit(Pairs(source, target, side=side))


@pytest.mark.full
@pytest.mark.parametrize("loss", ["kl", "reversed-kl"])
def test_losses_through_the_head_agree_with_it(loss):
    source, side, target = made_up()
    head = 4 * np.random.default_rng(7).normal(size=(5, 6))
    artifact = trainers.FCT(**SMALL, loss=loss).fit(Pairs(source, target, side=side, head=head))
    fresh, fresh_side, fresh_target = made_up(seed=1)
    said = (artifact.apply(fresh, fresh_side).vectors @ head.T).argmax(axis=1)
    assert (said == (fresh_target @ head.T).argmax(axis=1)).mean() > 0.7
    with pytest.raises(InvalidInput, match="head"):
        trainers.FCT(**SMALL, loss=loss).fit(Pairs(source, target))


@pytest.mark.parametrize(("n", "batch_size"), [(2, 1024), (3, 2), (5, 4), (129, 128)])
def test_small_sets_and_odd_batches_train(n, batch_size):
    source, side, target = made_up(n)
    settings = SMALL | {"epochs": 2, "batch_size": batch_size, "holdout": 0.0}
    artifact = trainers.FCT(**settings).fit(Pairs(source, target, side=side))
    assert np.isfinite(artifact.apply(source, side).vectors).all()
    assert artifact.manifest.figures["h"].keys() == {"training_loss"}


def test_too_few_rows_are_refused():
    source, _, target = made_up(2)
    with pytest.raises(InvalidInput, match="at least 2 rows"):
        trainers.FCT(**SMALL).fit(Pairs(source, target))


def test_a_loss_that_explodes_is_refused_with_advice():
    source, _, target = made_up(100)
    with pytest.raises(InvalidInput, match="learning_rate"):
        trainers.FCT(**SMALL | {"learning_rate": 1e30}).fit(Pairs(source, 2 * target))


def test_the_default_network_is_the_papers():
    source = np.random.default_rng(0).normal(size=(4, 128))
    pairs = Pairs(source, source, side=source)
    tensors = trainers.FCT(epochs=1, holdout=0.0).fit(pairs).tensors
    assert {tensors[f"h.mixer.{i}.weight"].shape for i in range(3)} == {(2048, 512), (2048, 2048), (128, 2048)}
    assert 5.70e6 < sum(tensor.size for tensor in tensors.values()) < 5.74e6


def test_warm_up_and_freeze_scale_with_the_epochs():
    assert (trainers.FCT().warmup, trainers.FCT().freeze_after) == (5, 40)
    assert (trainers.FCT(epochs=8).warmup, trainers.FCT(epochs=8).freeze_after) == (0.5, 4)
    assert trainers.FCT(epochs=8, warmup_epochs=2).warmup == 2


@pytest.mark.full
def test_the_length_of_what_it_predicts_says_what_it_does_not_know():
    rng = np.random.default_rng(0)
    source = rng.normal(size=(2000, 6))
    known = source[:, 0] > 0  # of the others the source says half of the target
    target = np.tanh(source @ rng.normal(size=(6, 8))) + np.where(known, 0.1, 1.5)[:, None] * rng.normal(size=(2000, 8))
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    made = trainers.FCT(**SMALL, uncertainty=True).fit(Pairs(source, target))
    found = made.apply(source)
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-6)
    assert np.median(found.uncertainty[~known]) > 1.3 * np.median(found.uncertainty[known])
    # The mean of unit vectors is as long as they are near to it.
    lengths, cosines = found.uncertainty**-0.5, np.einsum("nd,nd->n", found.vectors, target)
    for rows in (known, ~known):
        assert lengths[rows].mean() == pytest.approx(cosines[rows].mean(), abs=0.1)
    assert made.manifest.figures["h"]["kendall_tau"] > 0.2
    assert Shrinkage.of(made.manifest.figures) is not None
    assert Artifact.from_bytes(*made.to_bytes()).apply(source).uncertainty.tolist() == found.uncertainty.tolist()
    chained = trainers.FCT(**SMALL | {"epochs": 1}, uncertainty=True, side_transform=True)
    adapted = chained.fit(Pairs(source, target, side=source, target_side=target))
    assert adapted.apply(source[:5], source[:5]).side.shape == (5, 8)


@pytest.mark.parametrize("wrong", [{"loss": "kl"}, {"scale": 3.0}])
def test_lengths_say_something_of_squared_distances_to_unit_vectors_alone(wrong):
    source, _, target = made_up(200)
    pairs = Pairs(source, wrong.get("scale", 1.0) * target, labels=np.arange(200) % 3, head=np.eye(3, 6))
    with pytest.raises(InvalidInput, match="unit length"):
        trainers.FCT(epochs=1, uncertainty=True, loss=wrong.get("loss", "l2")).fit(pairs)


def test_what_says_its_lengths_starts_from_the_mean():
    source, _, target = made_up(300)
    asked = trainers.FCT(**SMALL, uncertainty=True)
    linear = Architecture(source_dim=4, output_dim=6, normalise=True)
    rows = loop.Batch(source=torch.from_numpy(source), target=torch.from_numpy(target.astype(np.float32)))
    network = asked.network(asked.architecture(linear), rows).train()
    started = network(rows.source.float(), None).vectors.detach().numpy()
    np.testing.assert_allclose(started, np.broadcast_to(target.mean(axis=0), started.shape), atol=1e-6)
    plain = replace(asked, uncertainty=False)
    assert plain.network(plain.architecture(linear), rows).output.weight.abs().min() > 0


@pytest.mark.full
def test_few_steps_from_the_mean_come_nearer_than_from_random_weights():
    class FromRandomWeights(trainers.FCT):
        """Without the start from the mean."""

        def network(self, architecture, rows):
            return two_branch.TwoBranch(architecture, bias=self.bias)

    digits, labels = load_digits()
    native = digits / np.linalg.norm(digits, axis=1, keepdims=True)
    pairs = Pairs(digits[:900, ::5], native[:900], labels=labels[:900])
    small = {"branch_width": 64, "mixer_width": 256, "epochs": 40}
    cosines = {
        (trainer, told): trainer(uncertainty=told, **small).fit(pairs).manifest.figures["h"]["cosine_similarity"]
        for trainer, told in ((trainers.FCT, True), (trainers.FCT, False), (FromRandomWeights, True))
    }
    assert cosines[trainers.FCT, True] > cosines[FromRandomWeights, True] + 0.1
    assert cosines[trainers.FCT, True] > cosines[trainers.FCT, False]
