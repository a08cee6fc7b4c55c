"""Where the trainings of a run are saved: a file each, named after what the training is, so that none is done twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from compatstore.digests import fingerprint
from compatstore.trainers import Images, Refreshed, TrainedModel
from compatstore.trainers.images.training import ImageTraining, deciding_settings


@dataclass(frozen=True)
class Checkpoints:
    """A folder of checkpoints. Rows that need the same training share its file: who comes second finds it finished.

    Args:
        folder: Where files are written; made when the first is. None saves nothing.
        resume: Go on from files that other processes left there; else the first training of each begins from the start.
    """

    folder: Path | None = None
    resume: bool = True
    _begun: set[Path] = field(init=False, default_factory=set, repr=False, compare=False)

    def of(self, trainer: ImageTraining, images: Images, *models: TrainedModel | Refreshed) -> Path | None:
        """Name the file of a training.

        Args:
            trainer: What trains, with all its settings.
            images: What it learns from.
            models: What it is held to, such as its source; in the trainer's order.
        """
        if self.folder is None:
            return None
        settings = deciding_settings(trainer)
        known = [one.encoder.fingerprint if isinstance(one, TrainedModel) else one.fingerprint for one in models]
        method = type(trainer).__name__
        digest = fingerprint(trainer=method, settings=settings, images=images.fingerprint, models=known)
        file = self.folder / f"{method}-{digest[:12]}.safetensors"
        if not self.resume and file not in self._begun:
            file.unlink(missing_ok=True)
        self._begun.add(file)
        return file
