"""Files of weights that other programs wrote: safetensors, or what `torch.save` makes of a state dict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatstore.encoders.module import require_torch
from compatstore.errors import CorruptArtifact
from compatstore.paths import refused

if TYPE_CHECKING:
    import torch

# Keys under which training programs keep the state dict of the model in a larger dictionary.
_INSIDE = ("state_dict", "model")


def read_weights(path: Path, asked: str) -> dict[str, torch.Tensor]:
    """Read a state dict: tensors by name. No code in the file is run.

    Args:
        path: A .safetensors file, or a state dict saved by torch, read with weights_only=True; one under the key
            "state_dict" or "model" of a larger dictionary is found too.
        asked: What the caller wanted, for errors.

    Raises:
        StorageError: The file may not be read.
        CorruptArtifact: The file is something else.
    """
    torch = require_torch()
    from safetensors.torch import load_file

    try:
        found: Any = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except PermissionError as error:
        raise refused(asked, path, error) from error
    except Exception as error:  # whatever the readers raise for bytes that are no weights
        said = str(error) or type(error).__name__
        raise CorruptArtifact(asked, expected=f"weights in {path}", found=said.splitlines()[0]) from error
    for key in _INSIDE:
        found = found[key] if isinstance(found, dict) and isinstance(found.get(key), dict) else found
    tensors = found.items() if isinstance(found, dict) else ()
    return {str(name): value for name, value in tensors if isinstance(value, torch.Tensor)}
