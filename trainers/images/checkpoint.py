"""A training that can be continued: all state that decides its further steps, in one file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from compatstore.encoders.model_files import parse_described
from compatstore.errors import CorruptArtifact, Incompatible, InvalidInput
from compatstore.paths import is_file, is_folder, refused

FORMAT = "compatstore.training.1"

State = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class _Description:
    """Description of the training in a file, beside the tensors; see `Checkpoint`.

    Attributes:
        format: `FORMAT`.
        belongs_to: Settings that must be the same to continue.
        note: Epochs done, the loss of the last, and the state of the gradient scaler.
    """

    format: str
    belongs_to: Mapping[str, Any]
    note: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A file that training is saved to, and from which it continues.

    Args:
        path: One safetensors file. It is replaced as a whole, so that a kill leaves the one before.
        belongs_to: Settings that must be the same to continue, JSON-able: trainer, settings, data, source model.
    """

    path: Path
    belongs_to: Mapping[str, Any]

    def write(self, tensors: State, note: Mapping[str, Any]) -> None:
        """Replace the file atomically. The note is JSON-able.

        Raises:
            StorageError: The file cannot be written; the one before is still there.
        """
        description = {"format": FORMAT, "belongs_to": self.belongs_to, "note": note}
        unfinished = self._unfinished
        try:
            save_file(tensors, unfinished, metadata={"compatstore": json.dumps(description)})
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            unfinished.replace(self.path)
        except (OSError, SafetensorError) as error:
            with suppress(OSError):
                unfinished.unlink()
            raise refused(f"save a training to {self.path}", self.path, error) from error

    def read(self) -> tuple[State, Mapping[str, Any]] | None:
        """Return the contents of the file, or None if there is none.

        Raises:
            CorruptArtifact: The file is truncated, edited or of an unknown format.
            Incompatible: The file is of another training.
            InvalidInput: The path is a folder.
            StorageError: The folder of the file cannot be made or read.
        """
        self._require_place()
        if not is_file(self.path):
            return None
        try:
            description, tensors = parse_described(self.path.read_bytes(), _Description, FORMAT)
        except PermissionError as error:
            raise refused(f"continue from {self.path}", self.path, error) from error
        except Exception as error:  # any error of safetensors, torch and JSON for other bytes
            raise self.corrupt(f"{type(error).__name__}: {error}"[:200]) from error
        found, expected = description.belongs_to, json.loads(json.dumps(self.belongs_to))
        differ = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
        if differ:
            wanted = ", ".join(f"{name} {expected.get(name)!r}" for name in differ)
            stored = ", ".join(f"{found.get(name)!r}" for name in differ)
            fix = "Train with the same settings and data, or remove the file to start from the beginning."
            raise Incompatible(f"continue from {self.path}", expected=wanted, found=stored, fix=fix)
        return tensors, description.note

    @property
    def _unfinished(self) -> Path:
        """Temporary path of the file, which is moved into its place."""
        return self.path.with_name(f".{self.path.name}.unfinished")

    def _require_place(self) -> None:
        """Refuse a path that cannot be written, before hours of training are to be saved there."""
        operation = f"save a training to {self.path}"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if is_folder(self.path):
                raise InvalidInput(operation, expected="a file", found="a folder", fix="Name a file in it.")
            self._unfinished.touch()
            self._unfinished.unlink(missing_ok=True)  # another process of the same training may have been faster
        except OSError as error:
            raise refused(operation, self.path.parent, error) from error

    def corrupt(self, found: str) -> CorruptArtifact:
        """Make the error for a file that is not a checkpoint of this format."""
        fix = "Remove the file to start from the beginning."
        return CorruptArtifact(f"continue from {self.path}", expected=f"format {FORMAT}", found=found, fix=fix)


class Resumable:
    """The objects of a running training; saves their state to a checkpoint, and restores it.

    Args:
        objective: Its weights and buffers.
        optimiser: Over the parameters of `objective` that require a gradient.
        order: Draws the order of the data at the start of each epoch.
        scaler: Of the gradients in float16, or None.
    """

    def __init__(self, objective: nn.Module, optimiser: torch.optim.Optimizer, order: torch.Generator, scaler: Any):
        self.objective, self.optimiser, self.order, self.scaler = objective, optimiser, order, scaler
        names = {id(parameter): name for name, parameter in objective.named_parameters()}
        # The optimiser numbers parameters from group to group.
        self.names = [names[id(parameter)] for group in optimiser.param_groups for parameter in group["params"]]

    def save(self, checkpoint: Checkpoint, epoch: int, loss: float) -> None:
        """Write all state.

        Args:
            checkpoint: File to write.
            epoch: Epochs done.
            loss: Mean of the last one.
        """
        tensors = {f"objective.{name}": _own(tensor) for name, tensor in self.objective.state_dict().items()}
        for index, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{self.names[index]}.{key}": _own(value) for key, value in state.items()}
        tensors |= {"random.cpu": torch.get_rng_state(), "order": _own(self.order.get_state())}
        if torch.cuda.is_available():
            tensors["random.cuda"] = torch.cuda.get_rng_state()
        scaler = self.scaler.state_dict() if self.scaler else None
        checkpoint.write(tensors, {"epoch": epoch, "loss": loss, "scaler": scaler})

    def resume(self, checkpoint: Checkpoint) -> tuple[int, float]:
        """Restore the saved state, and return the epochs done and the loss of the last one.

        Raises:
            CorruptArtifact: The file is truncated, edited or of an unknown format.
            Incompatible: The file is of another training.
        """
        found = checkpoint.read()
        if found is None:
            return 0, 0.0
        tensors, note = found
        try:
            epoch, loss = note["epoch"], note["loss"]
            if not isinstance(epoch, int) or epoch < 0 or not isinstance(loss, float):
                raise ValueError(f"epoch {epoch!r:.60}, loss {loss!r:.60}")
            self._set_back(tensors, note)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise checkpoint.corrupt(f"{type(error).__name__}: {error}"[:200]) from error
        return epoch, loss

    def _set_back(self, tensors: State, note: Mapping[str, Any]) -> None:
        self.objective.load_state_dict(_below("objective.", tensors))
        state = {index: _below(f"optimiser.{name}.", tensors) for index, name in enumerate(self.names)}
        # Parameters that no step has changed have no state, and must get none.
        state = {index: values for index, values in state.items() if values}
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})
        if self.scaler:
            self.scaler.load_state_dict(note["scaler"])
        self.order.set_state(tensors["order"])
        torch.set_rng_state(tensors["random.cpu"])
        if "random.cuda" in tensors and torch.cuda.is_available():
            torch.cuda.set_rng_state(tensors["random.cuda"])


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """Copy: safetensors stores no tensor that shares memory with another."""
    return tensor.detach().cpu().clone().contiguous()


def _below(prefix: str, tensors: State) -> State:
    """Take the tensors named "<prefix><rest>", by their rest."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
