"""Upgrades by a derivation: every native row native, the bits of the encoder, no encoder call; killed, and gone on."""

from __future__ import annotations

import subprocess
import sys
import threading

import hypothesis.strategies as st
import lance
import numpy as np
import pytest
from hypothesis import HealthCheck, given

import compatstore as cs
from compatstore.encoders import Precomputed
from compatstore.errors import UpgradeError
from compatstore.trainers import Pairs, Procrustes
from galleries import items, make
from properties import examples

ITEMS, DIM, SHORT = 300, 24, 8
IDS = [f"item-{row:04d}" for row in range(2 * ITEMS)]
VECTORS = np.random.default_rng(0).standard_normal((2 * ITEMS, DIM)).astype(np.float32)
STEP = cs.Derivation(dim=SHORT, normalise=True)
EXPECTED = STEP.apply(VECTORS)


class Counted(Precomputed):
    """Counts what it embeds."""

    asked = 0

    def encode(self, sources):
        self.asked += len(sources)
        return super().encode(sources)


def counted():
    return Counted(dict(zip(IDS, VECTORS, strict=True)))


def gallery_of(path, encoder=None, **version):
    gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=DIM, encoder=encoder, **version))
    for start in range(0, ITEMS, 100):
        gallery.add({"id": IDS[start : start + 100], "vector": VECTORS[start : start + 100]})
    return gallery


def versions(gallery):
    return {version.name: version for version in gallery.status().versions}


@pytest.mark.full
def test_a_shorter_version_lives_as_any_other(tmp_path):
    encoder = counted()
    gallery = gallery_of(tmp_path / "g.lance", encoder)
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=2)
    gallery.register("short", dim=SHORT, normalised=True)
    report = gallery.upgrade("short")
    assert (report.state, report.transformed, report.backfilled, report.missing) == ("ready", ITEMS, 0, 0)
    assert (versions(gallery)["short"].native, versions(gallery)["short"].transformed) == (ITEMS, 0)
    np.testing.assert_array_equal(gallery.vectors(IDS[:ITEMS], "short"), EXPECTED[:ITEMS])
    assert gallery.upgrade("short").transformed == 0
    gallery.add({"id": IDS[300:310], "vector": VECTORS[300:310]})
    gallery.add({"id": IDS[:5], "vector": VECTORS[310:315]}, upsert=True)
    np.testing.assert_array_equal(gallery.vectors(IDS[300:310] + IDS[:5], "short"), EXPECTED[300:315])
    assert gallery.cutover("short").active == "short"
    assert encoder.asked == 0
    assert gallery.rollback().active == "v1"
    gallery.upgrade("short")
    gallery.cutover("short")
    found = gallery.search(EXPECTED[20], k=1)
    assert (found["id"].to_pylist(), found["_origin"].to_pylist()) == ([IDS[20]], ["native"])
    assert set(gallery.retire("v1").dropped) > {"v1"}
    gallery.maintenance.optimize(grace=0)
    gallery.add({"id": IDS[310:320], "source": ["text"] * 10})
    np.testing.assert_array_equal(gallery.vectors(IDS[310:320]), EXPECTED[310:320])
    assert gallery.maintenance.verify().clean
    again = cs.Gallery.open(str(tmp_path / "g.lance"), encoders={"short": encoder})
    again.add({"id": IDS[320:330], "source": ["text"] * 10})
    np.testing.assert_array_equal(again.vectors(IDS[320:330]), EXPECTED[320:330])


@pytest.mark.full
def test_an_encoder_given_for_the_source_serves_what_is_derived_of_it(tmp_path):
    path = tmp_path / "g.lance"
    gallery = gallery_of(path, counted())
    gallery.register("short", dim=SHORT, normalised=True)
    gallery.upgrade("short")
    gallery.register("codes", of="short", dtype="bits")
    gallery.upgrade("codes")
    again = cs.Gallery.open(str(path), encoders={"v1": counted()})
    again.add({"id": IDS[300:304], "source": ["text"] * 4}, "codes")
    np.testing.assert_array_equal(again.vectors(IDS[300:304], "short"), EXPECTED[300:304])
    np.testing.assert_array_equal(again.vectors(IDS[300:304], "codes"), np.where(EXPECTED[300:304] > 0, 1, -1))
    np.testing.assert_array_equal(again.vectors(IDS[300:304], "v1"), VECTORS[300:304])


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float16", "bits"])
def test_a_source_of_fewer_bits_gives_the_same_to_adds_and_upgrades(tmp_path, dtype):
    path = tmp_path / "g.lance"
    gallery = gallery_of(path, counted(), dtype=dtype)
    gallery.register("short", dim=SHORT, normalised=True, dtype="float32")
    gallery.upgrade("short")
    gallery.cutover("short")
    upgraded = gallery.vectors(IDS[:ITEMS])
    gallery.retire("v1")
    gallery.add({"id": IDS[:ITEMS], "source": ["text"] * ITEMS}, upsert=True)
    assert gallery.vectors(IDS[:ITEMS]).tobytes() == upgraded.tobytes()


