import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.artifacts import Architecture
from compatstore.artifacts.network import Execution, Network
from compatstore.documents import Malformed, read_record
from compatstore.errors import CorruptArtifact, InvalidInput
from properties import examples

pytestmark = pytest.mark.kernel


def reference(tensors, source, side):
    """The drawing in architecture.py, layer by layer, in float64."""

    def dense(name, values):
        return values @ tensors[f"{name}.weight"].T.astype(np.float64) + tensors[f"{name}.bias"]

    first = np.maximum(dense("source.1", np.maximum(dense("source.0", source), 0)), 0)
    second = np.maximum(dense("side.0", side), 0)
    mixed = np.maximum(dense("mixer.0", np.concatenate([first, second], axis=1)), 0)
    output = dense("mixer.1", mixed) + source @ tensors["skip.weight"].T + side @ tensors["skip_side.weight"].T
    sigma2 = np.exp(np.clip(dense("log_sigma2", output)[:, 0], -80, 80))
    return output / np.linalg.norm(output, axis=1, keepdims=True), sigma2


@pytest.fixture
def inputs():
    rng = np.random.default_rng(1)
    return rng.normal(size=(200, 6)).astype(np.float32), rng.normal(size=(200, 3)).astype(np.float32)


def test_numpy_computes_the_drawn_network(architecture, tensors, inputs):
    vectors, sigma2 = Network(architecture, tensors).run(*inputs, Execution(batch_size=64))
    expected, expected_sigma2 = reference(tensors, *inputs)
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    np.testing.assert_allclose(np.log(sigma2), np.log(expected_sigma2), atol=1e-3)
    assert vectors.dtype == sigma2.dtype == np.float32


def test_bfloat16_runs_on_torch_and_stays_close(architecture, tensors, inputs):
    vectors, sigma2 = Network(architecture, tensors).run(*inputs, Execution(precision="bfloat16"))
    expected, _ = reference(tensors, *inputs)
    assert (vectors * expected).sum(axis=1).min() > 0.999
    assert sigma2.shape == (200,)
    assert vectors.dtype == np.float32


@pytest.mark.parametrize(("precision", "apart"), [("float32", 2e-6), ("bfloat16", 2e-2)])
def test_a_radial_layer_falls_with_the_squared_distance_to_its_centres(precision, apart):
    architecture = Architecture(source_dim=5, output_dim=3, mixer=(40, 7), radial=True)
    rng = np.random.default_rng(3)
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in architecture.shapes().items()}
    source, centres, gamma = rng.normal(size=(90, 5)).astype(np.float32), rng.normal(size=(40, 5)), 0.3
    tensors["mixer.0.weight"] = (2 * gamma * centres).astype(np.float32)
    tensors["mixer.0.bias"] = (-gamma * (centres**2).sum(axis=1)).astype(np.float32)
    tensors["mixer.0.gamma"] = np.array([gamma], np.float32)
    units = np.exp(-gamma * ((source[:, None] - centres) ** 2).sum(axis=2))
    hidden = np.maximum(units @ tensors["mixer.1.weight"].T + tensors["mixer.1.bias"], 0)
    expected = hidden @ tensors["mixer.2.weight"].T + tensors["mixer.2.bias"]
    vectors, _ = Network(architecture, tensors).run(source, None, Execution(precision=precision))
    assert np.abs(vectors - expected).max() < apart * np.abs(expected).max()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@examples(25)
@given(rows=st.integers(1, 300), batch=st.sampled_from([32, 100, 128]))
def test_rows_have_the_same_bits_however_many_follow(precision, rows, batch):
    architecture = Architecture(source_dim=48, output_dim=40, source_branch=(70,), mixer=(130,), uncertainty=True)
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in architecture.shapes().items()}
    source = rng.normal(size=(300, 48)).astype(np.float32)
    network, execution = Network(architecture, tensors), Execution(batch_size=batch, precision=precision)
    vectors, sigma2 = network.run(source, None, execution)
    fewer, fewer_sigma2 = network.run(source[:rows], None, execution)
    assert np.array_equal(fewer, vectors[:rows])
    assert np.array_equal(fewer_sigma2, sigma2[:rows])


