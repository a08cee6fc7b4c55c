"""Every benchmark starts at its smallest size."""

from __future__ import annotations

import importlib
import json
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tiers import few

ROOT = Path(__file__).parents[2]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in sorted((ROOT / "benchmarks").rglob("*.py"))
    if path.name != "__init__.py"
}

# Started by others: `benchmarks.learning` hands an interpreter with rebasis the pairs.
INNER = {"benchmarks.rebasis_maps"}

# Module -> its arguments, as small as it goes; names in braces are files of `inputs`, below.
SMALLEST = {
    "benchmarks.claims": "{page}",
    "benchmarks.fusion.__main__": "{embedded} --journal {new}/fusion.jsonl --page {page} --seeds 1 --items 60 "
    "--queries 20 --shares 0 0.5",
    "benchmarks.glove": "--source {glove50} --words {words} --target {glove100} --queries 10",
    "benchmarks.kernel_settings": "{embedded} --seeds 0 --items 100 --queries 30 --shares 0.2",
    "benchmarks.learning": "{embedded} --journal {new}/learning.jsonl --page {page} --seeds 0 --items 300 --queries 60 "
    "--shares 0.2",
    "benchmarks.spread": "{embedded} --page {page} --seeds 1 --items 100 --queries 30 --shares 0.2",
    "benchmarks.methods.embedded": "--set {glyphs} Glyphs --journal {new}/methods.jsonl --size tiny "
    "--out {new}/set.npz",
    "benchmarks.methods.margins": "--set {glyphs} Glyphs --journal {new}/margins.jsonl --size tiny --seeds 1 "
    "--page {page}",
    "benchmarks.methods.orders": "--set {glyphs} Glyphs --journal {new}/orders.jsonl --size tiny --seeds 1 "
    "--page {page}",
    "benchmarks.methods.report": "{methods} {page}",
    "benchmarks.methods.rise": "--set {glyphs} Glyphs --journal {new}/rise.jsonl --size tiny --seeds 1 --epochs 2 3 "
    "--page {page}",
    "benchmarks.methods.run": "--set {glyphs} Glyphs --set {folder} Digits --leave-out 9 --journal {new}/methods.jsonl "
    "--size tiny --try --seeds 1 --setting classes --row independent DMU",
    "benchmarks.papers.__main__": "{papers}",
    "benchmarks.pairs.attraction": "{embedded} --size tiny --seeds 1",
    "benchmarks.pairs.glyphs": "--glyphs {few} --out {new}/glyphs.npz --size tiny",
    "benchmarks.pairs.images": "--images {folder} --out {new}/images.npz --name Digits --leave-out 9 "
    "--source network:{network} --target network:{network} --values 4",
    "benchmarks.pairs.plain": "--glyphs {few} --fonts {new}/f.npz --characters {new}/c.npz --fewest 4",
    "benchmarks.pairs.report": "{pairs} {page}",
    "benchmarks.pairs.run": "{embedded} --journal {new}/pairs.jsonl --size tiny --seeds 1 --part chains",
    "benchmarks.pairs.texts": "--nouns {nouns} --out {new}/glosses.npz --source words@16 --target words@64 --fewest 3",
    "benchmarks.side_information.run": "--glyphs {glyphs} --folder {new}/side --size tiny --seeds 1 --row none",
    "benchmarks.source_rows": "--seeds 1 --epochs 2 --images 100",
    "benchmarks.stopping": "{embedded} --repeats 1 --sample 120 --items 250 --queries 100",
    "benchmarks.rule": "{embedded} --seeds 0 --items 300 --shares 0.5",
}
# Run without the marker `full`.
QUICK = "benchmarks.claims"
SLOW = {
    "benchmarks.learning_intervals": "{embedded} --journal {new}/intervals.jsonl --page {page} --draws 1 --items 600 "
    "--queries 60",
}


def programs() -> set[str]:
    """Modules that can be started."""
    programs = {name for name, path in MODULES.items() if '__name__ == "__main__"' in path.read_text()}
    return programs - {"benchmarks.__main__"}