@pytest.mark.full
def test_transformed_rows_stay_marked_until_their_source_is_native(tmp_path):
    gallery = gallery_of(tmp_path / "g.lance")
    rotated = np.ascontiguousarray(VECTORS[:, ::-1])
    v2 = cs.EmbeddingVersion("v2", dim=DIM, encoder=Precomputed(dict(zip(IDS, rotated, strict=True))))
    gallery.register(v2)
    pairs = Pairs(VECTORS, rotated, source_version=gallery.version("v1"), target_version=v2)
    h = gallery.artifacts.link(Procrustes().fit(pairs))
    gallery.upgrade("v2", backfill=0.25)
    gallery.cutover("v2")
    gallery.register("short", dim=SHORT)
    derivation = gallery.artifacts[-1].id
    gallery.upgrade("short")
    status = versions(gallery)["short"]
    assert (status.native, status.transformed) == (ITEMS // 4, ITEMS - ITEMS // 4)
    origins = gallery.get(IDS[:ITEMS], ["v2__origin", "short__origin"]).to_pylist()
    chained = {"native": "native", h[:12]: f"{h[:12]}+{derivation[:12]}"}
    assert all(row["short__origin"] == chained[row["v2__origin"]] for row in origins)
    assert gallery.upgrade("short").transformed == 0
    with pytest.raises(UpgradeError, match=r"upgrade to .* applies it|were made by it"):
        gallery.artifacts.unlink(derivation)
    assert gallery.maintenance.verify().clean
    gallery.upgrade("v2", backfill=1.0)
    gallery.upgrade("short")
    assert versions(gallery)["short"].native == ITEMS
    np.testing.assert_array_equal(
        gallery.vectors(IDS[:ITEMS], "short"), cs.Derivation(dim=SHORT).apply(rotated[:ITEMS])
    )


@pytest.mark.full
def test_a_hop_and_a_derivation_in_a_row_are_transformed(tmp_path):
    gallery = gallery_of(tmp_path / "g.lance")
    v2 = cs.EmbeddingVersion("v2", dim=DIM, model="m")
    gallery.register(v2)
    h = Procrustes().fit(Pairs(VECTORS, VECTORS[:, ::-1], source_version=gallery.version("v1"), target_version=v2))
    gallery.artifacts.link(h)
    gallery.upgrade("v2")
    gallery.register("short", of="v2", dim=SHORT)
    gallery.abort("v2")
    assert len(gallery.upgrade("short", dry_run=True).path) == 2
    assert gallery.upgrade("short").missing == 0
    assert (versions(gallery)["short"].native, versions(gallery)["short"].transformed) == (0, ITEMS)
    assert gallery.maintenance.verify().clean


def test_the_plan_says_that_no_encoder_is_called(tmp_path):
    encoder = counted()
    gallery = gallery_of(tmp_path / "g.lance", encoder, side_dim=None)
    gallery.register("short", dim=SHORT, normalised=True, dtype="float16")
    plan = gallery.upgrade("short", backfill=1.0, dry_run=True)
    assert [step.name for step in plan.steps] == ["expand", "hop", "catch-up", "cutover"]
    assert "the first 8 of 24 values, scaled to unit length, stored as float16" in plan.steps[1].note
    assert "exact, without an encoder, and natives stay native" in plan.steps[1].note
    report = gallery.upgrade("short", backfill=1.0)
    assert (report.transformed, report.backfilled, encoder.asked) == (ITEMS, 0, 0)


def test_there_is_nothing_to_improve_in_a_derivation(tmp_path):
    gallery = gallery_of(tmp_path / "g.lance", counted())
    gallery.register("short", dim=SHORT)
    gallery.upgrade("short", backfill=0.5, learn=cs.Learn(improve=True))
    assert "learn" not in [entry.step for entry in gallery.maintenance.history()]
    np.testing.assert_array_equal(gallery.vectors(IDS[:ITEMS], "short"), VECTORS[:ITEMS, :SHORT])


def test_rows_without_a_direction_are_missing_and_named(tmp_path):
    gallery = gallery_of(tmp_path / "g.lance", counted())
    flat = VECTORS[:2].copy()
    flat[:, :SHORT] = 0
    gallery.add({"id": ["flat-0", "flat-1"], "vector": flat})
    gallery.register("short", dim=SHORT, normalised=True)
    assert gallery.upgrade("short").missing == 2
    assert gallery.status().upgrades[0].missing == ("flat-0", "flat-1")


def test_vectors_of_other_lengths_that_come_later_do_not_come_in(tmp_path):
    path = tmp_path / "g.lance"
    gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=SHORT))
    gallery.add({"id": IDS[:10], "vector": EXPECTED[:10]})
    gallery.register("dots", metric="dot")
    gallery.add({"id": ["long"], "vector": 2 * EXPECTED[10:11]})
    assert gallery.upgrade("dots").missing == 1
    gallery.add({"id": ["longer"], "vector": 3 * EXPECTED[10:11]})
    assert gallery.cutover("dots", dry_run=True).missing == 2


