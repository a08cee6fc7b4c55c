"""The backfill on real galleries: budgets, encoders that misbehave, and what is said of items that fail."""

from __future__ import annotations

import contextlib
from threading import Event

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import EncoderFailed, InvalidInput, NotFound, SourceError, StorageError
from compatstore.upgrade.backfilling import account, embedding
from compatstore.upgrade.requests.run_settings import RunSettings

ITEMS = 300
IDS = [f"item-{number:03d}" for number in range(ITEMS)]
AT_ONCE = RunSettings(batch_rows=20, retries=0)


def vector_of(source):
    number = int(source.rsplit("-", 1)[1].split("#")[0])
    return np.array([number, number**0.5, 1.0], np.float32)


class Model:
    """An encoder's function that counts what it is given and misbehaves on demand."""

    def __init__(self):
        self.seen, self.calls = [], 0
        self.misbehave = lambda sources: None

    def __call__(self, sources):
        self.calls += 1
        odd = self.misbehave(sources)
        if odd is not None:
            return odd
        self.seen.extend(sources)
        return np.stack([vector_of(source) for source in sources])


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def gallery(tmp_path, model, linear):
    """300 items with a source each, v2 registered with the model, a transform linked."""
    source = cs.EmbeddingVersion("v1", dim=2)
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), source)
    vectors = np.random.default_rng(0).normal(size=(ITEMS, 2)).astype(np.float32)
    gallery.add({"id": IDS, "vector": vectors, "source": [f"source-{i}" for i in IDS]})
    target = cs.EmbeddingVersion("v2", dim=3, encoder=cs.encoders.Function(model, 3, fingerprint="model"))
    gallery.register(target)
    gallery.artifacts.link(linear(source, target))
    return gallery


def natives(gallery):
    return set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist())


def table_version(gallery):
    return gallery.status().table_version


@pytest.mark.full
def test_rows_end_a_backfill_in_the_order_of_the_run(gallery):
    whole = gallery.upgrade("v2", backfill=cs.Backfill(max_rows=70), dry_run=True)
    assert {step.name: step.rows for step in whole.steps}["backfill"] == 70
    report = gallery.upgrade("v2", backfill=cs.Backfill(max_rows=70))
    assert (report.backfilled, report.ended_by, report.state) == (70, "max_rows", "ready")
    assert report.spent.rows == 70
    first = natives(gallery)
    assert gallery.upgrade("v2", backfill=0.5).backfilled == 80
    assert first < natives(gallery)


@pytest.mark.full
def test_the_same_command_again_spends_nothing_more(gallery, model):
    for budget in (cs.Backfill(max_rows=40), cs.Backfill(max_cost=5.0, price_per_item=0.1), 0.2):
        gallery.upgrade("v2", backfill=budget)
        before, seen = table_version(gallery), len(model.seen)
        again = gallery.upgrade("v2", backfill=budget)
        assert (again.backfilled, len(model.seen)) == (0, seen)
        assert table_version(gallery) == before


@pytest.mark.full
def test_money_ends_a_backfill_and_what_it_cost_is_said(gallery):
    report = gallery.upgrade("v2", backfill=cs.Backfill(max_cost=4.05, price_per_item=0.1))
    assert (report.backfilled, report.ended_by) == (40, "max_cost")
    assert report.spent.cost == pytest.approx(4.0)
    report = gallery.upgrade("v2", backfill=cs.Backfill(max_cost=6.0, price_per_item=0.2))
    assert report.backfilled == 10, "what was paid at the old price counts as paid"
    assert report.spent.cost == pytest.approx(6.0)
    with pytest.raises(InvalidInput, match="price_per_item"):
        cs.Gallery.open(gallery.status().gallery).upgrade(
            "v2", backfill=cs.Backfill(max_cost=6.0, price_per_item=0.0), dry_run=True
        )


@pytest.mark.full
def test_time_ends_a_backfill_and_more_of_it_goes_on(gallery, model):
    """A clock of the encoder's own: each batch takes what it takes, and the limit is far below the whole."""
    report = gallery.upgrade("v2", backfill=cs.Backfill(max_seconds=1e-6), run=AT_ONCE)
    assert (report.ended_by, report.state) == ("max_seconds", "ready")
    assert report.backfilled < ITEMS
    report = gallery.upgrade("v2", backfill=cs.Backfill(max_seconds=3600.0), run=AT_ONCE)
    assert (report.ended_by, len(natives(gallery))) == ("", ITEMS)
    assert len(model.seen) == ITEMS
    assert 0 < report.spent.seconds < 3600


