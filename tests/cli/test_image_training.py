"""Models trained on folders of images, from the first model to a search by the second one."""

from __future__ import annotations

import pytest

from lazily import Lazy

timm = Lazy("timm")
torch = Lazy("torch")

SHORT = (
    "--set",
    "size=8",
    "--set",
    "mode=L",
    "--set",
    "width=8",
    "--set",
    "epochs=4",
    "--set",
    "batch_size=16",
    "--set",
    "head=cosine",
)


@pytest.mark.full
@pytest.mark.parametrize("method", ["bct", "dmu"])
def test_a_second_model_searches_the_first_one_s_gallery(run, photos, tmp_path, method):
    v1, v2, gallery = tmp_path / "v1.model", tmp_path / "v2.model", tmp_path / "photos.lance"
    first = run("train", "independent", "--images", photos, "--set", "dim=8", "--out", v1, *SHORT, "--json").json
    assert (first["metric"], first["normalised"], first["artifacts"]) == (None, True, [])
    words = ("train", method, "--images", photos, "--source", v1, "--set", "dim=8", "--out", v2, *SHORT)
    checkpoint = ("--checkpoint", tmp_path / "v2.checkpoint", "--held-out", 0.3, "--augment")
    second = run(*words, *checkpoint, "--json").json
    assert {"accuracy", "s/s", "t/s", "t/t"} <= set(second["figures"])
    space = ("--metric", "cosine", "--normalised")
    for command in (
        ("init", gallery, "--version", "v1", "--encoder", first["encoder"], "--head", first["classifier"], *space),
        ("add", gallery, photos),
        ("register", gallery, "v2", "--encoder", second["encoder"], "--head", second["classifier"], *space),
        *(("link", gallery, artifact, "--from", "v1", "--to", "v2") for artifact in second["artifacts"]),
    ):
        found = run(*command)
        assert found.code == 0, found.err
    image = next((photos / "1").iterdir())
    results = run("search", gallery, "--image", image, "--version", "v2", "-k", 3, "--json").json
    assert len(results) == 3


@pytest.mark.full
def test_an_adaptation_learns_from_a_gallery_that_was_refreshed(run, photos, tmp_path):
    v1, v2, v3 = (tmp_path / f"v{number}.model" for number in (1, 2, 3))
    brief = (*SHORT, "--set", "epochs=1", "--set", "warmup_epochs=0", "--set", "dim=8")
    assert run("train", "independent", "--images", photos, "--out", v1, *brief).code == 0
    dmu = ("train", "dmu", "--images", photos, *brief, "--set", "adapter_width=8")
    assert run(*dmu, "--source", v1, "--out", v2).code == 0
    third = (*dmu, "--source", v2, "--out", v3, "--held-out", 0.3)
    for refreshed, words in (
        ((v1, v2 / "artifact.compat"), "found Identity"),
        ((v2, v2 / "adaptation.compat"), "for adaptation 1"),
        ((v1, f"{v2}/adaptation.compat,{v2}/gone.compat"), "gone.compat"),
        ((tmp_path / "gone.model", v2 / "adaptation.compat"), "gone.model"),
    ):
        refused = run(*third, "--refreshed", *refreshed)
        assert refused.code != 0
        assert words in refused.err
    made = run(*third, "--refreshed", v1, v2 / "adaptation.compat", "--json").json
    assert 0 <= made["figures"]["t/h, refreshed 1"] <= 1
    assert len(made["artifacts"]) == 2
    without = run(*dmu, "--source", v1, "--out", tmp_path / "v4.model", "--set", "adaptation_weight=0", "--json").json
    assert without["artifacts"] == [f"{tmp_path}/v4.model/artifact.compat"]


def test_people_are_told_how_to_go_on(run, photos, tmp_path):
    out = tmp_path / "v1.model"
    shown = run(
        "train", "independent", "--images", photos, "--set", "dim=4", "--out", out, *SHORT, "--held-out", 0.3
    ).out
    assert "accuracy" in shown
    assert f"compatstore register GALLERY VERSION --encoder network:{out}/encoder.safetensors --normalised" in shown
    assert "--head-loss cosface --head-margin 0\n" in shown
    again = run("train", "independent", "--images", photos, "--set", "dim=4", "--out", out, *SHORT)
    assert again.code != 0
    assert "another model" in again.err


@pytest.mark.full
def test_images_that_cannot_be_read_are_refused_or_listed(run, photos, tmp_path):
    broken = tmp_path / "photos"
    for path in photos.rglob("*.png"):
        (broken / path.parent.name).mkdir(parents=True, exist_ok=True)
        (broken / path.parent.name / path.name).write_bytes(path.read_bytes())
    (broken / "0" / "broken.png").write_bytes(b"no image")
    words = ("train", "independent", "--images", broken, "--set", "dim=4", "--out", tmp_path / "v1.model", *SHORT)
    refused = run(*words)
    assert refused.code != 0
    assert "broken.png" in refused.err
    dropped = run(*words, "--drop-unreadable")
    assert dropped.code == 0
    assert "Left out 1 of 61 images" in dropped.err
    assert "broken.png" in dropped.err


def test_a_folder_without_classes_and_a_missing_source_say_so(run, photos, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    for words, expected in (
        (("independent", "--images", empty), "find images"),
        (("bct", "--images", photos, "--source", tmp_path / "gone.model"), "gone.model"),
    ):
        failed = run("train", *words, "--set", "dim=4", "--out", tmp_path / "v.model", *SHORT)
        assert failed.code != 0
        assert expected in failed.err


@pytest.mark.full
def test_a_model_starts_from_weights_of_a_file(run, photos, tmp_path):
    weights, out = tmp_path / "weights.pth", tmp_path / "v1.model"
    torch.save(timm.create_model("test_resnet", num_classes=3).state_dict(), weights)
    words = (
        "train",
        "independent",
        "--images",
        photos,
        "--set",
        "dim=4",
        "--set",
        "size=32",
        "--set",
        "epochs=2",
        "--set",
        "batch_size=16",
    )
    words += ("--set", "architecture=timm:test_resnet", "--out", out)
    failed = run(*words, "--set", f"pretrained={tmp_path / 'gone.pth'}")
    assert "Check the path" in failed.err
    assert not out.exists()
    made = run(*words, "--set", f"pretrained={weights}", "--json").json
    weights.unlink()
    gallery = tmp_path / "photos.lance"
    assert run("init", gallery, "--version", "v1", "--encoder", made["encoder"]).code == 0
    assert run("add", gallery, photos).code == 0
