"""The embedding version that options of verbs build."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from compatstore.cli.files import read_array
from compatstore.cli.verb import build_encoder
from compatstore.encoders import Encoder
from compatstore.errors import InvalidInput
from compatstore.versions import DType, EmbeddingVersion, HeadLoss, HeadLossKind, Metric, SideDType


@dataclass(frozen=True, kw_only=True)
class VersionSettings:
    """An embedding version, as options say it.

    Args:
        dim: Values of a vector; read from the encoder, or from the table that is adopted, if it is left out.
        metric: Distance of the space.
        normalised: Vectors have unit length.
        dtype: Storage type of vectors.
        encoder: The model, as an ENCODER spec; vectors come from outside if it is left out.
        model: Identity of a model that has no encoder here, such as text-embedding-3-small@2024-01.
        side_dim: Values of the side-information stored with each vector.
        side_dtype: Storage type of side-information; bits are the signs of its values, in a 32nd of the bytes.
        side_encoder: The side-information model, as an ENCODER spec.
        side_model: Identity of a side-information model that has no encoder here.
        head: File (npy or npz) of the model's frozen classifier head, (classes, dim).
        head_loss: The loss that the model was trained by through its head; transforms that learn through a head take
            it for theirs.
        head_margin: Its margin: of arcface in radians, of cosface as a cosine.
    """

    dim: int | None = None
    metric: Metric = "cosine"
    normalised: bool | None = None
    dtype: DType = "float32"
    encoder: str | None = field(default=None, metadata={"unit": "ENCODER"})
    model: str = ""
    side_dim: int | None = None
    side_dtype: SideDType = "float32"
    side_encoder: str | None = field(default=None, metadata={"unit": "ENCODER"})
    side_model: str = ""
    head: str | None = field(default=None, metadata={"unit": "FILE"})
    head_loss: HeadLossKind | None = None
    head_margin: float | None = None

    def version(self, name: str, dim: int | None = None) -> EmbeddingVersion:
        """Make the version, and its encoders.

        Args:
            name: Of the version.
            dim: The dimension if neither `dim` nor an encoder gives it.

        Raises:
            InvalidInput: The dimension is unknown, or a setting is out of its range. `dim` is not the encoder's.
            NotFound: An encoder or the head's file does not exist.
        """
        encoder, side_encoder = _build(self.encoder), _build(self.side_encoder)
        given: dict[str, Any] = {name: value for name, value in vars(self).items() if name != "head_margin"}
        given |= {
            "dim": self._dim(name, encoder, dim),
            "normalised": bool(self.normalised),
            "encoder": encoder,
            "side_dim": self.side_dim or (side_encoder.dim if side_encoder else None),
            "side_encoder": side_encoder,
            "head": None if self.head is None else read_array(self.head, "head"),
            "head_loss": self._head_loss(name),
        }
        return EmbeddingVersion(name, **given)

    def _head_loss(self, name: str) -> HeadLoss | None:
        operation = f"make version {name}"
        if self.head_loss is None:
            if self.head_margin is not None:
                raise InvalidInput(operation, expected="--head-loss beside --head-margin", found="none")
            return None
        if self.head_margin is None and self.head_loss != "cross-entropy":
            raise InvalidInput(operation, expected=f"--head-margin beside --head-loss {self.head_loss}", found="none")
        return HeadLoss(self.head_loss, self.head_margin or 0.0)

    def _dim(self, name: str, encoder: Encoder | None, otherwise: int | None) -> int:
        dim = self.dim if self.dim is not None else encoder.dim if encoder is not None else otherwise
        if dim is None:
            raise InvalidInput(f"make version {name}", expected="--dim, or --encoder", found="neither")
        return dim


def _build(spec: str | None) -> Encoder | None:
    return None if spec is None else build_encoder(spec)