@pytest.mark.full
def test_a_budget_can_be_spent_in_slices_without_an_artifact(gallery, model):
    gallery.register(cs.EmbeddingVersion("v3", dim=3, encoder=cs.encoders.Function(model, 3, fingerprint="other")))
    report = gallery.upgrade("v3", backfill=cs.Backfill(max_rows=100), learn=None)
    assert (report.backfilled, report.missing) == (100, 200)
    with pytest.raises(cs.errors.UpgradeError, match="vector"):
        gallery.cutover("v3")
    assert gallery.upgrade("v3", backfill=cs.Backfill(max_rows=300), learn=None).missing == 0
    assert gallery.cutover("v3").active == "v3"


@pytest.mark.full
def test_a_stopped_call_has_spent_what_it_embedded(gallery, model):
    reports = []
    stop = {"progress": reports.append, "should_stop": lambda: sum(r.step == "backfill" for r in reports) >= 3}
    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade("v2", backfill=cs.Backfill(max_rows=200), run=AT_ONCE, **stop)
    embedded = len(model.seen)
    assert 60 <= embedded < 200
    report = gallery.upgrade("v2", backfill=cs.Backfill(max_rows=200), run=AT_ONCE)
    assert report.spent.rows == len(model.seen) == len(set(model.seen)) == 200
    assert len(natives(gallery)) == 200


def test_an_encoder_that_fails_for_a_moment_is_asked_again(gallery, model, monkeypatch):
    monkeypatch.setattr(embedding, "backoff", lambda retries, rng: iter([0.0] * retries))
    failures = iter([ConnectionError("reset"), TimeoutError("slow")])

    def misbehave(_):
        error = next(failures, None)
        if error is not None:
            raise error

    model.misbehave = misbehave
    report = gallery.upgrade("v2", backfill=1.0, run=RunSettings(retries=2))
    assert (report.backfilled, report.num_unbackfillable) == (ITEMS, 0)
    assert len(model.seen) == ITEMS, "no item is paid for twice"


def poison(*numbers):
    bad = {f"source-{IDS[number]}" for number in numbers}

    def misbehave(sources):
        found = bad & set(sources)
        if found:
            raise RuntimeError(f"cannot take {min(found)}")

    return misbehave


@pytest.mark.full
def test_items_on_which_the_encoder_fails_are_found_and_listed(gallery, model):
    model.misbehave = poison(3, 4, 5, 144)
    report = gallery.upgrade("v2", backfill=1.0, run=AT_ONCE)
    assert (report.backfilled, report.num_unbackfillable) == (ITEMS - 4, 4)
    listed = gallery.maintenance.unbackfillable("v2")
    assert sorted(listed["id"].to_pylist()) == [IDS[number] for number in (3, 4, 5, 144)]
    reasons = dict(zip(listed["id"].to_pylist(), listed["reason"].to_pylist(), strict=True))
    assert reasons[IDS[3]] == f"RuntimeError: cannot take source-{IDS[3]}"
    assert natives(gallery) == set(IDS) - set(listed["id"].to_pylist())
    assert len(model.seen) == len(set(model.seen))


@pytest.mark.full
def test_what_failed_is_not_tried_again_unless_asked(gallery, model):
    model.misbehave = poison(7, 8)
    gallery.upgrade("v2", backfill=1.0, run=AT_ONCE)
    before, calls = table_version(gallery), model.calls
    assert gallery.upgrade("v2", backfill=1.0).backfilled == 0
    assert (table_version(gallery), model.calls) == (before, calls)
    assert [step.name for step in gallery.upgrade("v2", dry_run=True).steps] == ["cutover"]
    again = RunSettings(retry_unbackfillable=True, retries=0)
    assert gallery.upgrade("v2", run=again).num_unbackfillable == 2, "still broken, and that is no error"
    model.misbehave = poison(8)
    assert gallery.upgrade("v2", run=again).backfilled == 1
    assert gallery.maintenance.unbackfillable("v2")["id"].to_pylist() == [IDS[8]]
    assert gallery.status().upgrades[0].unbackfillable == 1


