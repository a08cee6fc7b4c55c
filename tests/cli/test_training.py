"""train METHOD on pairs of files and of a gallery."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore import trainers
from compatstore.trainers import Pairs


def files(digits):
    return ("--pairs", digits / "v1.npz", digits / "v2.npz")


def test_train_fct_is_the_same_as_the_api(run, digits, tmp_path):
    settings = {"epochs": 2, "branch_width": 16, "mixer_width": 32, "batch_size": 64, "bias": False, "seed": 3}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    trained = run("train", "fct", *files(digits), "--out", tmp_path / "h.compat", *words, "--json")
    assert trained.code == 0
    pairs = Pairs.load(digits / "v1.npz", digits / "v2.npz")
    expected = trainers.FCT(**settings).fit(pairs)
    loaded = cs.Artifact.load(tmp_path / "h.compat")
    assert loaded.manifest.settings == expected.manifest.settings
    np.testing.assert_array_equal(loaded.apply(pairs.source).vectors, expected.apply(pairs.source).vectors)
    assert trained.json["id"] == loaded.id
    assert trained.json["manifest"]["figures"]["h"]["rows"] == 30


def test_held_out_figures_are_shown(run, digits, tmp_path):
    shown = run("train", "procrustes", *files(digits), "--out", tmp_path / "h.compat").out
    assert "Procrustes  64 -> 24 values" in shown
    assert "recall_at_10" in shown


def test_numbers_with_commas_are_a_setting(run, digits, tmp_path):
    trained = run("train", "ridge", *files(digits), "--out", tmp_path / "h", "--set", "penalties=0.5", "--json")
    assert trained.json["manifest"]["settings"]["penalties"] == [0.5]
    assert run("train", "ridge", *files(digits), "--out", tmp_path / "g", "--set", "penalties=a,b").code == 2


def test_an_artifact_for_a_gallery_links_by_itself(run, gallery, digits, tmp_path):
    out = tmp_path / "h.compat"
    versions = ("--gallery", gallery, "--from", "v1", "--to", "v2")
    assert run("train", "ridge", *files(digits), *versions, "--out", out).code == 0
    assert run("link", gallery, out, "--json").json["target"] == "v2"


@pytest.mark.full
def test_train_on_what_is_native_in_both_versions(run, linked, tmp_path):
    assert run("upgrade", linked, "v2", "--backfill", 0.5).code == 0
    versions = ("--gallery", linked, "--from", "v1", "--to", "v2")
    trained = run("train", "ridge", *versions, "--out", tmp_path / "h.compat", "--json")
    assert trained.code == 0
    assert trained.json["manifest"]["figures"]["h"]["rows"] == 15
    assert trained.json["manifest"]["source"]["name"] == "v1"


def test_train_without_native_pairs_says_what_to_do(run, linked, tmp_path):
    versions = ("--gallery", linked, "--from", "v1", "--to", "v2")
    assert run("train", "ridge", *versions, "--out", tmp_path / "h").code == 3
    run("upgrade", linked, "v2")
    refused = run("train", "ridge", *versions, "--out", tmp_path / "h")
    assert refused.code == 2
    assert "--pairs" in refused.err


def test_side_information_is_joined_by_id(run, digits, tmp_path):
    """Rows of the side file stand in reverse order; joined by id they give what one file gives."""
    with np.load(digits / "v1.npz") as arrays:
        ids, vectors = arrays["id"], arrays["vector"]
    side = np.random.default_rng(0).normal(size=(len(ids), 4)).astype(np.float32)
    np.savez(tmp_path / "both.npz", id=ids, vector=vectors, side=side)
    np.savez(tmp_path / "side.npz", id=ids[::-1], vector=side[::-1])
    words = ("--set", "epochs=1", "--set", "branch_width=8", "--set", "mixer_width=8", "--json")
    one = run("train", "fct", "--pairs", tmp_path / "both.npz", digits / "v2.npz", "--out", tmp_path / "a", *words)
    apart = (*files(digits), "--side", tmp_path / "side.npz")
    two = run("train", "fct", *apart, "--out", tmp_path / "b", *words)
    assert one.code == two.code == 0
    assert one.json["manifest"]["weights_sha256"] == two.json["manifest"]["weights_sha256"]
    assert one.json["manifest"]["side_source"]["dim"] == 4


def test_an_artifact_is_not_overwritten_unless_asked(run, digits, artifact, tmp_path):
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "mine.txt").write_text("mine")
    refused = run("train", "ridge", *files(digits), "--out", tmp_path / "h")
    assert refused.code == 4
    assert "--overwrite" in refused.err
    assert (tmp_path / "h" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 2),
        (("--source", "a.npz"), 2),
        (("--gallery", "g", "--from", "v1"), 2),
        (("--gallery", "no-such", "--from", "v1", "--to", "v2"), 3),
        (("--pairs", "no-such.npz", "no-such.npz"), 2),
        (("--gallery", "no-such", "--from", "v1", "--to", "v2", "--side", "s.npz"), 3),
    ],
)
def test_train_refuses(run, tmp_path, words, code):
    refused = run("train", "ridge", *words, "--out", tmp_path / "h")
    assert (refused.code, refused.out) == (code, "")
    assert not (tmp_path / "h").exists()


def test_a_setting_out_of_its_range_is_refused(run, digits, tmp_path):
    refused = run("train", "fct", *files(digits), "--out", tmp_path / "h", "--set", "epochs=0", "--json")
    assert (refused.code, refused.json["error"]) == (2, "InvalidInput")


def test_train_pairs_a_gallerys_version_with_a_file_and_says_how_many_matched(run, gallery, digits, tmp_path):
    words = ("--gallery", gallery, "--pairs", "v1", digits / "v2.npz", "--to", "v2")
    trained = run("train", "ridge", *words, "--labels", "label", "--out", tmp_path / "h.compat", "--json")
    assert trained.code == 0
    assert "300 pairs, joined by id: 300 items of v1 (native), 300 of " in trained.err
    assert run("link", gallery, tmp_path / "h.compat", "--json").json["source"] == "v1"


def test_from_and_to_stand_for_what_is_not_named(run, gallery, digits, tmp_path):
    """What the advice of a refused training says works: --pairs beside --gallery, --from and --to."""
    versions = ("--gallery", gallery, "--from", "v1", "--to", "v2")
    refused = run("train", "ridge", *versions, "--out", tmp_path / "h.compat")
    assert (refused.code, "--pairs" in refused.err) == (3, True)
    trained = run("train", "ridge", *versions, "--pairs", "v1", digits / "v2.npz", "--out", tmp_path / "h.compat")
    assert trained.code == 0


def test_train_on_an_apps_own_column(run, digits, tmp_path):
    with np.load(digits / "v1.npz") as old, np.load(digits / "v2.npz") as new:
        columns = {"id": old["id"].tolist(), "vector": old["vector"].tolist(), "ours": new["vector"].tolist()}
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=64, metric="l2"))
    gallery.add(pa.table(columns))
    words = ("--gallery", tmp_path / "g.lance", "--pairs", "v1", "ours")
    trained = run("train", "ridge", *words, "--out", tmp_path / "h.compat", "--json")
    assert trained.code == 0
    assert trained.json["manifest"]["target"]["dim"] == 24


@pytest.mark.parametrize("words", [(), ("--gallery", "g", "--from", "v1"), ("--from", "a", "--to", "b")])
def test_training_without_one_side_says_where_vectors_can_come_from(run, tmp_path, words):
    refused = run("train", "ridge", *words, "--out", tmp_path / "h.compat")
    assert refused.code == 2
    assert "--gallery" in refused.err


def test_two_sets_are_aligned_without_pairs(run, gallery, digits, tmp_path):
    settings = ["--set", "clusters=12", "--set", "rounds=10", "--set", "agreement=-1", "--json"]
    words = ["--gallery", gallery, "--pairs", "v1", digits / "v2.npz", "--to", "v2", *settings]
    out = tmp_path / "h.compat"
    trained = run("train", "unpaired", *words, "--out", out)
    assert trained.code == 0
    assert trained.json["manifest"]["method"] == "Unpaired"
    assert "agreement" in trained.json["manifest"]["figures"]["h"]
    assert run("link", gallery, out).code == 0
    assert run("train", "unpaired", *words, "--out", out).code == 4  # it exists


def test_sets_that_do_not_agree_are_refused_with_the_way_out(run, tmp_path):
    random = np.random.default_rng(0)
    for name in ("v1", "v2"):
        np.save(tmp_path / f"{name}.npy", random.normal(size=(400, 6)))
    sets = ["--pairs", tmp_path / "v1.npy", tmp_path / "v2.npy", "--out", tmp_path / "h.compat"]
    refused = run("train", "unpaired", *sets, "--set", "clusters=12", "--set", "rounds=10", "--set", "agreement=0.9")
    assert refused.code != 0
    assert "no map between these sets was found" in refused.err
    assert "fit Ridge on these pairs" in refused.err
    assert not (tmp_path / "h.compat").exists()


def test_what_joins_pairs_is_no_option_of_two_sets(run, tmp_path):
    refused = run("train", "unpaired", "--pairs", "a.npz", "b.npz", "--drop-missing", "--out", tmp_path / "h")
    assert refused.code == 2
    assert "does not take --drop-missing" in refused.err
