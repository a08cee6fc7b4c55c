r"""The images of a set as the source and the independent target of a trial embed them, for the benchmarks on pairs.

    python -m benchmarks.methods.embedded --set cifar10 CIFAR-10 --first-seed 6 --journal methods.jsonl \
        --loss "CosFace, margin 0.2" --out cifar.npz

The models are those of the setting "classes", trained or taken up from the checkpoints beside the journal. Fresh are
the images that no model has learned from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.methods.lesson import lesson
from benchmarks.methods.margins import LOSSES
from benchmarks.methods.models import Models, embed
from benchmarks.methods.other_loss import trained_by
from benchmarks.methods.run import add_options, checkpoints_of, seeds_of, sets_of
from benchmarks.methods.settings import SIZES
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from compatstore.trainers import Images


def embedded(models: Models, training: Images, test: Images, name: str) -> EmbeddedSet:
    """All images: those of the test are fresh, and those of the training that the target has not learned from."""
    learned = {image.tobytes() for image in models.lesson.target.images}
    fresh = [*(image.tobytes() not in learned for image in training.images), *(True for _ in range(len(test)))]
    vectors = {
        version: np.concatenate([embed(model.encoder, images) for images in (training, test)])
        for version, model in ((SOURCE, models.source), (TARGET, models.independent))
    }
    labels = np.concatenate([training.labels, test.labels]).astype(np.int64)
    return EmbeddedSet(name=name, labels=labels, fresh=np.array(fresh), vectors=vectors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--size", choices=SIZES, default="standard")
    parser.add_argument("--loss", choices=LOSSES, default=next(iter(LOSSES)))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    size = SIZES[options.size]
    (data, *_), seed = sets_of(options, size), seeds_of(options)[0]
    models = trained_by(Models(lesson(data, "classes", size, seed), checkpoints_of(options)), LOSSES[options.loss])
    found = embedded(models, data.training, data.test, data.name)
    found.save(options.out)
    print(f"{found.name}: {len(found.labels):,} images, {int(found.fresh.sum()):,} to search: {options.out}")


if __name__ == "__main__":
    main()
