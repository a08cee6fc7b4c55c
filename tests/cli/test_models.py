"""register, derive, link, versions, unregister and unlink."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs


def test_register_with_all_that_a_version_has(run, gallery, tmp_path):
    np.save(tmp_path / "head.npy", np.ones((10, 32), np.float32))
    words = ("--dim", 32, "--metric", "dot", "--model", "m@2", "--side-dim", 4, "--head", tmp_path / "head.npy")
    words = (*words, "--head-loss", "cosface", "--head-margin", 0.2)
    registered = run("register", gallery, "v3", *words, "--dtype", "float16", "--json")
    assert registered.code == 0
    assert registered.json["versions"][-1]["state"] == "registered"
    version = cs.Gallery.open(gallery).version("v3")
    assert (version.metric, version.dtype, version.model, version.side_dim) == ("dot", "float16", "m@2", 4)
    assert version.head_loss == cs.HeadLoss("cosface", 0.2)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("v2", "--dim", "24"), 4),
        (("v3",), 2),
        (("v3", "--dim", "0"), 2),
        (("a__b", "--of", "v1", "--dim", "4"), 2),
        (("v3", "--dim", "4", "--metric", "hamming"), 2),
        (("v3", "--encoder", "timm"), 3),
        (("v3", "--encoder", "precomputed:no-such.npz"), 3),
        (("v3", "--dim", "4", "--head", "no-such.npy"), 3),
        (("v3", "--dim", "4", "--head-loss", "sphereface"), 2),
        (("v3", "--dim", "4", "--head-loss", "arcface", "--head-margin", "2"), 2),
        (("v3", "--dim", "4", "--head-margin", "0.3"), 2),
        (("v3", "--dim", "4", "--head-loss", "arcface"), 2),
        (("v3", "--dim", "4", "--head-loss", "cross-entropy", "--head-margin", "0.3"), 2),
    ],
)
def test_register_refuses(run, gallery, words, code):
    refused = run("register", gallery, *words)
    assert (refused.code, refused.out) == (code, "")


def test_derive_registers_what_an_upgrade_makes_without_an_encoder(run, gallery):
    words = ("v1_8", "--of", "v1", "--dim", 8, "--normalised", "--metric", "cosine", "--dtype", "float16")
    derived = run("register", gallery, *words, "--json")
    assert derived.code == 0
    assert [(v["name"], v["dim"], v["state"]) for v in derived.json["versions"]][-1] == ("v1_8", 8, "registered")
    planned = run("upgrade", gallery, "v1_8", "--dry-run")
    assert "exact, without an encoder, and natives stay native" in " ".join(planned.out.split())
    upgraded = run("upgrade", gallery, "v1_8", "--json").json
    assert (upgraded["transformed"], upgraded["backfilled"], upgraded["missing"]) == (300, 0, 0)
    assert "the first 8 of 64 values" in run("versions", gallery).out
    assert run("cutover", gallery, "v1_8").code == 0
    assert run("verify", gallery).code == 0
    whole, made = (cs.Gallery.open(gallery).vectors(["digit-0003"], name) for name in ("v1", "v1_8"))
    expected = cs.Derivation(dim=8, normalise=True).apply(whole).astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(made, expected)
    assert run("register", gallery, "plain", "--of", "v1", "--dim", 4, "--no-normalised").code == 0
    assert not cs.Gallery.open(gallery).version("plain").normalised


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("a", "--of", "v1", "--dim", "65"), 2, "64 values at most; found 65"),
        (("a", "--of", "v1", "--dim", "0"), 2, "dimensions from 1"),
        (("a", "--dim", "x"), 2, "is not a valid integer"),
        (("a", "--of", "v1"), 2, "no difference from v1"),
        (("a", "--of", "nope", "--dim", "8"), 3, "no such version"),
        (("a", "--of", "v2", "--dim", "8"), 3, "it is registered only"),
        (("v2", "--of", "v1", "--dim", "8"), 4, "Choose another name"),
        (("a", "--of", "v1", "--metric", "dot"), 2, "found 300 of 300 that are not"),
        (("a", "--metric", "hamming"), 2, "is not one of"),
        (("a", "--of", "v1", "--dtype", "bits", "--dim", "12"), 2, "a multiple of 8"),
        (("a__b", "--of", "v1", "--dim", "4"), 2, "single underscores"),
        (("drop table", "--of", "v1", "--dim", "4"), 2, "single underscores"),
    ],
    ids=str,
)
def test_derive_refuses(run, gallery, words, code, told):
    refused = run("register", gallery, *words)
    assert told in " ".join(refused.err.split())
    assert (refused.code, refused.out) == (code, "")
    assert cs.Gallery.open(gallery).versions() == ("v1", "v2")


def test_the_folder_of_a_model_is_no_encoder_and_the_message_names_the_file(run, gallery, tmp_path):
    (tmp_path / "v3.model").mkdir()
    refused = run("register", gallery, "v3", "--encoder", f"network:{tmp_path / 'v3.model'}")
    assert refused.code == 3
    assert "it is encoder.safetensors" in refused.err


def test_link_and_versions(run, gallery, artifact):
    linked = run("link", gallery, artifact, "--from", "v1", "--to", "v2", "--json")
    assert linked.code == 0
    assert (linked.json["source"], linked.json["target"], linked.json["method"]) == ("v1", "v2", "Ridge")
    shown = run("versions", gallery, "--json").json
    assert [version["name"] for version in shown["versions"]] == ["v1", "v2"]
    assert shown["artifacts"] == [linked.json]
    assert linked.json["id"][:12] in run("versions", gallery).out


def test_an_artifact_of_bare_files_needs_names(run, gallery, artifact):
    refused = run("link", gallery, artifact)
    assert refused.code == 2
    assert "--from SOURCE --to TARGET" in refused.err


def test_link_refuses_other_dimensions_and_damaged_files(run, gallery, artifact, tmp_path):
    assert run("link", gallery, artifact, "--from", "v2", "--to", "v1").code in (2, 4)
    assert run("link", gallery, tmp_path / "none.compat").code == 3
    broken = tmp_path / "broken.compat"
    broken.mkdir()
    for file in artifact.iterdir():
        (broken / file.name).write_bytes(file.read_bytes()[:-5])
    assert run("link", gallery, broken, "--from", "v1", "--to", "v2").code == 5


def test_versions_and_artifacts_are_forgotten_once_nothing_uses_them(run, linked):
    refused = run("unregister", linked, "v2")
    assert refused.code == 7
    artifact = run("versions", linked, "--json").json["artifacts"][0]["id"]
    assert f"compatstore unlink {linked} {artifact[:12]}" in refused.err
    assert f"one of {artifact[:12]}" in run("unlink", linked, "f00d").err
    assert run("unlink", linked, artifact[:8]).code == 0
    assert run("unregister", linked, "v2").code == 0
    left = run("versions", linked, "--json").json
    assert [version["name"] for version in left["versions"]] == ["v1"]
    assert left["artifacts"] == []
