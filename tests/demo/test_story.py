from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from compatstore.demo.data import DemoDirectory
from compatstore.evaluation import Advice, DecisionRow, DecisionTable, Estimate
from lazily import Lazy

demo_digits = Lazy("compatstore.demo.data")
story = Lazy("compatstore.demo.story")


def decided(*values: float) -> DecisionTable:
    """A status quo of 0.4, and the mAP of budgets at even steps."""
    shares = np.linspace(0, 1, len(values))
    ways = [("status quo", "s/s", 0.0, 0.4)] + [
        ("full backfill" if share == 1 else f"{share:g}", "t/t" if share == 1 else "t/h+t", float(share), value)
        for share, value in zip(shares, values, strict=True)
    ]
    rows = tuple(
        DecisionRow(
            name=name,
            notation=notation,
            share=share,
            figures={"map": Estimate(value=value, low=value, high=value)},
            gains={},
            kept={},
            flips=None,
            broken=None,
        )
        for name, notation, share, value in ways
    )
    advice = Advice(verdict="upgrade", row="full backfill", share=1.0, text="Upgrade.")
    return DecisionTable(
        rows=rows, advice=advice, criterion="map", truth="qrels", confidence=0.95, num_queries=90, num_skipped=0
    )


def test_the_curve_can_be_read_on_white_and_on_black(tmp_path: Path) -> None:
    story.draw_curve({"plain": decided(0.5, 0.6, 0.9), "with side": decided(0.7, 0.8, 0.9)}, tmp_path / "curve.png")
    with Image.open(tmp_path / "curve.png") as image:
        assert image.size == (1200, 800)
        pixels = np.asarray(image.convert("RGBA")).reshape(-1, 4)
    opaque = pixels[pixels[:, 3] == 255, :3].astype(float) / 255
    light = np.where(opaque <= 0.04045, opaque / 12.92, ((opaque + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
    assert (pixels[0, 3], pixels[-1, 3]) == (0, 0)
    assert len(opaque) > 1000
    assert (1.05 / (light + 0.05)).min() > 2, "on white"
    assert ((light + 0.05) / 0.05).min() > 3, "on black"


def test_what_is_right_for_a_query_are_all_images_of_its_digit(tmp_path: Path) -> None:
    digits = demo_digits.write_digits(DemoDirectory(tmp_path), 0)
    queries = story.queries_of(digits)
    judged = queries.judgements
    assert queries.read.ids == tuple(digits.queries.ids)
    for name, digit in zip(digits.queries.ids, digits.queries.labels, strict=True):
        assert set(judged[name]) == set(digits.gallery.ids[digits.gallery.labels == digit])


@pytest.mark.parametrize("seed", [0, 1])
def test_the_three_parts_share_no_image_and_have_all_digits(tmp_path: Path, seed: int) -> None:
    digits = demo_digits.write_digits(DemoDirectory(tmp_path), seed)
    gallery, queries = set(digits.gallery.ids), set(digits.queries.ids)
    assert not gallery & queries
    assert len(digits.training) + len(gallery) + len(queries) == 1797
    assert all(
        set(np.asarray(part.labels)) == set(range(10)) for part in (digits.training, digits.gallery, digits.queries)
    )
    assert all(
        path.is_file() and path.parent.name == str(label)
        for path, label in zip(digits.gallery.paths, digits.gallery.labels, strict=True)
    )
