"""Description of a network, as a manifest holds it, apart from the weights.

    source --[source branch]--+
                              +--> [mixer] --> (+ skip source, side) --> output --> (unit length)
    side ----[side branch]----+                                            |
                                                                           +--> (log sigma^2: one linear unit, or of the
                                                                                 length: -2 log |output|)

Every layer is dense and is followed by a ReLU, except the last of the mixer. Batch normalisation is no part of it:
trainers fold it into the dense layers. The first layer of the mixer may be radial instead: unit i gives
exp(-gamma |x - a_i|^2) = exp(min(w_i x + b_i - gamma |x|^2, 0)) with w_i = 2 gamma a_i and b_i = -gamma |a_i|^2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeVar

from compatstore.arrays import FloatArray
from compatstore.documents import WIDEST
from compatstore.errors import CorruptArtifact, InvalidInput

MOST_LAYERS = 256
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Widths and options of one network.

    Args:
        source_dim: Length of the vectors that it reads.
        side_dim: Length of the side-information that it reads, or None for no side branch.
        output_dim: Length of the vectors that it writes.
        source_branch: Widths of the source branch, possibly none.
        side_branch: Widths of the side branch, possibly none.
        mixer: Widths of the hidden layers of the mixer, possibly none; its output layer comes on top.
        skip: True if a linear map of the source, and of the side-information, is added to the output.
        uncertainty: True if a linear unit on the output (before it is normalised) gives log sigma^2; "length" if
            sigma^2 is 1 / |output|^2.
        normalise: True if the output is scaled to unit length.
        radial: True if the first layer of the mixer is radial; it then reads the source as it is.

    Raises:
        InvalidInput: A width is below 1, a side branch has nothing to read, or a radial layer not the source.
    """

    source_dim: int
    output_dim: int
    side_dim: int | None = None
    source_branch: tuple[int, ...] = ()
    side_branch: tuple[int, ...] = ()
    mixer: tuple[int, ...] = ()
    skip: bool = False
    uncertainty: bool | Literal["length"] = False
    normalise: bool = False
    radial: bool = False

    def __post_init__(self) -> None:
        side = () if self.side_dim is None else (self.side_dim,)
        widths = (self.source_dim, self.output_dim, *side, *self.source_branch, *self.side_branch, *self.mixer)
        plain = self.uncertainty in (False, True)
        reads_source = bool(self.mixer) and not self.source_branch and self.side_dim is None
        rules = {
            f"at most {MOST_LAYERS} layers": len(widths) <= MOST_LAYERS,
            f"integer widths from 1 to {WIDEST}": all(isinstance(w, int) and 1 <= w <= WIDEST for w in widths),
            "no side branch without side_dim": self.side_dim is not None or not self.side_branch,
            "an uncertainty of false, true or length": plain or self.uncertainty == "length",
            "unit outputs for the uncertainty length": plain or self.normalise,
            "a radial layer that is the first of the mixer and reads the source": not self.radial or reads_source,
        }
        for expected, holds in rules.items():
            if not holds:
                raise InvalidInput("describe a network", expected=expected, found=f"{self.to_dict()!s:.300}")

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON-able values; `radial` only if it is true, as in earlier manifests."""
        values = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}
        return values if self.radial else {name: value for name, value in values.items() if name != "radial"}

    def shapes(self) -> Shapes:
        """Return the name and shape of every tensor: weights (out, in), biases (out,)."""
        shapes = dict(_stack("source", (self.source_dim, *self.source_branch)))
        if self.side_dim is not None:
            shapes |= dict(_stack("side", (self.side_dim, *self.side_branch)))
        shapes |= dict(_stack("mixer", (self.joined_dim, *self.mixer, self.output_dim)))
        if self.radial:
            shapes["mixer.0.gamma"] = (1,)
        if self.skip:
            shapes["skip.weight"] = (self.output_dim, self.source_dim)
            if self.side_dim is not None:
                shapes["skip_side.weight"] = (self.output_dim, self.side_dim)
        if self.uncertainty is True:
            shapes |= {"log_sigma2.weight": (1, self.output_dim), "log_sigma2.bias": (1,)}
        return shapes

    @property
    def joined_dim(self) -> int:
        """Values that enter the mixer."""
        source = (self.source_dim, *self.source_branch)[-1]
        return source if self.side_dim is None else source + (self.side_dim, *self.side_branch)[-1]

    def require(self, name: str, tensors: Mapping[str, FloatArray]) -> None:
        """Refuse tensors that are not those of this network.

        Raises:
            CorruptArtifact: A tensor is missing, unknown or of another shape.
        """
        expected = self.shapes()
        found = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
        for key in sorted(expected.keys() | found.keys()):
            if expected.get(key) != found.get(key):
                wanted, given = (f"shape {s[key]}" if key in s else "no such tensor" for s in (expected, found))
                raise CorruptArtifact(f"read tensor {name}.{key}", expected=wanted, found=given)


Values = TypeVar("Values")


class Operators(Protocol[Values]):
    """The operations of which a network consists, on rows of values: arrays, tensors or names in an ONNX graph."""

    def hidden(self, layer: str, values: Values) -> Values:
        """Apply a dense layer and a ReLU."""

    def radial(self, values: Values) -> Values:
        """Apply the radial layer, the first of the mixer."""

    def joined(self, source: Values, side: Values) -> Values:
        """Put the values of both branches side by side."""

    def dense(self, layer: str, values: Values) -> Values:
        """Apply a dense layer."""

    def skip(self, output: Values, weight: str, values: Values) -> Values:
        """Add a linear map of `values` to the output."""

    def unit(self, output: Values) -> tuple[Values, Values]:
        """Unit vectors, and the lengths (n, 1) that they had."""

    def log_inverse_square(self, lengths: Values) -> Values:
        """Log sigma^2 of lengths."""


def forward(
    network: Architecture, do: Operators[Values], source: Values, side: Values | None
) -> tuple[Values, Values | None]:
    """Compute a network.

    Args:
        network: Its description.
        do: The operations, with the weights of the network.
        source: (n, source_dim).
        side: (n, side_dim), or None for a network without side branch.

    Returns:
        (n, output_dim), and log sigma^2 (n, 1) or None.
    """

    def branch(part: str, depth: int, values: Values) -> Values:
        for index in range(depth):
            first = network.radial and (part, index) == ("mixer", 0)
            values = do.radial(values) if first else do.hidden(f"{part}.{index}", values)
        return values

    features = branch("source", len(network.source_branch), source)
    if side is not None:
        features = do.joined(features, branch("side", len(network.side_branch), side))
    features = branch("mixer", len(network.mixer), features)
    output = do.dense(f"mixer.{len(network.mixer)}", features)
    if network.skip:
        output = do.skip(output, "skip.weight", source)
        output = output if side is None else do.skip(output, "skip_side.weight", side)
    log_sigma2 = do.dense("log_sigma2", output) if network.uncertainty is True else None
    if network.normalise:
        output, lengths = do.unit(output)
        if network.uncertainty == "length":
            log_sigma2 = do.log_inverse_square(lengths)
    return output, log_sigma2


def _stack(part: str, widths: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for index, (fan_in, fan_out) in enumerate(pairwise(widths)):
        yield f"{part}.{index}.weight", (fan_out, fan_in)
        yield f"{part}.{index}.bias", (fan_out,)
