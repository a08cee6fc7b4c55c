"""Weights of the user's own for a published architecture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatstore.encoders.module import require_torch
from compatstore.errors import CorruptArtifact, NotFound, first_offenders
from compatstore.permissions import refused

if TYPE_CHECKING:
    from torch import nn


def load_checkpoint(network: nn.Module, path: str | Path) -> None:
    """Load weights into a network without classifier; names that the network does not have are a classifier's.

    Args:
        network: The network, changed in place.
        path: A .safetensors file, or a state dict saved by torch (read with weights_only=True), also one under
            the key "state_dict".

    Raises:
        NotFound: There is no such file.
        StorageError: The file may not be read.
        CorruptArtifact: The file cannot be read, lacks weights of the network, or has them in another shape.
    """
    path = Path(path)
    asked = f"load the weights {path}"
    if not path.is_file():
        raise NotFound(asked, expected="a file", found="nothing", fix="Check the path.")
    state = _read(path, asked)
    wanted = network.state_dict()
    missing = [name for name in wanted if name not in state]
    wrong = [name for name in wanted if name in state and state[name].shape != wanted[name].shape]
    if missing or wrong:
        found = f"missing {first_offenders(missing) or 'none'}; of another shape {first_offenders(wrong) or 'none'}"
        raise CorruptArtifact(asked, expected=f"the {len(wanted)} weights of the network", found=found)
    network.load_state_dict({name: state[name] for name in wanted})


def sized_like(network: nn.Module, input_size: Sequence[int]) -> int:
    """Length of an embedding of a network, asked by sending one blank image of (c, h, w) through it."""
    torch = require_torch()
    with torch.inference_mode():
        return int(network.eval()(torch.zeros(1, *input_size)).shape[1])


def _read(path: Path, asked: str) -> dict[str, Any]:
    torch = require_torch()
    from safetensors.torch import load_file

    try:
        state = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except PermissionError as error:
        raise refused(asked, path, error) from error
    except Exception as error:  # whatever the readers raise for bytes that are no weights
        raise CorruptArtifact(asked, expected="weights", found=str(error).splitlines()[0]) from error
    state = state.get("state_dict", state) if isinstance(state, dict) else {}
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
