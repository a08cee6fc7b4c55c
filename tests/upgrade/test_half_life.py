"""Random lives of galleries in float16: no vector ends up stale, and no native one is replaced by a transform."""

from __future__ import annotations

import itertools
import shutil
import tempfile

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Side, Space
from compatstore.encoders import Function
from compatstore.errors import UpgradeError
from properties import examples

DIM, TARGET_DIM, SIDE_DIM = 5, 7, 8
HALF, FLOAT = "float16", "float32"
IDS = st.lists(st.integers(0, 40).map("i{:02d}".format), min_size=1, max_size=6, unique=True)


def random_rows(seed, n, dim):
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)


def rounded(vectors, dtype):
    return np.asarray(vectors, np.float32).astype(dtype).astype(np.float32)


def native_of(sources):
    """What the target's encoder makes of sources: a function of their text."""
    numbers = np.array([int(source.rsplit("/", 1)[1]) for source in sources])
    return np.sin(numbers[:, None] + np.arange(1, TARGET_DIM + 1)).astype(np.float32)


def linear(source, target):
    """A transform that reads side-information where the source has it."""
    side = source.side_dim is not None
    architecture = Architecture(source_dim=DIM, side_dim=source.side_dim, output_dim=TARGET_DIM)
    rng = np.random.default_rng(3)
    tensors = {f"h.{name}": rng.normal(size=shape) for name, shape in architecture.shapes().items()}
    return Artifact.create(
        "ForwardTransform",
        source=Space.of(source),
        target=Space.of(target),
        side_source=Side(dim=SIDE_DIM, fingerprint=source.side_fingerprint, dtype="bits") if side else None,
        networks={"h": architecture},
        tensors=tensors,
    )


class Item:
    """What the model knows of one item: its source, the vectors as given, its side-information, its native vector."""

    def __init__(self, source, vector, side, native=None):
        self.source, self.vector, self.side, self.native = source, vector, side, native


