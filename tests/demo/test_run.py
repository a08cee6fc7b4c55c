import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from compatstore import Artifact, Gallery
from compatstore.demo import DemoReport, DemoSettings, run_demo
from compatstore.errors import AlreadyExists, InvalidInput, MissingExtra
from compatstore.trainers.training import one_thread

# Models that are trained for a third of the time, and still differ as those of the command do.
SMALL = DemoSettings(
    source_epochs=10, target_width=12, target_epochs=10, side_epochs=12, transform_width=256, transform_epochs=40
)
WIDTHS = {"source_width": 4, "target_width": 4, "side_width": 4, "transform_width": 4}
SHORTEST = DemoSettings(**WIDTHS, source_epochs=2, target_epochs=2, side_epochs=2, transform_epochs=1)


@pytest.fixture(
    scope="module",
    params=[pytest.param(SMALL, id="small"), pytest.param(DemoSettings(), id="as the command", marks=pytest.mark.slow)],
)
def settings(request: pytest.FixtureRequest) -> DemoSettings:
    return request.param


@pytest.fixture(scope="module")
def folder(settings: DemoSettings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a folder") / "demo"


@pytest.fixture(scope="module")
def said(settings: DemoSettings) -> list[str]:
    return []


@pytest.fixture(scope="module")
def report(folder: Path, said: list[str], settings: DemoSettings) -> DemoReport:
    return run_demo(folder, say=said.append, settings=settings)


@pytest.fixture(scope="module")
def gallery(report: DemoReport) -> Gallery:
    return Gallery.open(report.gallery)


def map_of(report: DemoReport, name: str) -> float:
    return report.decision.row(name).figures["map"].value


@pytest.mark.full
def test_the_hop_mends_what_a_naive_swap_breaks(report: DemoReport) -> None:
    names = ("naive swap", "status quo", "hop alone", "backfill 25%", "backfill 50%", "full backfill")
    quality = [map_of(report, name) for name in names]
    assert quality == sorted(quality)
    assert quality[2] > quality[1] + 0.2
    assert report.decision.row("hop alone").figures["cmc@1"].value > 0.8
    assert report.decision.row("hop alone").gains["map"].low > 0


@pytest.mark.full
def test_all_ways_were_measured_by_the_images_to_search_with(report: DemoReport) -> None:
    decision = report.decision
    assert (decision.truth, decision.criterion, decision.num_queries) == ("qrels", "map", report.queries)
    assert min(row.figures["map"].value for row in decision.served("fused")) > map_of(report, "status quo") + 0.2


@pytest.mark.full
def test_a_full_backfill_in_steps_equals_embedding_afresh_exactly(gallery: Gallery) -> None:
    items = gallery.scan(["id", "source"]).to_arrow().to_pydict()
    encoder = gallery.version("v2").encoder
    assert encoder is not None
    with one_thread():
        afresh = np.concatenate([encoder.encode([source]) for source in items["source"]])
    assert np.array_equal(gallery.vectors(items["id"], "v2"), afresh)


@pytest.mark.full
def test_the_gallery_stays_cut_over_and_fully_native(gallery: Gallery, report: DemoReport) -> None:
    status = gallery.status()
    v1, v2 = status.versions
    assert (status.active, status.rows, status.missing) == ("v2", report.items, 0)
    assert (v2.state, v2.native, v2.transformed, v2.missing) == ("active", report.items, 0, 0)
    assert (v1.state, v1.native) == ("live", report.items)
    assert [upgrade.state for upgrade in status.upgrades] == ["cutover"]
    steps = [entry.step for entry in gallery.maintenance.history()]
    assert [step for step in steps if step in ("hop", "backfill", "cutover")] == [
        "hop",
        "backfill",
        "backfill",
        "cutover",
        "backfill",
    ]


@pytest.mark.full
def test_a_fresh_program_searches_it_by_image(gallery: Gallery, folder: Path) -> None:
    queries = sorted((folder / "queries").glob("*/*.png"))[::40]
    for version, least in (("v1", 0.5), ("v2", 0.85)):
        found = [gallery.search(str(path), k=1, version=version)["label"][0].as_py() for path in queries]
        assert np.mean([label == int(path.parent.name) for label, path in zip(found, queries, strict=True)]) >= least


@pytest.mark.full
def test_queries_are_not_in_the_gallery(gallery: Gallery, folder: Path, report: DemoReport) -> None:
    queries, images = ({path.name for path in (folder / part).glob("*/*.png")} for part in ("queries", "images"))
    assert not queries & images
    assert (len(images), len(queries)) == (len(gallery), report.queries)


@pytest.mark.full
def test_pictures_and_artifacts_can_be_opened(report: DemoReport, folder: Path) -> None:
    for path in (path for path in report.files if path.suffix == ".png"):
        with Image.open(path) as picture:
            picture.load()
            assert picture.format == "PNG"
            assert min(picture.size) >= 600
            assert np.asarray(picture.convert("L")).std() > 10
    side = [Artifact.load(path).manifest.side_source for path in report.files if path.suffix == ".compat"]
    assert [kept is not None for kept in side] == [False, True]
    assert all(path.exists() for path in report.files)


@pytest.mark.full
def test_the_report_of_the_upgrade_is_one_page_with_pictures_of_items(report: DemoReport, folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert folder / "report.html" in report.files
    assert "Upgrade of v1 to v2: cutover" in text
    assert "correct by qrels" in text
    assert '<img src="data:image/jpeg' in text


@pytest.mark.full
def test_it_says_what_happens(said: list[str], report: DemoReport) -> None:
    told = "\n".join(said)
    assert f"Hop: {report.items} vectors" in told
    assert "Backfill to 25%" in told
    assert "Cutover: searches use v2" in told


@pytest.mark.full
def test_a_second_run_is_refused_and_changes_nothing(report: DemoReport, folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with pytest.raises(AlreadyExists, match=r"an earlier demo.*compatstore status"):
        run_demo(folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_missing_library_is_named_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtra, match=r"compatstore\[demo\]"):
        run_demo(tmp_path / "demo")
    assert not (tmp_path / "demo").exists()


def test_a_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="seed"):
        run_demo(tmp_path / "demo", seed=-1)
    assert not (tmp_path / "demo").exists()


def test_settings_out_of_range_are_named() -> None:
    with pytest.raises(InvalidInput, match="source_epochs >= 2"):
        DemoSettings(source_epochs=1)


@pytest.mark.full
def test_a_stopped_demo_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "demo"

    def stop_after_the_gallery(_line: str) -> None:
        if (folder / "gallery.lance").exists():
            (folder / "notes of the user").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_demo(folder, say=stop_after_the_gallery, settings=SHORTEST)
    assert [path.name for path in folder.iterdir()] == ["notes of the user"]


@pytest.mark.full
@pytest.mark.parametrize("is_new", [True, False])
def test_after_a_stopped_demo_the_same_command_can_be_given_again(tmp_path: Path, is_new: bool) -> None:
    folder = tmp_path / "demo"
    if not is_new:
        folder.mkdir()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of paper"):
            run_demo(folder, say=out_of_paper)
        assert folder.exists() != is_new


def out_of_paper(_line: str) -> None:
    raise RuntimeError("out of paper")