def test_no_rows_give_no_rows(architecture, tensors):
    vectors, sigma2 = Network(architecture, tensors).run(
        np.empty((0, 6), np.float32), np.empty((0, 3), np.float32), Execution()
    )
    assert vectors.shape == (0, 4)
    assert sigma2.shape == (0,)


def test_an_empty_network_is_one_linear_map():
    architecture = Architecture(source_dim=2, output_dim=2)
    tensors = {"mixer.0.weight": np.array([[0, 1], [-2, 0]], np.float32), "mixer.0.bias": np.array([0, 1], np.float32)}
    vectors, sigma2 = Network(architecture, tensors).run(np.array([[3, 4]], np.float32), None, Execution())
    assert vectors.tolist() == [[4, -5]]
    assert sigma2 is None


@pytest.mark.parametrize(
    "wrong", [{"batch_size": 0}, {"device": "abacus"}, {"device": "cuda:9999"}, {"precision": "float8"}]
)
def test_impossible_executions_are_refused(wrong, architecture, tensors, inputs):
    with pytest.raises(InvalidInput):
        Network(architecture, tensors).run(*inputs, Execution(**wrong))


def test_tensors_that_do_not_fit_are_named(architecture, tensors):
    tensors["mixer.0.bias"] = np.zeros(3, np.float32)
    with pytest.raises(CorruptArtifact, match=r"h\.mixer\.0\.bias.*\(16,\).*\(3,\)"):
        architecture.require("h", tensors)
    del tensors["mixer.0.bias"]
    with pytest.raises(CorruptArtifact, match="no such tensor"):
        architecture.require("h", tensors)


@pytest.mark.parametrize(
    "wrong",
    [
        {"output_dim": 0},
        {"mixer": (0,)},
        {"side_branch": (4,)},
        {"radial": True},
        {"radial": True, "mixer": (4,), "source_branch": (3,)},
        {"radial": True, "mixer": (4,), "side_dim": 2},
    ],
)
def test_impossible_architectures_are_refused(wrong):
    with pytest.raises(InvalidInput):
        Architecture(**({"source_dim": 2, "output_dim": 2} | wrong))


def test_an_architecture_survives_its_dictionary(architecture):
    assert read_record(Architecture, architecture.to_dict(), "h") == architecture
    with pytest.raises(Malformed, match="unknown field 'depth'"):
        read_record(Architecture, architecture.to_dict() | {"depth": 3}, "h")
    with pytest.raises(Malformed, match=r"h.mixer is \['wide'\], not a list or tuple, each item a whole number"):
        read_record(Architecture, architecture.to_dict() | {"mixer": ["wide"]}, "h")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_length_of_the_output_says_sigma2(precision):
    architecture = Architecture(source_dim=5, output_dim=4, normalise=True, uncertainty="length")
    assert set(architecture.shapes()) == {"mixer.0.weight", "mixer.0.bias"}
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in architecture.shapes().items()}
    source = rng.normal(size=(40, 5)).astype(np.float32)
    output = source @ tensors["mixer.0.weight"].T + tensors["mixer.0.bias"]
    lengths = np.linalg.norm(output, axis=1)
    vectors, sigma2 = Network(architecture, tensors).run(source, None, Execution(precision=precision))
    apart = 1e-5 if precision == "float32" else 2e-2
    np.testing.assert_allclose(vectors, output / lengths[:, None], atol=apart)
    np.testing.assert_allclose(sigma2, lengths**-2.0, rtol=3 * apart)
    nothing = {name: np.zeros_like(tensor) for name, tensor in tensors.items()}
    vectors, sigma2 = Network(architecture, nothing).run(source, None, Execution(precision=precision))
    assert np.isfinite(sigma2).all()
    assert (sigma2 > 1e30).all()
    assert not vectors.any()


@pytest.mark.parametrize("uncertainty", ["length", "Length", 2, None, []])
def test_only_what_can_say_sigma2_is_described(uncertainty):
    with pytest.raises(InvalidInput, match="uncertainty"):
        Architecture(source_dim=2, output_dim=2, uncertainty=uncertainty)
    if uncertainty == "length":
        described = Architecture(source_dim=2, output_dim=2, uncertainty=uncertainty, normalise=True)
        assert described.to_dict()["uncertainty"] == "length"