class HalfLife(RuleBasedStateMachine):
    """The owner of a gallery, and an app that writes to its table past the API."""

    @initialize(dtypes=st.sampled_from([(HALF, HALF), (HALF, FLOAT), (FLOAT, HALF)]), bits=st.booleans())
    def begin(self, dtypes, bits):
        self.folder = tempfile.mkdtemp()
        self.path = f"{self.folder}/g.lance"
        self.source_dtype, self.target_dtype = dtypes
        side = {"side_dim": SIDE_DIM, "side_dtype": "bits"} if bits else {}
        self.bits = bits
        source = cs.EmbeddingVersion("v1", dim=DIM, metric="l2", dtype=self.source_dtype, **side)
        self.encoder = Function(native_of, dim=TARGET_DIM, fingerprint="sines")
        target = cs.EmbeddingVersion("v2", dim=TARGET_DIM, metric="l2", dtype=self.target_dtype, encoder=self.encoder)
        self.h = linear(source, target)
        self.gallery = cs.Gallery.create(self.path, source)
        self.gallery.register(target)
        self.gallery.artifacts.link(self.h)
        self.items, self.seeds, self.sources = {}, itertools.count(), itertools.count()
        self.settled = False
        self.add(["i00", "i01", "i02"])

    def teardown(self):
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    def run(self):
        """The upgrade that `status` lists; asked many times between two steps, so read where `status` reads it."""
        run = self.gallery._catalog.registry().runs.get("v2")
        return None if run is None or run.state in ("retired", "aborted") else run

    @property
    def live(self):
        """Whether the target's column is there, and so is kept up to date or left as it was."""
        return "v2" in lance.dataset(self.path).schema.names

    @property
    def open(self):
        run = self.run()
        return run is not None and run.state in ("hop", "backfill", "ready", "cutover")

    def fresh(self, ids):
        n = len(ids)
        vectors = random_rows(next(self.seeds), n, DIM)
        side = random_rows(next(self.seeds), n, SIDE_DIM) if self.bits else None
        return [Item(f"s/{next(self.sources)}", vectors[i], None if side is None else side[i]) for i in range(n)]

    def written(self, ids, items, **more):
        data = {"id": ids, "vector": [item.vector for item in items], "source": [item.source for item in items]}
        if self.bits:
            data["side"] = [item.side for item in items]
        self.gallery.add({**data, **more}, version="v1", upsert=True)
        self.items.update(zip(ids, items, strict=True))

    @rule(ids=IDS)
    def add(self, ids):
        """New items and changed ones, with the source's vectors only."""
        self.written(ids, self.fresh(ids))

    @precondition(lambda self: self.live)
    @rule(ids=IDS)
    def add_with_natives(self, ids):
        """The app embeds them itself: these vectors must stay."""
        items = self.fresh(ids)
        natives = random_rows(next(self.seeds), len(ids), TARGET_DIM)
        for item, native in zip(items, natives, strict=True):
            item.native = native
        self.written(ids, items, v2=natives)

    @precondition(lambda self: len(self.items) > 3)
    @rule(data=st.data())
    def delete(self, data):
        gone = data.draw(st.lists(st.sampled_from(sorted(self.items)), min_size=1, max_size=3, unique=True))
        self.gallery.delete(gone)
        for item in gone:
            del self.items[item]

    @rule(ids=IDS)
    def write_behind_its_back(self, ids):
        """The app's own merge: it knows nothing of the target's columns."""
        items = self.fresh(ids)
        kind = pa.float16() if self.source_dtype == HALF else pa.float32()
        flat = np.concatenate([item.vector for item in items]).astype(self.source_dtype)
        columns = {
            "id": ids,
            "source": [item.source for item in items],
            "v1": pa.FixedSizeListArray.from_arrays(pa.array(flat, kind), DIM),
            "v1__origin": ["native"] * len(ids),
        }
        if self.bits:
            packed = [np.packbits(item.side > 0).tobytes() for item in items]
            columns["v1__side"] = pa.array(packed, pa.binary(SIDE_DIM // 8))
        merge = lance.dataset(self.path).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(pa.table(columns))
        self.items.update(zip(ids, items, strict=True))
        self.settled = False

    @rule(share=st.sampled_from([None, 0.0, 0.3, 1.0]), mode=st.sampled_from(["move_rows", "rewrite_columns"]))
    def upgrade(self, share, mode):
        self.gallery.upgrade("v2", backfill=cs.Backfill(share=share, write_mode=mode))
        self.settled = True

    @precondition(lambda self: self.open)
    @rule()
    def cut_over(self):
        try:
            self.gallery.cutover("v2")
        except UpgradeError:
            return
        self.settled = True

    @precondition(lambda self: self.open)
    @rule()
    def roll_back(self):
        self.gallery.rollback("v2")
        self.settled = False

    @precondition(lambda self: self.gallery.active == "v1" and self.run() is not None)
    @rule()
    def abort(self):
        self.gallery.abort("v2")
        self.forget_natives()

    @precondition(lambda self: self.gallery.active == "v1" and self.run() is not None)
    @rule()
    def retire(self):
        self.gallery.retire("v2")
        self.forget_natives()

    def forget_natives(self):
        for item in self.items.values():
            item.native = None
        self.settled = False

    @invariant()
    def every_vector_is_the_latest_one(self):
        told = {upgrade.target: upgrade.state for upgrade in self.gallery.status().upgrades}
        assert told == ({} if self.run() is None else {"v2": self.run().state})
        if not self.live:
            return
        rows = {row["id"]: row for row in lance.dataset(self.path).to_table().to_pylist()}
        assert rows.keys() == self.items.keys()
        for key, item in self.items.items():
            row = rows[key]
            source = rounded(item.vector, self.source_dtype)
            np.testing.assert_array_equal(np.float32(row["v1"]), source)
            if item.native is not None:
                assert row["v2__origin"] == "native", f"the native vector of {key} was replaced"
                np.testing.assert_array_equal(np.float32(row["v2"]), rounded(item.native, self.target_dtype))
            elif self.settled and self.open:
                self.is_of(row, item, source)
        if self.settled and self.open:
            stale = [finding for finding in self.gallery.maintenance.verify().findings if "stale" in finding.what]
            assert stale == []

    def is_of(self, row, item, source):
        if row["v2__origin"] == "native":
            expected = native_of([item.source])[0]
        else:
            assert row["v2__origin"] == self.h.short_id
            expected = self.h.apply(source[None], None if item.side is None else item.side[None]).vectors[0]
        tolerance = 5e-3 if self.target_dtype == HALF else 1e-5
        np.testing.assert_allclose(np.float32(row["v2"]), expected, rtol=tolerance, atol=tolerance)


TestHalfLife = pytest.mark.filterwarnings("error")(HalfLife.TestCase)
TestHalfLife.settings = examples(12, steps=25)
TestHalfLife.pytestmark = [pytest.mark.full]


def test_native_vectors_beside_a_float16_source_stay(tmp_path):
    source = cs.EmbeddingVersion("v1", dim=DIM, metric="l2", dtype=HALF)
    target = cs.EmbeddingVersion("v2", dim=TARGET_DIM, metric="l2", model="sines")
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), source)
    gallery.add({"id": list("abc"), "vector": random_rows(0, 3, DIM)})
    gallery.register(target)
    gallery.artifacts.link(linear(source, target))
    gallery.upgrade("v2")
    natives = random_rows(1, 2, TARGET_DIM)
    gallery.add({"id": ["a", "d"], "vector": random_rows(2, 2, DIM), "v2": natives}, upsert=True)
    assert gallery.upgrade("v2").transformed == 0
    gallery.cutover("v2")
    np.testing.assert_array_equal(gallery.vectors(["a", "d"], "v2"), natives)


def test_an_adopted_float16_column(tmp_path):
    """Whatever the version says, the app's column has the type that its app gave it."""
    flat = random_rows(0, 8, DIM).astype(HALF)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), DIM)
    lance.write_dataset(pa.table({"key": list("abcdefgh"), "vector": vectors}), str(tmp_path / "t.lance"))
    source = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
    target = cs.EmbeddingVersion("v2", dim=TARGET_DIM, metric="l2", model="sines")
    gallery = cs.Gallery.adopt(str(tmp_path / "t.lance"), source, vector="vector", id="key")
    gallery.register(target)
    gallery.artifacts.link(linear(source, target))
    gallery.upgrade("v2")
    native = random_rows(1, 1, TARGET_DIM)
    gallery.add({"id": ["i"], "vector": random_rows(2, 1, DIM), "v2": native}, version="v1")
    assert gallery.upgrade("v2").transformed == 0
    np.testing.assert_array_equal(gallery.vectors(["i"], "v2"), native)
    with pytest.raises(cs.errors.InvalidInput, match="float16"):
        gallery.add({"id": ["j"], "vector": np.full((1, DIM), 1e6)}, version="v1")