def start(module: str, arguments: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """Run a benchmark's `main`; return its exit status, by which some say that a bound was missed."""
    monkeypatch.setattr(sys, "argv", [module, *shlex.split(arguments)])
    try:
        importlib.import_module(module).main()
    except SystemExit as ended:
        return ended.code
    return 0


def test_every_program_has_a_smallest_size_here() -> None:
    assert programs() == SMALLEST.keys() | SLOW.keys() | INNER


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small file of each kind that a benchmark reads, and an empty folder for what it writes."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image
    from sklearn.datasets import load_digits

    from benchmarks.pairs.embedded import EmbeddedSet
    from compatstore.trainers import Images, Independent

    home, rng = tmp_path_factory.mktemp("inputs"), np.random.default_rng(0)
    names = (
        "glyphs.npz",
        "few.npz",
        "embedded.npz",
        "network",
        "glove50.npy",
        "words.parquet",
        "glove100.json",
        "page.md",
    )
    found = {name.split(".")[0]: home / name for name in names} | {"folder": home / "digits", "new": home / "new"}
    found["new"].mkdir()

    labels = np.repeat(np.arange(4), 300)
    shapes = rng.integers(0, 255, (4, 32, 32))[labels] + rng.integers(-60, 60, (1200, 32, 32))
    fonts = np.tile(np.arange(300), 4)
    pixels = shapes.clip(0, 255).astype(np.uint8)
    np.savez(found["glyphs"], x=pixels, char=labels, font=fonts)
    np.savez(found["few"], x=pixels[::10], char=labels[::10], font=fonts[::10] // 10)

    labels = rng.integers(0, 6, 600)
    items = rng.normal(size=(6, 8))[labels] + 0.4 * rng.normal(size=(600, 8))
    dims = {"source": 6, "middle": 8, "target": 8}
    vectors = {name: (items @ rng.normal(size=(8, dim))).astype(np.float32) for name, dim in dims.items()}
    EmbeddedSet(name="Blobs", labels=labels, fresh=np.ones(600, bool), vectors=vectors).save(found["embedded"])

    digits = load_digits()
    pixels = (digits.images * 15).astype(np.uint8)
    for row in range(200):
        place = found["folder"] / str(digits.target[row])
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[row]).save(place / f"{row}.png")
    few = Images(pixels[:100], digits.target[:100])
    Independent(dim=8, width=4, epochs=2).fit(few).encoder.save(found["network"])

    words = [f"word{number}" for number in range(300)]
    np.save(found["glove50"], rng.normal(size=(300, 50)).astype(np.float32))
    pq.write_table(pa.table({"index": words}), found["words"])
    vectors100 = dict(zip(words, rng.normal(size=(300, 102)).tolist(), strict=True))
    found["glove100"].write_text(json.dumps({"vectors": vectors100}))

    lines = [f'{n:08} 03 n 01 word 0 001 @ {n % 3:08} n 0000 | a kind of {n % 3}; "as in {n}"  ' for n in range(12)]
    found["nouns"] = home / "data.noun"
    found["nouns"].write_text("\n".join(lines) + "\n")

    found["page"].write_text("no tables\n")
    found["papers"] = Path(shutil.copytree(ROOT / "docs" / "results" / "papers", home / "papers"))
    return found | {name: ROOT / "docs" / "results" / f"{name}.jsonl" for name in ("methods", "pairs")}


@pytest.mark.parametrize("module", few(1, sorted(SMALLEST, key=lambda module: module != QUICK)))
def test_a_benchmark_starts_at_its_smallest(module, request, capfd, monkeypatch) -> None:
    arguments = SMALLEST[module]
    if "{" in arguments:
        arguments = arguments.format(**request.getfixturevalue("inputs"))
    assert start(module, arguments, monkeypatch) in (0, 1, None)
    assert capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("module", SLOW)
def test_a_benchmark_of_several_processes_starts_at_its_smallest(module, inputs, capfd, monkeypatch) -> None:
    assert start(module, SLOW[module].format(**inputs), monkeypatch) in (0, None)
    assert capfd.readouterr().out