def test_side_information_is_not_carried_and_the_plan_says_so(tmp_path):
    gallery = make(str(tmp_path / "g.lance"), fragments=2, rows=50)
    gallery.register("short", of="v1", dim=8)
    assert any("keeps no side-information" in warning for warning in gallery.upgrade("short", dry_run=True).warnings)
    gallery.upgrade("short")
    gallery.add(items(1000, 3))
    np.testing.assert_array_equal(
        gallery.vectors(["item-001001"], "short"), gallery.vectors(["item-001001"], "v1")[:, :8]
    )


@pytest.mark.full
@examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_derivation_of_any_source_gives_what_the_encoder_gives(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "g.lance"
    source = data.draw(st.sampled_from(["float32", "float16", "bits"]))
    target = data.draw(st.sampled_from(["float32", "float16", "bits"]))
    dim = data.draw(st.sampled_from([8, 16] if target == "bits" else [1, 5, 8, 16]))
    unit = target != "bits" and data.draw(st.booleans())
    version = cs.EmbeddingVersion("v1", dim=DIM, metric="l2", dtype=source, encoder=counted())
    gallery = cs.Gallery.create(str(path), version)
    gallery.add({"id": IDS[:40], "vector": VECTORS[:40]})
    gallery.register("made", dim=dim, dtype=target, normalised=unit)
    gallery.upgrade("made")
    gallery.cutover("made")
    upgraded = gallery.vectors(IDS[:40])
    gallery.retire("v1")
    gallery.add({"id": IDS[:40], "source": ["text"] * 40}, upsert=True)
    assert gallery.vectors(IDS[:40]).tobytes() == upgraded.tobytes()
    assert gallery.maintenance.verify().clean


VICTIM = """
import sys
import compatstore as cs

def say(what):
    print(what, flush=True)
    sys.stdin.readline()

say("opened")
cs.Gallery.open(sys.argv[1], lease_term=0.5).upgrade("short", progress=lambda progress: say(progress.step))
print("ready", flush=True)
"""


def until_killed(path, after=None):
    """Run an upgrade in a process of its own, and kill it while it waits after line `after`.

    Returns:
        Whether it came to the end.
    """
    command = [sys.executable, "-W", "ignore", "-c", VICTIM, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for number, line in enumerate(process.stdout):
            if line == "ready\n":
                return True
            if number == after:
                process.kill()
                return False
            process.stdin.write("\n")
            process.stdin.flush()
    raise AssertionError("it ended without a word")


@pytest.mark.full
@pytest.mark.parametrize("writing", [False, True], ids=["alone", "beside a writer"])
def test_killed_at_any_batch_it_goes_on_to_the_same_bits(tmp_path, writing):
    path = str(tmp_path / "g.lance")
    gallery = make(path, fragments=6, rows=1500)
    gallery.register("short", of="v1", dim=SHORT, normalised=True)
    added, stop = [], threading.Event()

    def write():
        while not stop.wait(0.1):
            number = 100_000 + 10 * len(added)
            gallery.add(items(number, 10))
            gallery.delete([f"item-{len(added) + 1:06d}"])
            added.append(number)

    writer = threading.Thread(target=write)
    if writing:
        writer.start()
    try:
        ended = [until_killed(path, after) for after in (0, 1, 2, 3)]
    finally:
        stop.set()
        if writing:
            writer.join()
    assert not any(ended)
    while not until_killed(path):
        pass
    rows = lance.dataset(path).to_table(columns=["v1", "short", "short__origin"])
    source = np.stack(rows["v1"].to_numpy())
    assert np.stack(rows["short"].to_numpy()).tobytes() == STEP.apply(source).tobytes()
    assert set(rows["short__origin"].to_pylist()) == {"native"}
    assert gallery.maintenance.verify().clean
    assert gallery.cutover("short").missing == 0
    assert len(added) > 0 or not writing
