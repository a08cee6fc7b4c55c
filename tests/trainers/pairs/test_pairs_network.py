import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore import trainers
from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.network import Execution, Network
from compatstore.trainers.training import warmup_cosine
from lazily import Lazy

fct = Lazy("compatstore.trainers.pairs.fct")
loop = Lazy("compatstore.trainers.pairs.loop")
torch = Lazy("torch")
two_branch = Lazy("compatstore.trainers.pairs.two_branch")

FULL = Architecture(
    source_dim=6,
    side_dim=5,
    output_dim=4,
    source_branch=(16, 16),
    side_branch=(16, 16),
    mixer=(32, 32),
    skip=True,
    uncertainty=True,
    normalise=True,
)


def data(n=64):
    generator = torch.Generator().manual_seed(0)
    source, side, target = (torch.randn(n, dim, generator=generator) for dim in (6, 5, 4))
    return loop.Batch(source=source, side=side, target=target)


def trained(architecture, pairs, **settings):
    torch.manual_seed(0)
    model = two_branch.TwoBranch(architecture, bias=settings.pop("bias", True))
    defaults = {"epochs": 6, "batch_size": 16, "device": "cpu"}
    loop.train_on_pairs(model, pairs, trainers.FCT(**defaults | settings), loop.squared_distance)
    return model


@pytest.mark.parametrize("bias", [True, False])
def test_the_folded_network_is_the_trained_one(bias):
    pairs = data()
    model = trained(FULL, pairs, bias=bias)
    with torch.inference_mode():
        expected = model(pairs.source, pairs.side)
    tensors = {name: tensor.float().numpy() for name, tensor in two_branch.fold(model).items()}
    FULL.require("h", tensors)
    vectors, sigma2 = Network(FULL, tensors).run(pairs.source.numpy(), pairs.side.numpy(), Execution())
    np.testing.assert_allclose(vectors, expected.vectors.numpy(), atol=1e-5)
    np.testing.assert_allclose(sigma2, expected.log_sigma2.exp().numpy(), rtol=1e-4)


def test_running_statistics_are_held_after_the_freeze_while_weights_learn():
    pairs = data()
    seen = []
    torch.manual_seed(0)
    model = two_branch.TwoBranch(FULL)
    training = trainers.FCT(epochs=6, batch_size=16, device="cpu")

    def keep(progress):
        seen.append({name: value.clone() for name, value in model.state_dict().items()})

    loop.train_on_pairs(model, pairs, training, loop.squared_distance, progress=keep)
    affine = "mixer.1.weight"
    running = [name for name in seen[0] if "running" in name]
    assert running
    for name in running:
        assert not torch.equal(seen[1][name], seen[2][name])
        assert torch.equal(seen[2][name], seen[3][name])
        assert torch.equal(seen[2][name], seen[5][name])
    assert not torch.equal(seen[3][affine], seen[5][affine])


@given(steps=st.integers(1, 500), share=st.floats(0, 1))
def test_the_schedule_rises_then_falls_within_bounds(steps, share):
    rates = [warmup_cosine(step, steps=steps, warmup=share * steps) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)


def test_squared_distance_sums_over_dimensions():
    batch = loop.Batch(source=torch.zeros(2, 1), target=torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    prediction = two_branch.Prediction(torch.tensor([[3.0, 4.0], [1.0, 1.0]]), None)
    assert loop.squared_distance(prediction, batch).mean().item() == 12.5


def test_the_divergence_is_zero_on_the_target_and_reverses():
    head = torch.eye(2)
    target = torch.log(torch.tensor([[0.8, 0.2]]))
    said = torch.log(torch.tensor([[0.5, 0.5]]))
    batch = loop.Batch(source=torch.zeros(1, 1), target=target)
    forward, reverse = fct.head_divergence(head, reverse=False), fct.head_divergence(head, reverse=True)
    assert forward(two_branch.Prediction(target, None), batch).item() == pytest.approx(0, abs=1e-6)
    expected = 0.8 * math.log(0.8 / 0.5) + 0.2 * math.log(0.2 / 0.5)
    assert forward(two_branch.Prediction(said, None), batch).item() == pytest.approx(expected, rel=1e-5)
    expected = 0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2)
    assert reverse(two_branch.Prediction(said, None), batch).item() == pytest.approx(expected, rel=1e-5)
