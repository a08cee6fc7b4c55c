"""The encoder that trainers make: one safetensors file holds its architecture, preprocessing and weights."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from PIL import Image

from compatstore.boundary import checked, foreign
from compatstore.encoders.backbones import Backbone, from_description, published, to_description
from compatstore.encoders.images import MODES, Mode, read_image
from compatstore.encoders.model_files import parse_described
from compatstore.encoders.module import Module, require_torch
from compatstore.errors import CorruptArtifact, InvalidInput, NotFound, first_offenders
from compatstore.paths import is_file, is_folder, refused

if TYPE_CHECKING:
    import torch

FORMAT = "compatstore.network.1"
LARGEST_SIDE = 4096  # pixels


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """From an image to the input of a network.

    Args:
        size: Side of the square that images are resized to (bilinear, aspect ratio not kept), in pixels.
        mode: "L" (one channel) or "RGB" (three).
        mean: Subtracted from every channel, for pixels from 0 to 1.
        std: Divides every channel after that.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    size: int
    mode: Mode = "RGB"
    mean: float = 0.5
    std: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.size <= LARGEST_SIDE or self.mode not in MODES or not self.std > 0:
            expected = f"size from 1 to {LARGEST_SIDE}, mode of {MODES}, std > 0"
            raise InvalidInput("describe a preprocessing", expected=expected, found=f"{self}")

    @property
    def channels(self) -> int:
        """Number of channels: 1 or 3."""
        return len(self.mode)

    def pixels(self, source: Any, roots: Sequence[str | Path] = ()) -> torch.Tensor:
        """Read one image source: (channels, size, size) uint8.

        Raises:
            SourceError: The source cannot be read.
        """
        image = read_image(source, self.mode, roots)
        if image.size != (self.size, self.size):
            image = image.resize((self.size, self.size), Image.Resampling.BILINEAR)
        array = np.array(image).reshape(self.size, self.size, self.channels)
        pixels: torch.Tensor = require_torch().from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))
        return pixels

    def scale(self, pixels: torch.Tensor) -> torch.Tensor:
        """(..., channels, size, size) uint8, or float from 0 to 1 -> float32 input of the network."""
        values = pixels if pixels.is_floating_point() else pixels.float() / 255
        return (values - self.mean) / self.std


@dataclass(frozen=True, kw_only=True)
class _Description:
    """Record of an encoder in its file, beside the weights.

    Attributes:
        format: `FORMAT`.
        backbone: Architecture, as `to_description` gives it.
        preprocessing: Of the images.
        normalise: True if embeddings have unit length.
        fingerprint: Fingerprint of the encoder.
    """

    format: str
    backbone: Mapping[str, Any]
    preprocessing: Preprocessing
    normalise: bool
    fingerprint: str


