from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.demo.directory import DemoDirectory
from compatstore.evaluation.compatibility import fit_length
from lazily import Lazy

demo_digits = Lazy("compatstore.demo.digits")
measure = Lazy("compatstore.demo.measure")


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5))
def test_vectors_are_cut_or_filled_up_to_fit(have: int, want: int, rows: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(rows, have)).astype(np.float32)
    fitted = fit_length(vectors, want)
    shared = min(have, want)
    assert fitted.shape == (rows, want)
    assert fitted.dtype == np.float32
    assert np.array_equal(fitted[:, :shared], vectors[:, :shared])
    assert not fitted[:, shared:].any()


def files(ids: list[str], labels: list[int]) -> demo_digits.ImageFiles:
    return demo_digits.ImageFiles(ids=np.array(ids), paths=tuple(Path(name) for name in ids), labels=np.array(labels))


def test_a_row_and_the_ends_of_the_curve_agree() -> None:
    random = np.random.default_rng(0)
    labels = [row % 3 for row in range(40)]
    judge = measure.Judge(
        queries=files([f"q{n}" for n in range(40)], labels), gallery=files([f"{n}" for n in range(40)], labels)
    )
    queries, hopped, native = random.normal(size=(3, 40, 6)).astype(np.float32)
    curve = judge.curve(queries, hopped, native, seed=1)
    assert len(curve.alphas) == measure.CURVE_STEPS
    assert {0.0, 0.25, 0.5, 1.0} <= set(curve.alphas)
    assert curve.map[0] == judge.row("", "", queries, hopped, "").map
    assert curve.map[-1] == judge.row("", "", queries, native, "").map


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
