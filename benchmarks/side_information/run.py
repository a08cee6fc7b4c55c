r"""What each kind of side-information is worth to FCT, and what it costs, over several seeds.

    python -m benchmarks.side_information.run --glyphs glyphs.npz --folder side --out docs/results/side_information.md \
        [--size "16 pixels"] [--seeds 3] [--row none SimCLR]

Models and measurements are kept in the folder as they are finished: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

from benchmarks.methods.data import read
from benchmarks.methods.lesson import lesson
from benchmarks.methods.settings import SIZES, Size
from benchmarks.pairs.journal import Journal
from benchmarks.side_information.embedded import Embedded
from benchmarks.side_information.measure import ROWS, bounds, bytes_per_item, measure
from benchmarks.side_information.table import BOUNDS, BYTES, fill

SIZE = Size(
    name="16 pixels", pixels=16, images=6000, gallery=2000, queries=2000, dim=64, extra=16, side=64, width=16,
    epochs=12, batch_size=64, precision="bfloat16", augment=False, one_start=True, transform_epochs=30,
    residual_epochs=30, transform_width=256, branch_width=128, adapter_width=256, transformer_width=32,
    transformer_epochs=28,
)  # fmt: skip
CHOICES = {SIZE.name: SIZE, "tiny": SIZES["tiny"]}
SET, SETTING = "Glyphs", "classes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glyphs", type=Path, required=True, help="npz file, as benchmarks.pairs.glyphs reads it")
    parser.add_argument("--folder", type=Path, required=True, help="where models and measurements are kept")
    parser.add_argument("--size", choices=CHOICES, default=SIZE.name)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--row", nargs="*", choices=ROWS, default=list(ROWS), help="rows, all by default")
    parser.add_argument("--out", type=Path, help="page whose table is replaced")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    size = CHOICES[options.size]
    journal, data = Journal(options.folder / "journal.jsonl"), read(options.glyphs, SET, size.pixels)
    for seed in range(options.seeds):
        trial = Embedded(lesson(data, SETTING, size, seed), options.folder)
        rows = {BOUNDS: partial(bounds, trial)} | {name: partial(measure, trial, ROWS[name]) for name in options.row}
        for name, take in rows.items():
            start = time.process_time()
            key = {"size": size.name, "set": SET, "setting": SETTING, "seed": seed, "method": name}
            journal.once(key, take)
            print(f"seed {seed}, {name}: {time.process_time() - start:.0f} s of processor", flush=True)
    if len(options.row) < len(ROWS):
        return  # the table needs all of them
    journal.once({**key, "seed": 0, "method": BYTES}, partial(bytes_per_item, trial))
    if options.out is not None:
        options.out.write_text(fill(options.out.read_text(), journal.records))


if __name__ == "__main__":
    main()