@pytest.mark.full
def test_an_item_leaves_the_list_with_another_source_or_the_gallery(gallery, model):
    model.misbehave = poison(10, 11, 12)
    gallery.upgrade("v2", backfill=1.0, run=AT_ONCE)
    gallery.delete([IDS[10]])
    new = {"id": [IDS[11]], "vector": np.ones((1, 2), np.float32), "source": [f"source-{IDS[11]}#repaired"]}
    gallery.add(new, upsert=True)
    assert gallery.maintenance.unbackfillable("v2")["id"].to_pylist() == [IDS[12]]
    gallery.upgrade("v2", backfill=1.0, run=AT_ONCE)
    assert natives(gallery) == set(IDS) - {IDS[10], IDS[12]}


@pytest.mark.full
def test_a_source_that_could_not_be_read_is_tried_again_at_the_end(gallery, model):
    tried = []

    def misbehave(sources):
        bad = [i for i, source in enumerate(sources) if int(source[-3:]) % 50 == 0]
        if bad and len(tried) < 6:
            tried.extend(sources[i] for i in bad)
            raise SourceError("read", dict.fromkeys(bad, "the share is not mounted"))

    model.misbehave = misbehave
    report = gallery.upgrade("v2", backfill=1.0, run=AT_ONCE)
    assert len(tried) == 6
    assert (report.backfilled, report.num_unbackfillable) == (ITEMS, 0)
    assert gallery.maintenance.unbackfillable("v2").num_rows == 0


@pytest.mark.full
def test_an_encoder_that_fails_on_everything_ends_the_run_and_lists_nothing(gallery, model):
    def misbehave(_):
        raise RuntimeError("out of order")

    model.misbehave = misbehave
    with pytest.raises(EncoderFailed, match=r"embed 64 items in v2.*out of order.*goes on from here"):
        gallery.upgrade("v2", backfill=1.0, run=RunSettings(batch_rows=64, retries=1))
    assert model.calls < 80
    assert gallery.maintenance.unbackfillable("v2").num_rows == 0
    assert gallery.status().upgrades[0].state == "backfill"
    model.misbehave = lambda _: None
    assert gallery.upgrade("v2").backfilled == ITEMS, "the same command goes on after the encoder was mended"


@pytest.mark.full
def test_sources_that_all_fail_end_the_run_and_none_is_listed(gallery, model, monkeypatch):
    def misbehave(sources):
        raise SourceError("read", dict.fromkeys(range(len(sources)), "no such file"))

    model.misbehave = misbehave
    monkeypatch.setattr(account, "FAILURES_IN_A_ROW", 50)
    with pytest.raises(EncoderFailed, match=r"60 items that failed in a row.*no such file"):
        gallery.upgrade("v2", backfill=1.0, run=RunSettings(batch_rows=20))
    with pytest.raises(EncoderFailed, match="none embedded"):
        gallery.upgrade("v2", backfill=0.01)
    assert gallery.maintenance.unbackfillable("v2").num_rows == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("output", "error", "said"),
    [
        (lambda n: np.full((n, 3), np.nan), InvalidInput, "NaN or infinite values for item-"),
        (lambda n: np.ones((n, 4)), InvalidInput, r"embed 20 items in v2: item-"),
        (lambda n: np.ones((n - 1, 3)), InvalidInput, r"embed 20 items in v2: item-"),
    ],
    ids=["nan", "dimension", "rows"],
)
def test_vectors_that_cannot_be_are_refused_and_nothing_of_the_batch_is_stored(gallery, model, output, error, said):
    model.misbehave = lambda sources: output(len(sources)) if model.calls == 3 else None
    with pytest.raises(error, match=said):
        gallery.upgrade("v2", backfill=1.0, run=AT_ONCE)
    assert len(model.seen) == 40
    report = gallery.upgrade("v2", run=AT_ONCE)
    assert len(model.seen) == len(set(model.seen)) == ITEMS
    np.testing.assert_array_equal(gallery.vectors(IDS, "v2"), [vector_of(i) for i in IDS])
    assert report.num_unbackfillable == 0