@checked
class NetworkEncoder(Module):
    """Embeds images with a network that can be saved, in one file, and loaded without the program that made it.

    Args:
        backbone: Architecture.
        preprocessing: Size, mode and scaling of the images.
        weights: The network's state dict, copied; None gives random weights, to be trained.
        normalise: Scale embeddings to unit length.
        device: A torch device; None takes CUDA if there is one.
        batch_size: Images that go through the network at once.
        roots: Folders that image paths must lie in; empty allows every path.
        spec: "network:PATH" once saved.

    Raises:
        InvalidInput: The weights do not fit the backbone, or the backbone's channels not the mode.
        MissingExtra: torch is not installed.

    Examples:
        >>> from compatstore.trainers import Images, Independent
        >>> pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), np.uint8)
        >>> model = Independent(dim=4, width=8, epochs=1, warmup_epochs=0.0).fit(Images(pixels, np.arange(40) % 2))
        >>> type(model.encoder).__name__, model.encoder.encode(list(pixels[:3])).shape
        ('NetworkEncoder', (3, 4))
    """

    _reads_ahead = True

    def __init__(
        self,
        backbone: Backbone,
        preprocessing: Preprocessing,
        *,
        weights: Mapping[str, torch.Tensor] | None = None,
        normalise: bool = False,
        device: str | None = None,
        batch_size: int = 256,
        roots: Sequence[str | Path] = (),
        spec: str = "",
    ) -> None:
        if backbone.channels != preprocessing.channels:
            expected = f"{preprocessing.channels} channels for mode {preprocessing.mode}"
            raise InvalidInput("make a network encoder", expected=expected, found=f"{backbone.channels}")
        self.backbone, self.preprocessing = backbone, preprocessing
        if weights is None:
            network = backbone.build()
        else:  # the caller's random state is not used up by weights that are replaced at once
            with require_torch().random.fork_rng(devices=[]):
                network = backbone.build()
            with foreign("load weights", "those of the backbone"):
                network.load_state_dict(dict(weights))
        description = {"backbone": to_description(backbone), "preprocessing": dataclasses.asdict(preprocessing)}
        super().__init__(
            network,
            backbone.dim,
            lambda source: preprocessing.scale(preprocessing.pixels(source, roots)),
            normalise=normalise,
            device=device,
            batch_size=batch_size,
            identity=json.dumps(description, sort_keys=True),
            spec=spec,
        )

    def to_bytes(self) -> bytes:
        """Write the whole encoder as the content of one safetensors file; the same encoder gives the same bytes."""
        from safetensors.torch import save

        state = {name: value.detach().cpu().contiguous() for name, value in self.module.state_dict().items()}
        described = {"format": FORMAT, "normalise": self.normalise, "fingerprint": self.fingerprint}
        description = json.loads(self.identity) | described
        content: bytes = save(state, metadata={"compatstore": json.dumps(description, sort_keys=True)})
        return content

    @classmethod
    def from_bytes(
        cls,
        content: bytes,
        *,
        device: str | None = None,
        batch_size: int = 256,
        roots: Sequence[str | Path] = (),
        spec: str = "",
    ) -> Self:
        """Read what `to_bytes` wrote; device, batch size and roots belong to the machine and are not stored.

        Raises:
            CorruptArtifact: The content is truncated, edited or of an unknown format.
            MissingExtra: torch is not installed.
        """
        try:
            description, weights = parse_described(content, _Description, FORMAT)
        except Exception as error:  # any error of safetensors and torch for unknown bytes, types and shapes
            raise _corrupt(f"{type(error).__name__}: {error}"[:200]) from error
        try:
            backbone = from_description(description.backbone)
            _require_shapes(backbone, weights)
            encoder = cls(
                backbone,
                description.preprocessing,
                weights=weights,
                normalise=description.normalise,
                device=device,
                batch_size=batch_size,
                roots=roots,
                spec=spec,
            )
        except InvalidInput as error:
            raise _corrupt(str(error)) from error
        if encoder.fingerprint != description.fingerprint:
            raise _corrupt("content of another fingerprint than was written")
        return encoder

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file; from then on `spec` names it."""
        path = Path(path).absolute()
        path.write_bytes(self.to_bytes())
        self.spec = f"network:{path}"
        return path

    @classmethod
    def load(cls, path: str | Path, *, device: str | None = None, roots: Sequence[str | Path] = ()) -> Self:
        """Read a saved encoder.

        Raises:
            NotFound: There is no such file.
            CorruptArtifact: The file is truncated, edited or of an unknown format.
            StorageError: The file may not be read.
        """
        path = Path(path).absolute()
        if not is_file(path):
            raise NotFound(
                "load a network encoder",
                expected="a file",
                found=f"a folder, {path}" if is_folder(path) else f"nothing at {path}",
                fix="In the folder of a model that `train` wrote it is encoder.safetensors.",
            )
        try:
            content = path.read_bytes()
        except OSError as error:
            raise refused(f"load the network encoder {path}", path, error) from error
        return cls.from_bytes(content, device=device, roots=roots, spec=f"network:{path}")


def _require_shapes(backbone: Backbone, weights: Mapping[str, torch.Tensor]) -> None:
    """Refuse weights of other shapes than a backbone's, before memory is taken for it.

    Raises:
        InvalidInput: They are not those of the backbone, or there is no such backbone.
    """
    torch = require_torch()
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            expected = {name: value.shape for name, value in backbone.build().state_dict().items()}
    except (RuntimeError, TypeError, OverflowError, MemoryError) as error:
        # Published networks may read their weights while they are built; ours do not.
        if published(backbone)[0] is None or backbone.dim not in {
            value.shape[0] for value in weights.values() if value.ndim
        }:
            raise InvalidInput("build a network", expected="one that has room", found=f"{error}"[:100]) from error
        return
    found = {name: value.shape for name, value in weights.items()}
    differ = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if differ:
        raise InvalidInput("load weights", expected="those of the backbone", found=first_offenders(differ))


def _corrupt(found: str) -> CorruptArtifact:
    return CorruptArtifact(
        "load a network encoder", expected=f"a whole file of format {FORMAT}", found=found, fix="Restore the file."
    )
