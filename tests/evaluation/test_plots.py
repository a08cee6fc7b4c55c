"""Plots of curves: files that open, of the size promised, that say what they should."""

import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from compatstore.errors import InvalidInput, MissingExtra
from compatstore.evaluation import (
    Advice,
    BackfillCurve,
    DecisionRow,
    DecisionTable,
    Estimate,
    Flips,
    plot_budgets,
    plot_curve,
    plot_decision,
)


@pytest.fixture
def curve():
    alphas = np.linspace(0, 1, 5)
    values = 0.5 + 0.3 * np.sqrt(alphas)
    area = {"cmc@1": 0.7, "map": 0.35}
    return BackfillCurve(alphas=alphas, cmc={1: values}, map=values / 2, area=area, num_queries=9, num_skipped=0)


def test_a_curve_is_a_png_of_the_size_promised(tmp_path, curve):
    path = plot_curve({"sigma": curve, "random": curve}, tmp_path / "new" / "curve.png", metric="map")
    with Image.open(path) as image:
        assert (image.format, image.size) == ("PNG", (1200, 800))
        image.verify()


def test_a_curve_shows_the_page_behind_it_and_can_be_read_on_light_and_dark(tmp_path, curve):
    path = plot_curve({str(number): curve for number in range(7)}, tmp_path / "curve.png", references={"now": 0.5})
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGBA")).reshape(-1, 4)
    opaque = pixels[pixels[:, 3] == 255, :3].astype(float) / 255
    light = np.where(opaque <= 0.04045, opaque / 12.92, ((opaque + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]
    assert (pixels[0, 3], pixels[-1, 3]) == (0, 0)
    assert len(opaque) > 1000
    assert (1.05 / (light + 0.05)).min() > 2, "on white"
    assert ((light + 0.05) / 0.05).min() > 3, "on black"


def test_an_svg_names_axes_curves_and_references(tmp_path, curve):
    path = plot_curve({"sigma": curve}, tmp_path / "curve.svg", references={"Status quo": 0.5})
    root = ElementTree.parse(path).getroot()
    text = " ".join(root.itertext())

    assert (root.get("width"), root.get("height")) == ("432pt", "288pt")
    for words in ("Gallery embedded natively (%)", "CMC-1 (%)", "sigma (mean 70.0)", "Status quo (50.0)"):
        assert words in text


def test_the_same_curves_give_the_same_svg(tmp_path, curve):
    first, second = (plot_curve({"sigma": curve}, tmp_path / name) for name in ("a.svg", "b.svg"))
    assert first.read_bytes() == second.read_bytes()


def test_what_cannot_be_drawn_is_refused(tmp_path, curve):
    with pytest.raises(InvalidInput, match="1 to 7 curves"):
        plot_curve({}, tmp_path / "a.png")
    with pytest.raises(InvalidInput, match="cmc@5"):
        plot_curve({"sigma": curve}, tmp_path / "a.png", metric="cmc@5")
    with pytest.raises(InvalidInput, match=r"\.png or \.svg"):
        plot_curve({"sigma": curve}, tmp_path / "a.pdf")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_extra_is_named(tmp_path, curve, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"compatstore\[report\]"):
        plot_curve({"sigma": curve}, tmp_path / "a.png")


@pytest.fixture
def table():
    figures = [{"cmc@1": Estimate(value=v, low=v - 0.1, high=v + 0.1)} for v in (0.5, 0.625)]
    rows = tuple(
        DecisionRow(
            name=name,
            notation=notation,
            share=0.0,
            figures=estimates,
            gains=estimates,
            kept=estimates,
            flips=Flips(positive=0.2, negative=0.1),
            broken=Estimate(value=0.1, low=0.05, high=0.15),
        )
        for name, notation, estimates in zip(("status quo", "hop alone"), ("s/s", "t/h"), figures, strict=True)
    )
    advice = Advice(verdict="upgrade", row="hop alone", share=0.0, text="Upgrade.")
    return DecisionTable(
        rows=rows, advice=advice, criterion="cmc@1", truth="labels", confidence=0.95, num_queries=90, num_skipped=0
    )


def test_a_decision_names_its_rows_and_figures(tmp_path, table):
    path = plot_decision(table, tmp_path / "decision.svg")
    text = " ".join(ElementTree.parse(path).getroot().itertext())
    for words in ("status quo  s/s", "hop alone  t/h", "62.5", "CMC-1 (%), 95% interval over 90 queries"):
        assert words in text
    assert "#0072b2" in path.read_text(), "what is advised is coloured"
    with Image.open(plot_decision(table, tmp_path / "decision.png")) as image:
        assert (image.format, image.width) == ("PNG", 1200)
    with pytest.raises(InvalidInput, match="cmc@1"):
        plot_decision(table, tmp_path / "decision.png", metric="map")


@pytest.mark.full
def test_budgets_are_a_curve_with_a_band_and_what_was_measured(tmp_path, table):
    path = plot_budgets(table, tmp_path / "budgets.svg", taken=(0.25, Estimate(value=0.7, low=0.65, high=0.75)))
    text = " ".join(ElementTree.parse(path).getroot().itertext())
    for words in ("estimated", "measured", "status quo, estimated (", "Gallery embedded natively (%)", "CMC-1 (%)"):
        assert words in text
    with Image.open(plot_budgets(table, tmp_path / "budgets.png")) as image:
        assert (image.format, image.size) == ("PNG", (1200, 800))
    with pytest.raises(InvalidInput, match="cmc@1"):
        plot_budgets(table, tmp_path / "budgets.png", metric="map")
