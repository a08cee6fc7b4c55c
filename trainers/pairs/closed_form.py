"""Closed forms: affine maps solved from the moments of the pairs, without a training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import ClassVar

import numpy as np

from compatstore.arrays import Doubles, FloatArray
from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.network import Execution, Network
from compatstore.boundary import checked, require_fields
from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.held_out import held_out_figures
from compatstore.trainers.pairs.loop import Report, require_settings
from compatstore.trainers.pairs.moments import Moments
from compatstore.trainers.pairs.pairs import Pairs, unit_length


@dataclass(frozen=True, kw_only=True, eq=False)
class AffineMap:
    """y = weight x + bias.

    Args:
        weight: (d_out, d_in) float64.
        bias: (d_out,) float64.
        chosen: Settings that were chosen on the way, for the figures ("penalty").
    """

    weight: Doubles
    bias: Doubles
    chosen: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def through_means(cls, weight: Doubles, moments: Moments, chosen: Mapping[str, float] | None = None) -> AffineMap:
        """Take the bias that maps the mean input to the mean output: the best for any given weight."""
        return cls(weight=weight, bias=moments.output_mean - weight @ moments.input_mean, chosen=chosen or {})


@dataclass(frozen=True, kw_only=True)
class ClosedForm(ABC):
    """What all closed forms share: one dense layer, scaled to unit length where the target space is.

    Side-information, where the pairs have it, is appended to the source vector.

    Args:
        holdout: Share of the rows kept out of the solution to measure on, in [0, 1); 0 measures nothing.
        seed: Of the choice of rows held out.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    holdout: float = 0.1
    seed: int = 0
    reads_side: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_fields(self)
        require_settings(type(self).__name__, {"holdout in [0, 1)": 0 <= self.holdout < 1} | self.rules())

    def rules(self) -> dict[str, bool]:
        """Return what the form's own settings must fulfil, and whether they do."""
        return {}

    @abstractmethod
    def solve(self, pairs: Pairs) -> AffineMap:
        """Solve for the map on all rows given.

        Raises:
            InvalidInput: The form cannot map between these dimensions, or there are too few rows.
        """

    @checked
    def fit(self, pairs: Pairs, progress: Report | None = None) -> Artifact:
        """Solve on pairs.

        Args:
            pairs: What to learn from; bound to their versions' fingerprints where they name versions.
            progress: Not called: there are no epochs. Every trainer on pairs takes it.

        Returns:
            A ForwardTransform, with figures on held-out rows, measured on the very layer that it carries.

        Raises:
            InvalidInput: The form cannot map between these dimensions, or there are too few rows.
        """
        kept, held_out = pairs.split(self.holdout, self.seed) if self.holdout else (pairs, None)
        solution = self.solve(kept)
        architecture = self._architecture(pairs)
        tensors = _layer(solution)
        figures = dict(solution.chosen)
        if held_out is not None:
            figures |= self._figures(Network(architecture, tensors), held_out)
        return Artifact.create(
            "ForwardTransform",
            method=type(self).__name__,
            source=pairs.source_space,
            target=pairs.target_space,
            side_source=pairs.side_source if self.reads_side else None,
            networks={"h": architecture},
            tensors={f"h.{name}": tensor for name, tensor in tensors.items()},
            settings=asdict(self),
            figures={"h": figures},
            seen=pairs.seen,
        )

    def _architecture(self, pairs: Pairs) -> Architecture:
        return Architecture(
            source_dim=pairs.source.shape[1],
            side_dim=pairs.side.shape[1] if self.reads_side and pairs.side is not None else None,
            output_dim=pairs.target.shape[1],
            normalise=unit_length(pairs.target),
        )

    def _figures(self, network: Network, held_out: Pairs) -> dict[str, float]:
        side = held_out.side if self.reads_side else None
        predicted, _ = network.run(held_out.source, side, Execution())
        return held_out_figures(predicted, held_out.target, held_out.target_space.metric)


def require_equal_dims(form: str, pairs: Pairs) -> None:
    """Refuse pairs of spaces of different dimensions.

    Raises:
        InvalidInput: Names both.
    """
    source, target = pairs.source.shape[1], pairs.target.shape[1]
    if source != target:
        raise InvalidInput(
            f"fit {form}",
            expected="source and target of one dimension",
            found=f"{source} and {target}",
            fix="Take Procrustes or Ridge.",
        )


def _layer(solution: AffineMap) -> dict[str, FloatArray]:
    named = {"mixer.0.weight": solution.weight, "mixer.0.bias": solution.bias}
    return {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in named.items()}
