"""What a network launches on a GPU is recorded once and replayed, and nothing else changes."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from compatstore import trainers
from compatstore.encoders.backbones import (
    Backbone,
    BasisTransformed,
    SmallConvNet,
    SmallVisionTransformer,
    TimmBackbone,
)
from lazily import Lazy

nn = Lazy("torch.nn")
recorded = Lazy("compatstore.trainers.images.recorded")
torch = Lazy("torch")

on_gpu = pytest.mark.usefixtures("gpu")
NETWORKS: tuple[Backbone, ...] = (
    SmallConvNet(size=16, dim=8, channels=3, width=8),
    SmallVisionTransformer(size=16, dim=8, channels=3, width=16),
    TimmBackbone(name="resnet18", dim=8),
    BasisTransformed(inner=SmallConvNet(size=16, dim=12, channels=3, width=8), source_dim=4, extra=2),
)


@pytest.fixture
def gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")


def squares(network: nn.Module, frozen: nn.Module | None = None) -> nn.Module:
    """The mean square of what a network makes of its input, or of its distance to what a frozen one makes of it."""

    class Squares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network
            self.other = None if frozen is None else Frozen()

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.network(pixels).float()
            return made.square().mean() if self.other is None else (made - self.other(pixels)).square().mean()

    class Frozen(nn.Module):
        """In evaluation mode, without gradients."""

        def __init__(self) -> None:
            super().__init__()
            self.network = frozen.eval()

        def train(self, mode: bool = True) -> Frozen:
            return super().train(False)

        @torch.no_grad()
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return self.network(pixels).float()

    return Squares()


def pixels_of(seed: int, count: int = 24, device: str = "cuda") -> torch.Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed)).to(device)


def steps(objective: nn.Module, batches: list[torch.Tensor]) -> list[float]:
    """Losses of steps of gradient descent."""
    optimiser = torch.optim.SGD([part for part in objective.parameters() if part.requires_grad], 0.05)
    losses = []
    for pixels in batches:
        with torch.autocast("cuda", torch.bfloat16, enabled=pixels.is_cuda):
            loss = objective(pixels)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    return losses


def test_on_a_processor_nothing_is_recorded_and_the_network_is_as_before() -> None:
    network = NETWORKS[0].build()
    one, other = squares(network), squares(copy.deepcopy(network))
    batches = [pixels_of(seed, device="cpu") for seed in range(3)]
    with recorded.recorded(one):
        found = steps(one, batches)
    assert found == steps(other, batches)
    assert "forward" not in vars(network)
    for tensor, expected in zip(network.state_dict().values(), other.network.state_dict().values(), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=0, atol=0)


@on_gpu
@pytest.mark.parametrize("backbone", NETWORKS, ids=lambda one: type(one).__name__)
def test_replayed_steps_are_those_of_launched_ones(backbone: Backbone) -> None:
    torch.manual_seed(0)
    network, frozen = backbone.build(), backbone.build().requires_grad_(False)
    one = squares(network, frozen).cuda().train()
    other = copy.deepcopy(one)
    batches = [pixels_of(seed) for seed in range(4)]
    # A batch of another size is launched, between two that are replayed.
    batches.insert(2, pixels_of(9, count=10))
    with recorded.recorded(one):
        found = steps(one, batches)
        assert "forward" in vars(getattr(network, "inner", network))
    np.testing.assert_allclose(found, steps(other, batches), rtol=0.05)
    for (name, tensor), expected in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(tensor.float(), expected.float(), rtol=0.1, atol=0.02, msg=name)


@on_gpu
def test_two_calls_before_the_gradients_of_the_first_give_those_of_both() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(768, 8), nn.Tanh()).cuda()
    objective = squares(network)
    first, second = pixels_of(0), pixels_of(1)
    expected = torch.autograd.grad(objective(first) + 3 * objective(second), list(network.parameters()))
    with recorded.recorded(objective):
        for _ in range(3):
            made = torch.autograd.grad(objective(first) + 3 * objective(second), list(network.parameters()))
    for tensor, other in zip(made, expected, strict=True):
        torch.testing.assert_close(tensor, other, rtol=1e-3, atol=1e-5)


@on_gpu
def test_trainers_learn_with_recorded_networks(recwarn: pytest.WarningsRecorder) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(240) % 4
    pixels = np.clip(60 * labels[:, None, None, None] + random.integers(0, 60, (240, 16, 16, 3)), 0, 255)
    images = trainers.Images(pixels.astype(np.uint8), labels)
    loop = {"width": 8, "epochs": 6, "batch_size": 32, "warmup_epochs": 1.0}
    source = trainers.Independent(dim=8, **loop).fit(images, held_out=images)
    target = trainers.BCT(dim=8, **loop).fit(images, source, held_out=images)
    longer = trainers.BT2(dim=10, extra=2, **loop).fit(images, source, held_out=images)
    trainers.SimCLR(dim=8, **loop).fit(images)
    assert min(model.figures["accuracy"] for model in (source, target, longer)) > 0.9
    assert not [one for one in recwarn if "recorded" in str(one.message)]
