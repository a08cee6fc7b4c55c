"""Every method of the papers on images, in real galleries: models trained on them, and transforms between models.

    python -m benchmarks images --sets glyphs.npz caltech101 cifar10 --names Glyphs Caltech-101 CIFAR-10 \
        --leave-out BACKGROUND_Google --size standard --settings classes data --seeds 5 --checkpoints trained

A set is an npz file of glyphs or a folder of class folders; without any, scikit-learn's digits. With `--checkpoints`
each training has a file, and rows share what they have in common. `--loss` is that of all models: ArcFace, CosFace or
cross-entropy; with `--size paper` softmax (FCT, FastFill), cosine (BT^2) or "pooled ArcFace" (DMU). Rows of the
settings "elsewhere", "disjoint" and "texts", and those of "twice the values", were measured by code of the commit they
name. A method may have settings of its trainer: `--methods "DMU: selection=none" "FCT: mixer_width=4096"`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.images.methods import MAIN, PAPER, method_of
from benchmarks.images.models import METRICS, Models
from benchmarks.images.sizes import SIZES
from benchmarks.images.tables import TABLES, chart
from benchmarks.images.trial import draw, read
from benchmarks.record import Row

__all__ = ["SMOKE", "TABLES", "chart", "run"]


def run(
    *,
    sets: tuple[Path, ...] = (),
    names: tuple[str, ...] = (),
    leave_out: tuple[str, ...] = (),
    size: str = "quick",
    loss: str = "ArcFace",
    settings: tuple[str, ...] = ("classes", "data"),
    methods: tuple[str, ...] = (),
    seeds: int = 3,
    first_seed: int = 0,
    checkpoints: Path | None = None,
    done: tuple[Row, ...] = (),
) -> Iterator[Row]:
    """Measure each method on each set, setting and seed."""
    given, pixels = SIZES[size], SIZES[size].pixels
    known = {(row["setting"], row["set"], row["seed"], row["method"]) for row in done}
    for path, name in zip(sets or (None,), names or ("",), strict=True):
        for setting in settings:
            data = read(path, name, pixels, leave_out)
            for seed in range(first_seed, first_seed + seeds):
                trial = draw(data, setting, given, seed, METRICS.get(loss, "cosine"))  # type: ignore[arg-type]
                models = Models(trial, loss, checkpoints)
                for method in methods or PAPER.get(loss, {}).get(setting, MAIN):
                    label = method if loss == "ArcFace" else f"{method}, {loss}"
                    if (setting, data.name, seed, label) not in known:
                        about = {"size": size, "setting": setting, "set": data.name, "method": label, "seed": seed}
                        yield about | method_of(method)(models)


SMOKE = {
    "size": "smoke",
    "seeds": 1,
    "settings": ("classes", "subgroups"),
    "methods": ("independent", "BCT", "BT2", "DMU", "FCT", "FCT + SimCLR", "FastFill, level chosen", "kernel ridge"),
}
