"""Side-information from the command line: trained on a folder, stored as bits, read by a transform."""

from __future__ import annotations

import pytest

SHORT = ("--set", "size=8", "--set", "mode=L", "--set", "width=4", "--set", "epochs=2", "--set", "batch_size=16")


@pytest.mark.full
def test_bits_are_stored_from_the_first_image_and_read_when_there_is_a_target(run, photos, tmp_path):
    gallery, side = tmp_path / "photos.lance", tmp_path / "side.safetensors"
    for name, dim in (("v1", 8), ("v2", 6)):
        words = ("--images", photos, "--set", f"dim={dim}", "--out", tmp_path / f"{name}.model", *SHORT)
        assert run("train", "independent", *words).code == 0
    words = (
        "--images",
        photos,
        "--source",
        tmp_path / "v1.model",
        "--set",
        "dim=16",
        "--set",
        "codes=true",
        "--out",
        side,
    )
    trained = run("train", "simclr", *words, *SHORT, "--json").json
    assert (trained["encoder"], trained["dim"], trained["codes"]) == (f"network:{side}", 16, True)
    assert 0 <= trained["figures"]["cka"] <= 1

    v1, v2 = (f"network:{tmp_path}/{name}.model/encoder.safetensors" for name in ("v1", "v2"))
    stored = ("--encoder", v1, "--side-encoder", trained["encoder"], "--side-dtype", "bits")
    versions = ("--gallery", gallery, "--from", "v1", "--to", "v2")
    small = ("--set", "epochs=1", "--set", "branch_width=8", "--set", "mixer_width=8", "--set", "holdout=0")
    image = next((photos / "1").iterdir())
    for command in (
        ("init", gallery, "--version", "v1", *stored),
        ("add", gallery, photos),
        ("register", gallery, "v2", "--encoder", v2),
        ("upgrade", gallery, "v2", "--backfill", 1.0),
        ("train", "fct", *versions, "--out", tmp_path / "h.compat", *small),
        ("link", gallery, tmp_path / "h.compat"),
        ("verify", gallery),
    ):
        found = run(*command)
        assert found.code == 0, found.err
    shown = run("search", gallery, "--image", image, "-k", 1, "--columns", "id,v1__side", "--json").json
    assert len(bytes.fromhex(shown[0]["v1__side"])) == 2


@pytest.mark.parametrize(
    "kind", [("autoencoder",), ("alternate", "--set", "mixup=0.5", "--augment", "--set", "seed=3")]
)
def test_people_are_told_how_to_store_it(run, photos, tmp_path, kind):
    out = tmp_path / "side.safetensors"
    words = ("train", *kind, "--images", photos, "--set", "dim=8", "--out", out, *SHORT)
    assert f"--side-encoder network:{out}" in run(*words).out
    again = run(*words)
    assert again.code != 0
    assert "--overwrite" in again.err
