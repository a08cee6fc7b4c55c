"""The losses against slow, plain re-statements, and what their gradients reach."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore import trainers
from compatstore.trainers import Pairs
from compatstore.trainers.pairs.trainer import agreement
from lazily import Lazy
from properties import examples

heads = Lazy("compatstore.trainers.pairs.two_branch")
loop = Lazy("compatstore.trainers.pairs.loop")
losses = Lazy("pytorch_metric_learning.losses")
reducers = Lazy("pytorch_metric_learning.reducers")
stats = Lazy("scipy.stats")
through_head = Lazy("compatstore.trainers.pairs.through_head")
torch = Lazy("torch")
two_branch = Lazy("compatstore.trainers.pairs.two_branch")

SMOOTHING, MARGIN, SCALE = 0.1, 0.5, 64.0


def drawn(seed=0, n=7, dim=5, classes=4):
    generator = torch.Generator().manual_seed(seed)
    vectors, target, head = (torch.randn(rows, dim, generator=generator) for rows in (n, n, classes))
    labels = torch.randint(classes, (n,), generator=generator)
    batch = loop.Batch(source=torch.zeros(n, 1), target=target, classes=labels)
    return two_branch.Prediction(vectors, torch.randn(n, generator=generator)), batch, head


def softmax_entropy(logits, wanted):
    total = sum(math.exp(value) for value in logits)
    return -sum(share * (value - math.log(total)) for share, value in zip(wanted, logits, strict=True))


def plain_cross_entropy(vector, head, label):
    wanted = [SMOOTHING / len(head) + (1 - SMOOTHING) * (row == label) for row in range(len(head))]
    return softmax_entropy([sum(a * b for a, b in zip(vector, row, strict=True)) for row in head], wanted)


def plain_arcface(vector, head, label):
    logits = []
    for row, weight in enumerate(head):
        cosine = sum(a * b for a, b in zip(vector, weight, strict=True)) / (math.hypot(*vector) * math.hypot(*weight))
        angle = math.acos(cosine)
        if row == label:
            far = angle + MARGIN > math.pi
            cosine = cosine - MARGIN * math.sin(MARGIN) if far else math.cos(angle + MARGIN)
        logits.append(SCALE * cosine)
    return softmax_entropy(logits, [float(row == label) for row in range(len(head))])


def plain_cosface(vector, head, label):
    logits = []
    for row, weight in enumerate(head):
        cosine = sum(a * b for a, b in zip(vector, weight, strict=True)) / (math.hypot(*vector) * math.hypot(*weight))
        logits.append(SCALE * (cosine - MARGIN * (row == label)))
    return softmax_entropy(logits, [float(row == label) for row in range(len(head))])


LOSSES = {
    "cross-entropy": (lambda head: through_head.cross_entropy(head, label_smoothing=SMOOTHING), plain_cross_entropy),
    "arcface": (lambda head: through_head.margin_loss(head, margin=MARGIN, scale=SCALE), plain_arcface),
    "cosface": (lambda head: through_head.margin_loss(head, margin=MARGIN, scale=SCALE, kind="cosface"), plain_cosface),
}


@pytest.mark.parametrize("name", LOSSES)
@given(seed=st.integers(0, 10**6))
@examples(25)
def test_a_loss_through_the_head_is_its_plain_formula(name, seed):
    prediction, batch, head = drawn(seed)
    make, plain = LOSSES[name]
    rows = zip(prediction.vectors.tolist(), batch.classes.tolist(), strict=True)
    expected = [plain(vector, head.tolist(), label) for vector, label in rows]
    assert make(head)(prediction, batch).tolist() == pytest.approx(expected, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "theirs", "margin"),
    [("arcface", "ArcFaceLoss", math.degrees(MARGIN)), ("cosface", "CosFaceLoss", MARGIN)],
)
def test_a_loss_with_a_margin_is_that_of_pytorch_metric_learning(kind, theirs, margin):
    prediction, batch, head = drawn(n=64)
    loss = getattr(losses, theirs)(4, 5, margin=margin, scale=SCALE, reducer=reducers.DoNothingReducer())
    loss.W.data = head.T.clone()
    expected = loss(prediction.vectors, batch.classes)["loss"]["losses"]
    found = through_head.margin_loss(head, margin=MARGIN, scale=SCALE, kind=kind)(prediction, batch)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("loss", ["l2", "disc", "l2+disc"])
@pytest.mark.parametrize("disc", ["cross-entropy", "arcface", "cosface"])
@pytest.mark.parametrize("weight", [None, 0.5])
def test_fastfill_minimises_its_equation_5(loss, disc, weight):
    prediction, batch, head = drawn()
    pairs = Pairs(batch.target.numpy(), batch.target.numpy(), labels=batch.classes.numpy(), head=head.numpy())
    given = {"disc": disc, "margin": MARGIN, "label_smoothing": SMOOTHING, "disc_weight": weight}
    trainer = trainers.FastFill(loss=loss, device="cpu", **given)
    found = trainer.objective(pairs)(prediction, batch)
    expected = []
    for row in range(len(batch)):
        vector, target = prediction.vectors[row].tolist(), batch.target[row].tolist()
        l2 = sum((a - b) ** 2 for a, b in zip(vector, target, strict=True))
        through_head = LOSSES[disc][1](vector, head.tolist(), batch.classes[row].item())
        error = {"l2": l2, "disc": through_head, "l2+disc": l2 + (weight or 1) * through_head}[loss]
        log_sigma2 = prediction.log_sigma2[row].item()
        expected.append(error / math.exp(log_sigma2) + 5 * log_sigma2)
    assert found.tolist() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_beta_evens_what_rows_weigh_and_leaves_the_gradient_of_sigma2_its_sign(beta):
    prediction, batch, _ = drawn()
    vectors = prediction.vectors.detach().requires_grad_()
    log_sigma2 = prediction.log_sigma2.detach().requires_grad_()
    pairs = Pairs(batch.target.numpy(), batch.target.numpy())
    trainer = trainers.FastFill(loss="l2", beta=beta, device="cpu")
    trainer.objective(pairs)(two_branch.Prediction(vectors, log_sigma2), batch).sum().backward()
    sigma2, dim = log_sigma2.detach().exp(), batch.target.shape[1]
    apart = vectors.detach() - batch.target
    torch.testing.assert_close(vectors.grad, 2 * apart * (sigma2 ** (beta - 1))[:, None], rtol=1e-4, atol=1e-5)
    expected = sigma2**beta * (dim - apart.square().sum(dim=1) / sigma2)
    torch.testing.assert_close(log_sigma2.grad, expected, rtol=1e-4, atol=1e-4)


def test_without_uncertainty_the_error_alone_is_minimised():
    prediction, batch, _ = drawn()
    trainer = trainers.FastFill(loss="l2", uncertainty=False)
    objective = trainer.objective(Pairs(batch.target.numpy(), batch.target.numpy()))
    assert torch.equal(objective(prediction, batch), loop.squared_distance(prediction, batch))
    assert not objective.uncertainty


def test_the_best_sigma2_is_the_error_over_d():
    _, batch, _ = drawn(dim=8)
    objective = loop.Objective(inverse_lambda=8.0)
    errors = loop.squared_distance(two_branch.Prediction(torch.zeros(7, 8), None), batch)
    log_sigma2 = torch.log(errors / 8).requires_grad_()
    objective(two_branch.Prediction(torch.zeros(7, 8), log_sigma2), batch).sum().backward()
    torch.testing.assert_close(log_sigma2.grad, torch.zeros(7), atol=1e-5, rtol=0)


@pytest.mark.parametrize("extreme", [-1e4, 1e4])
@pytest.mark.parametrize("aligned", [1.0, -1.0, 0.0])
def test_losses_and_gradients_stay_finite_at_extremes(extreme, aligned):
    head = torch.eye(3)
    vectors = (aligned * head).requires_grad_()
    log_sigma2 = torch.full((3,), extreme, requires_grad=True)
    batch = loop.Batch(source=torch.zeros(3, 1), target=head, classes=torch.arange(3))
    objective = loop.Objective(error=through_head.margin_loss(head, margin=MARGIN, scale=SCALE), inverse_lambda=3.0)
    objective(two_branch.Prediction(vectors, log_sigma2), batch).mean().backward()
    assert torch.isfinite(vectors.grad).all()
    assert torch.isfinite(log_sigma2.grad).all()


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_reach_the_prediction_and_not_the_head(name):
    prediction, batch, head = drawn()
    vectors = prediction.vectors.requires_grad_()
    LOSSES[name][0](head)(two_branch.Prediction(vectors, None), batch).sum().backward()
    assert (vectors.grad.abs().sum(dim=1) > 0).all()
    assert head.grad is None


@pytest.mark.parametrize("name", LOSSES)
def test_a_class_that_the_head_does_not_know_costs_nothing(name):
    prediction, batch, head = drawn()
    strange = loop.Batch(source=batch.source, target=batch.target, classes=torch.full_like(batch.classes, -1))
    loss = LOSSES[name][0](head)
    assert loss(prediction, strange).tolist() == [0.0] * len(batch)
    assert loss(prediction, loop.Batch(source=batch.source, target=batch.target)).tolist() == [0.0] * len(batch)


def test_labels_find_their_rows_of_the_head():
    head = heads.Head(rows=np.eye(3, dtype=np.float32), names=np.array(["ant", "bee", "cat"]), origin="given")
    assert head.classes(np.array(["cat", "ant", "dog"])).tolist() == [2, 0, -1]
    assert head.classes(np.array([1, 2])).tolist() == [-1, -1]


@pytest.mark.full
@given(st.lists(st.tuples(st.integers(-3, 3), st.floats(-2, 2, width=16)), min_size=2, max_size=60))
def test_kendalls_tau_is_scipys(values):
    one, other = zip(*values, strict=True)
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert agreement(one, other) == 0
    else:
        assert agreement(one, other) == pytest.approx(stats.kendalltau(one, other).statistic, abs=1e-9)


def test_kendalls_tau_goes_on_over_blocks():
    one, other = np.random.default_rng(0).normal(size=(2, 1300))
    assert agreement(one, one + other) == pytest.approx(stats.kendalltau(one, one + other).statistic, abs=1e-12)
