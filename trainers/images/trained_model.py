"""A trained model: an encoder, the head that it was trained with, and the folder that both are kept in.

v2.model/
├── encoder.safetensors     the file of `network:PATH`
├── head.npy                (classes, dim) float32
├── model.json              classes, figures, and the digests of the files
└── artifact.compat/        of a model that was trained to be compatible
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from compatstore import next_step
from compatstore.arrays import FloatArray
from compatstore.artifacts import Artifact, directory
from compatstore.artifacts.directory import write_folder
from compatstore.artifacts.manifest import Space
from compatstore.boundary import checked
from compatstore.documents import Malformed, parse, read_record
from compatstore.encoders.network import NetworkEncoder
from compatstore.errors import CorruptArtifact, NotFound
from compatstore.paths import is_file, refused
from compatstore.versions import EmbeddingVersion, HeadLoss, Metric

FORMAT = "compatstore.model.1"
ENCODER, HEAD, DESCRIPTION = "encoder.safetensors", "head.npy", "model.json"


@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """The result of training a classifier.

    Args:
        encoder: The embedding model.
        head: (classes, dim) float32: the logits of an embedding e are `head @ e`, up to a positive scale.
        class_names: The class of each row of `head`.
        figures: Measurements: "loss" (mean of the last epoch), "images", "classes", "seconds", and with
            held-out images "accuracy" (share that the head classifies correctly).
        head_loss: Loss of the training through its head; None if unknown.
    """

    encoder: NetworkEncoder
    head: FloatArray
    class_names: tuple[str, ...]
    figures: Mapping[str, float] = field(default_factory=dict)
    head_loss: HeadLoss | None = None

    def version(self, name: str, *, metric: Metric = "cosine") -> EmbeddingVersion:
        """Make the embedding version of this model, as artifacts that were trained with it expect it.

        Args:
            name: Of the version.
            metric: Of its space; the metric that the trainer of the artifact was given.
        """
        return EmbeddingVersion(
            name,
            dim=self.encoder.dim,
            metric=metric,
            normalised=self.encoder.normalise,
            encoder=self.encoder,
            head=self.head,
            head_loss=self.head_loss,
        )

    def artifacts(self) -> dict[str, Artifact]:
        """Return the artifacts of the model, by name."""
        return {}

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the model as a folder; atomic: a failed write leaves no folder.

        Args:
            path: The folder, by custom "<name>.model".
            overwrite: Replace a model that is there; anything else is refused.

        Raises:
            AlreadyExists: Something is there.
            StorageError: The folder cannot be written.
        """
        write_folder("model", Path(path), self._write, _is_model, replace=overwrite)

    @staticmethod
    def load(path: str | Path, *, device: str | None = None) -> TrainedModel:
        """Read a saved model, as a source or for a version; its artifacts are loaded with `Artifact.load`.

        Raises:
            NotFound: There is no such folder.
            CorruptArtifact: A file is missing, truncated or edited, or of an unknown format.
        """
        path = Path(path)
        if not os.path.isdir(path):  # False for a name that is too long, where `Path.is_dir` raises
            fix = f"Check the path, or train one: {next_step.training('independent', out=str(path))}"
            raise NotFound(f"load model {path}", expected="a folder written by save", found="none", fix=fix)
        try:
            values = parse((path / DESCRIPTION).read_bytes())
            if values["format"] != FORMAT:
                raise Malformed(f"format {values['format']!r:.60}")
            description = read_record(_Description, values, "description")
        except PermissionError as error:
            raise refused(f"load model {path}", path / DESCRIPTION, error) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _corrupt(path, f"{DESCRIPTION}: {type(error).__name__}: {error}") from error
        for name in (ENCODER, HEAD):
            if not is_file(path / name) or _digest(path / name) != description.files.get(name):
                raise _corrupt(path, f"{name} missing, truncated or edited")
        try:
            head = np.load(path / HEAD, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise _corrupt(path, f"{HEAD}: {error}") from error
        return TrainedModel(
            encoder=NetworkEncoder.load(path / ENCODER, device=device),
            head=head,
            class_names=description.class_names,
            figures=description.figures,
            head_loss=description.head_loss,
        )

    def space(self, metric: Metric) -> Space:
        """Describe the space of `version(name, metric=metric)`; the name is not part of it."""
        return replace(Space.of(self.version("version", metric=metric)), name=None)

    def _write(self, folder: Path) -> None:
        (folder / ENCODER).write_bytes(self.encoder.to_bytes())
        np.save(folder / HEAD, self.head, allow_pickle=False)
        files = {name: _digest(folder / name) for name in (ENCODER, HEAD)}
        description = _Description(FORMAT, self.class_names, self.figures, files, self.head_loss)
        (folder / DESCRIPTION).write_text(json.dumps(asdict(description), indent=2))
        for name, artifact in self.artifacts().items():
            artifact.save(folder / f"{name}.compat")


def require_free(path: str | Path, *, overwrite: bool) -> None:
    """Refuse to write a model over something else; to be called before training.

    Raises:
        AlreadyExists: A model is there that is not to be replaced, or something else.
    """
    directory.require_free("model", Path(path), _is_model, replace=overwrite)


def _is_model(path: Path) -> bool:
    return is_file(path / DESCRIPTION)


@dataclass(frozen=True)
class _Description:
    """Contents of `model.json`; see `TrainedModel`.

    Attributes:
        format: `FORMAT`.
        class_names: Of the head.
        figures: Of the training.
        files: SHA-256 by name.
        head_loss: Of the training.
    """

    format: str
    class_names: tuple[str, ...]
    figures: Mapping[str, Any]
    files: Mapping[str, str]
    head_loss: HeadLoss | None = None


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _corrupt(path: Path, found: str) -> CorruptArtifact:
    return CorruptArtifact(f"load model {path}", expected=f"a whole folder of format {FORMAT}", found=found)
