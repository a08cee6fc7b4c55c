"""Sizes of the benchmark on methods: what a run keeps, takes up again and refuses, and how long is long enough."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.methods.settings import EARLIER, SIZES
from benchmarks.pairs.journal import Journal
from compatstore import trainers
from compatstore.errors import Incompatible
from digits import load_digits
from lazily import Lazy

pytestmark = pytest.mark.full

margins = Lazy("benchmarks.methods.margins")
methods = Lazy(
    "benchmarks.methods.run",
    "benchmarks.methods.lesson",
    "benchmarks.methods.models",
    "benchmarks.methods.data",
    "benchmarks.methods.checkpoints",
    "benchmarks.methods.document",
    "benchmarks.methods.measure",
    "benchmarks.methods.orders",
)
rises = Lazy("benchmarks.methods.rise")

ROOT = Path(__file__).parents[2]
TINY = replace(SIZES["tiny"], images=160, gallery=60, queries=30, epochs=2, transform_epochs=2)


@pytest.fixture(scope="module")
def data() -> methods.ImageSet:
    digits = load_digits()
    training, test = trainers.Images((digits.images * 255 / 16).astype(np.uint8), digits.target).split(0.3, seed=0)
    return methods.ImageSet(name="Digits", training=training, test=test)


def without_seconds(journal: Journal) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in journal.records]


def test_a_row_says_how_it_came_about(data, tmp_path) -> None:
    journal = Journal(tmp_path / "methods.jsonl")
    methods.run(data, TINY, [0], journal, ["classes"], ["independent"])
    (row,) = Journal(journal.path).records
    assert row["settings"] == asdict(TINY)
    assert set(row["commit"].removesuffix("+")) <= set("0123456789abcdef")
    assert {"cores", "processor", "gpu", "threads", "torch"} == set(row["hardware"])
    assert row["hardware"]["cores"] >= 1
    assert row["hardware"]["processor"]


def test_settings_are_kept_to_all_digits(tmp_path) -> None:
    journal = Journal(tmp_path / "methods.jsonl")
    key = {"size": "tiny", "set": "Digits", "setting": "classes", "seed": 0, "method": "BCT"}
    journal.once(key, lambda: {"map": 1 / 3}, lambda: {"settings": {"weight_decay": 2**-15}})
    (row,) = Journal(journal.path).records
    assert row["settings"]["weight_decay"] == 2**-15
    assert row["map"] == 0.33333


def test_rows_of_another_size_under_the_same_name_are_refused(data, tmp_path) -> None:
    journal = Journal(tmp_path / "methods.jsonl")
    methods.run(data, TINY, [0], journal, ["classes"], ["independent"])
    with pytest.raises(Incompatible, match=r"epochs 3.*found epochs 2"):
        methods.run(data, replace(TINY, epochs=3), [1], journal, ["classes"], ["independent"])
    methods.run(data, replace(TINY, name="other", epochs=3), [0], journal, ["classes"], ["independent"])
    assert [row["size"] for row in journal.records] == ["tiny", "other"]


def test_rows_of_an_earlier_name_are_those_of_the_present_one(tmp_path) -> None:
    key = {"size": "cpu", "set": "Digits", "setting": "classes", "seed": 0, "method": "BCT"}
    path = tmp_path / "methods.jsonl"
    path.write_text(json.dumps(key | {"t/t": {"map": 0.5}}) + "\n")
    journal = Journal(path, EARLIER)
    (row,) = journal.records
    assert row["size"] == "quick"
    journal.once(key | {"size": "quick"}, lambda: pytest.fail("measured again"))
    assert Journal(path).records[0]["size"] == "cpu", "the file stays as it is"


def test_only_quick_lets_source_and_target_start_alike(data) -> None:
    captions = np.eye(len(data.training.class_names), dtype=np.float32)
    everything = replace(methods.following(data, data), captions=captions)
    for name, size in SIZES.items():
        for setting in methods.SETTINGS:
            drawn = methods.lesson(everything, setting, replace(size, images=100), seed=0)
            models = methods.Models(drawn)
            source = models.classifier(target=False)["seed"]
            starts = [models.classifier(start=number)["seed"] for number in (1, 2)]
            if name == "quick":
                assert starts == [source + 500 * (setting == "data")] * 2
            else:
                assert len({source, *starts}) == 3


def test_letters_are_not_mirrored_and_photographs_are(data, tmp_path) -> None:
    for row in range(20):
        place = tmp_path / str(row % 2)
        place.mkdir(exist_ok=True)
        Image.new("L", (9, 9), row).save(place / f"{row}.png")
    for images, flip in ((data, False), (methods.read(tmp_path, "Greys", 8), True)):
        assert methods.Models(methods.lesson(images, "classes", TINY, 0)).classifier()["augmentation"].flip is flip
    assert (
        methods.Models(methods.lesson(data, "classes", replace(TINY, augment=False), 0)).classifier()["augmentation"]
        is None
    )


def test_a_checkpoint_is_named_after_all_that_decides_a_training(data, tmp_path) -> None:
    checkpoints, trainer = (
        methods.Checkpoints(tmp_path),
        trainers.Independent(dim=4, width=4, epochs=1, warmup_epochs=0.0),
    )
    few = data.training.take(range(60))
    one, two = (replace(trainer, seed=seed).fit(few) for seed in (0, 1))
    others = [
        checkpoints.of(replace(trainer, seed=1), few),
        checkpoints.of(replace(trainer, learning_rate=1e-3), few),
        checkpoints.of(trainer, few.take(range(50))),
        checkpoints.of(trainer, few, one),
        checkpoints.of(trainer, few, two),
        checkpoints.of(trainer, few, one, two),
        checkpoints.of(trainer, few, two, one),
    ]
    assert len({checkpoints.of(trainer, few), *others}) == 8
    assert checkpoints.of(replace(trainer, workers=2), few) == checkpoints.of(trainer, few)
    assert methods.Checkpoints().of(trainer, few) is None


def test_what_is_trained_is_taken_up_by_the_next_run(data, tmp_path) -> None:
    rows = ["independent", "FCT + SimCLR", "DMU", "DMU, refreshed by distance"]
    journals = [Journal(tmp_path / f"{number}.jsonl") for number in range(2)]
    folder = tmp_path / "checkpoints"
    methods.run(data, TINY, [0], journals[0], ["classes"], rows, methods.Checkpoints(folder))
    saved = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    kinds = sorted(path.name.partition("-")[0] for path in saved)
    assert kinds == ["DMU", "Independent", "Independent", "SimCLR"], "rows share what they have in common"
    methods.run(data, TINY, [0], journals[1], ["classes"], rows, methods.Checkpoints(folder))
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == saved, "no step was taken"
    assert without_seconds(journals[0]) == without_seconds(journals[1])


def test_a_series_is_taken_up_too(data, tmp_path) -> None:
    journals, folder = [Journal(tmp_path / f"{number}.jsonl") for number in range(2)], tmp_path / "checkpoints"
    methods.run(data, TINY, [0], journals[0], ["series"], ["BT2", "DMU, refreshed"], methods.Checkpoints(folder))
    saved = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    time.sleep(1.1)  # an artifact's id holds the second in which it was made
    methods.run(data, TINY, [0], journals[1], ["series"], ["BT2", "DMU, refreshed"], methods.Checkpoints(folder))
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == saved
    assert without_seconds(journals[0]) == without_seconds(journals[1])


def test_without_resume_trainings_begin_anew_once(data, tmp_path) -> None:
    few, trainer = data.training.take(range(60)), trainers.Independent(dim=4, width=4, epochs=1, warmup_epochs=0.0)
    file = methods.Checkpoints(tmp_path).of(trainer, few)
    trainer.fit(few, checkpoint=file)
    restarted = methods.Checkpoints(tmp_path, resume=False)
    assert restarted.of(trainer, few) == file
    assert not file.exists()
    trainer.fit(few, checkpoint=file)
    restarted.of(trainer, few)
    assert file.exists(), "what this process has trained it goes on from"


def test_a_killed_run_ends_with_the_rows_of_one_that_was_not(tmp_path) -> None:
    digits = load_digits()
    for row in range(200):
        place = tmp_path / "digits" / str(digits.target[row])
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[row] * 15).astype(np.uint8)).save(place / f"{row}.png")
    sets = ["--set", str(tmp_path / "digits"), "Digits", "--journal", str(tmp_path / "killed.jsonl")]
    options = [*sets, "--size", "tiny", "--seeds", "1", "--setting", "classes", "--row", "BCT"]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.methods.run", *options], cwd=ROOT)
    folder = tmp_path / "killed.checkpoints"
    while process.poll() is None and not list(folder.glob("*.safetensors")):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(folder.glob("*.safetensors"))
    images = methods.read(tmp_path / "digits", "Digits", SIZES["tiny"].pixels)
    rows = []
    for name in ("killed", "whole"):
        journal = Journal(tmp_path / f"{name}.jsonl")
        methods.run(
            images,
            SIZES["tiny"],
            [0],
            journal,
            ["classes"],
            ["BCT"],
            methods.Checkpoints(tmp_path / f"{name}.checkpoints"),
        )
        rows.append(without_seconds(journal))
    assert rows[0] == rows[1]


def test_enough_is_what_no_longer_training_improves_on() -> None:
    assert rises.enough({10: 0.40, 20: 0.45, 40: 0.452}) == 20
    assert rises.enough({10: 0.40, 20: 0.45, 40: 0.47}) is None
    assert rises.enough({10: 0.47, 20: 0.45, 40: 0.44}) == 10
    assert rises.enough({10: 0.40}) is None


@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_tried_with_its_own_networks_on_less(name: str) -> None:
    whole, tried = asdict(SIZES[name]), asdict(SIZES[name].tried())
    differ = {key for key in whole if tried[key] != whole[key]}
    amounts = {"images", "gallery", "queries", "alphas"} | {key for key in whole if key.endswith("epochs")}
    assert {"name"} <= differ <= {"name", *amounts}
    assert all(tried[key] < whole[key] for key in differ - {"name"})


def test_a_rise_is_a_row_for_each_number_of_epochs(data, tmp_path) -> None:
    journal, checkpoints = Journal(tmp_path / "rise.jsonl"), methods.Checkpoints(tmp_path / "checkpoints")
    rises.rise(data, TINY, [2, 3], 0, journal, checkpoints)
    assert [row["method"] for row in journal.records] == [
        "source, 2 epochs",
        "target, 2 epochs",
        "source, 3 epochs",
        "target, 3 epochs",
    ]
    assert [row["settings"]["epochs"] for row in journal.records] == [2, 2, 3, 3]
    alone = methods.Models(methods.lesson(data, "classes", TINY, 0), checkpoints)
    saved = len(list((tmp_path / "checkpoints").iterdir()))
    assert alone.source.encoder.dim == TINY.dim
    assert len(list((tmp_path / "checkpoints").iterdir())) == saved, "a run takes up what the rise has trained"
    lines = list(rises.table(journal.records))
    assert lines[0].endswith("| 2 epochs | 3 epochs | no longer rises from |")
    assert lines[2].startswith("| tiny | Digits | source | 1 |")
    page = tmp_path / "page.md"
    page.write_text("# Title\n<!-- table: rise -->\nold\n<!-- end -->\nMore.\n")
    methods.publish(lines, page)
    assert page.read_text().splitlines() == ["# Title", "<!-- table: rise -->", *lines, "<!-- end -->", "More."]
    before = journal.path.read_text()
    rises.rise(data, TINY, [2, 3], 0, Journal(journal.path), checkpoints)
    assert journal.path.read_text() == before


def test_where_margins_leave_vectors_is_the_cosine_with_their_own_row(data, tmp_path) -> None:
    journal, checkpoints = Journal(tmp_path / "margins.jsonl"), methods.Checkpoints(tmp_path / "checkpoints")
    margins.margins(data, TINY, 0, journal, checkpoints)
    assert [row["method"] for row in journal.records] == list(margins.LOSSES)
    alone = methods.Models(methods.lesson(data, "classes", TINY, 0), checkpoints)
    saved = len(list((tmp_path / "checkpoints").iterdir()))
    vectors = alone.independent.encoder.encode(list(alone.lesson.gallery.images))
    assert len(list((tmp_path / "checkpoints").iterdir())) == saved, "ArcFace's target is the one of other rows"
    labels = np.asarray(alone.lesson.gallery.labels)
    first = journal.records[0]
    assert first["own_row"] == pytest.approx(
        np.mean(np.sum(vectors * alone.independent.head[labels], axis=1)), abs=1e-5
    )
    assert first["mean_length"] == pytest.approx(np.linalg.norm(vectors.mean(axis=0)), abs=1e-5)
    assert first["t/t"] == pytest.approx(methods.own(alone.lesson, alone.independent), abs=1e-5)
    lines = list(margins.table(journal.records))
    assert lines[2].startswith("| Digits | ArcFace, margin 0.3 | 1 | ")


def test_covering_items_are_those_that_the_greedy_choice_by_definition_takes() -> None:
    vectors = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    alike, chosen = np.maximum(vectors @ vectors.T, 0), list[int]()
    for _ in range(12):
        worth = [alike[:, [*chosen, each]].max(axis=1).sum() if each not in chosen else -1 for each in range(60)]
        chosen.append(int(np.argmax(worth)))
    assert methods.covering(vectors, 12).tolist() == chosen


def test_orders_that_are_compared_are_orders_of_all_items() -> None:
    random = np.random.default_rng(0)
    hopped, source = random.normal(size=(2, 50, 4)).astype(np.float32)
    found = methods.orders(hopped, random.random(50), source, 0)
    assert all(sorted(ranked.tolist()) == list(range(50)) for ranked in found.values())
    assert {"random", "sigma", "spread, then sigma: 10% spread", "covering, then sigma: 20% covering"} <= found.keys()
    assert methods.orders(hopped, None, source, 0).keys() == {"random", "spread"}