@pytest.mark.full
def test_one_vector_that_is_not_finite_is_named(gallery, model):
    def misbehave(sources):
        vectors = np.stack([vector_of(source) for source in sources])
        vectors[[source == f"source-{IDS[42]}" for source in sources]] = np.inf
        return vectors

    model.misbehave = misbehave
    with pytest.raises(InvalidInput, match=f"values for {IDS[42]}[.]"):
        gallery.upgrade("v2", backfill=1.0, run=AT_ONCE)
    assert IDS[42] not in natives(gallery)


@pytest.mark.full
def test_an_encoder_that_hangs_ends_the_run(gallery, model):
    release = Event()
    model.misbehave = lambda _: release.wait() if model.calls == 2 else None
    with pytest.raises(EncoderFailed, match=r"within 0.5 s.*cannot be ended.*encoder_timeout"):
        gallery.upgrade("v2", backfill=1.0, run=RunSettings(batch_rows=20, encoder_timeout=0.5))
    release.set()
    assert gallery.upgrade("v2").spent.rows == ITEMS


@pytest.mark.full
def test_an_error_while_storing_ends_the_run_and_keeps_what_is_durable(gallery, model, tmp_path):
    ledger = tmp_path / "g.lance" / "_compatstore" / "ledger-v2-1.arrow"

    def misbehave(_):
        while model.calls == 3 and not ledger.is_dir():  # the batch before may be stored at this moment
            ledger.unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):
                ledger.mkdir()  # what cannot be replaced by a file

    model.misbehave = misbehave
    with pytest.raises(StorageError, match="the ledger of a backfill"):
        gallery.upgrade("v2", backfill=1.0, run=AT_ONCE)
    assert model.calls < 7
    ledger.rmdir()
    gallery.upgrade("v2", run=AT_ONCE)
    assert len(natives(gallery)) == ITEMS


@pytest.mark.full
def test_a_throttled_backfill_asks_for_few_items_at_once(gallery, model):
    sizes = []
    model.misbehave = lambda sources: sizes.append(len(sources))
    gallery.upgrade("v2", backfill=cs.Backfill(max_rows=30), run=RunSettings(throttle=2000.0))
    assert max(sizes) <= 30
    sizes.clear()
    gallery.upgrade("v2", backfill=cs.Backfill(max_rows=45), run=RunSettings(throttle=7.0))
    assert sizes == [7, 7, 1]


@pytest.mark.full
def test_the_apps_latency_is_asked_for_after_each_batch(gallery, model):
    asked = []
    settings = RunSettings(batch_rows=20, latency_bound=5.0, latency=lambda: asked.append(model.calls) or 1.0)
    gallery.upgrade("v2", backfill=cs.Backfill(max_rows=100), run=settings)
    assert asked == [1, 2, 3, 4, 5]


@pytest.mark.full
def test_an_abandoned_upgrade_leaves_nothing_behind(gallery, model):
    model.misbehave = poison(3)
    gallery.upgrade("v2", backfill=1.0, run=AT_ONCE)
    gallery.retire("v2")
    assert gallery.maintenance.unbackfillable("v2").num_rows == 0
    model.misbehave = lambda _: None
    report = gallery.upgrade("v2", backfill=cs.Backfill(max_rows=10))
    assert (report.spent.rows, report.num_unbackfillable) == (10, 0)


def test_the_list_of_an_unknown_version(gallery):
    with pytest.raises(NotFound, match="version"):
        gallery.maintenance.unbackfillable("v9")
    assert gallery.maintenance.unbackfillable("v2").column_names == ["id", "reason"]


@pytest.mark.full
def test_a_damaged_ledger_is_said_to_be(gallery, tmp_path):
    gallery.upgrade("v2", backfill=cs.Backfill(max_rows=10))
    ledger = tmp_path / "g.lance" / "_compatstore" / "ledger-v2-1.arrow"
    ledger.write_bytes(ledger.read_bytes()[:-40])
    with pytest.raises(StorageError, match=r"the ledger of a backfill.*Remove .*ledger-v2-1.arrow"):
        gallery.upgrade("v2", backfill=cs.Backfill(max_rows=20))
    ledger.unlink()
    assert gallery.upgrade("v2", backfill=cs.Backfill(max_rows=20)).spent.rows == 20
