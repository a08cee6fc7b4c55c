"""An upgrade whose encoder is paid for: what is spent is what was billed, through failures, limits, stops and kills."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import compatstore as cs
from compatstore.encoders import Bill, Function, OpenAICompatible, endpoint, meter
from compatstore.errors import EncoderFailed, Incompatible, Interrupted, InvalidInput
from tests.servers.embeddings import EmbeddingServer, Rules, embedding_of, tokens_of
from tests.taught_galleries import CHEAP

pytestmark = pytest.mark.full

TEXTS = [f"item {number} is {'a very ' * (number % 5)}good one" for number in range(400)]
IDS = [f"i{number}" for number in range(len(TEXTS))]
FAULTY = Rules(faults={"limit": 0.2, "busy": 0.05, "error": 0.1, "lost": 0.1, "cut": 0.05}, wait=0.005, seed=7)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(endpoint, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(endpoint, "LONGEST_WAIT", 0.01)


def encoder_of(server, **settings):
    return OpenAICompatible(
        server.url, "words", dim=32, batch_size=16, price_per_million=server.rules.price, **settings
    )


def made(path, encoder, texts=TEXTS):
    gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=4, metric="cosine"))
    vectors = np.random.default_rng(0).normal(size=(len(texts), 4))
    gallery.add({"id": IDS[: len(texts)], "vector": vectors, "source": texts})
    gallery.register(cs.EmbeddingVersion("v2", dim=32, metric="cosine", encoder=encoder))
    return gallery


def upgrade(gallery, **settings):
    """Upgrade to v2 with the cheapest learner."""
    return gallery.upgrade("v2", learn=cs.Learn(candidates=CHEAP), **settings)


def spent(gallery):
    return gallery.status().upgrades[0].spent


def test_a_whole_upgrade_costs_what_was_billed_and_loses_nothing(tmp_path):
    with EmbeddingServer(FAULTY) as server:
        gallery = made(tmp_path / "g.lance", encoder_of(server))
        report = gallery.upgrade("v2", backfill=1.0)
        assert (report.state, report.backfilled) == ("ready", 400)
        assert report.spent.tokens == server.tokens
        assert report.spent.cost == pytest.approx(server.money)
        assert spent(gallery) == report.spent
        assert server.billed.keys() == set(TEXTS)
        assert min(server.faults.values()) > 0
        assert max(server.sizes) == 16, "a batch is a request"
    vectors = gallery.vectors(IDS, "v2")
    np.testing.assert_allclose(vectors, [embedding_of(text, 32) for text in TEXTS], atol=1e-5)


@pytest.mark.parametrize(("share", "seed"), [(0.1, 0), (0.01, 1), (0.2, 2), (0.1, 3)])
def test_a_limit_of_money_needs_no_price_and_holds_by_what_is_billed(tmp_path, share, seed):
    limit = share * sum(map(tokens_of, TEXTS)) * 20 / 1e6
    with EmbeddingServer(replace(FAULTY, seed=seed)) as server:
        gallery = made(tmp_path / "g.lance", encoder_of(server))
        report = upgrade(gallery, backfill=cs.Backfill(max_cost=limit))
        dearest = 20e-6 * max(map(tokens_of, TEXTS))
        assert report.ended_by == "max_cost"
        assert limit - 2 * dearest <= server.money <= limit + 1e-9
        assert report.spent.cost == pytest.approx(server.money, rel=0.02)
        billed = server.money
        again = upgrade(gallery, backfill=cs.Backfill(max_cost=limit))
        assert billed <= server.money <= limit + 1e-9
        assert again.spent.cost == pytest.approx(server.money, rel=0.02)
        more = upgrade(gallery, backfill=cs.Backfill(max_cost=2 * limit))
        assert again.backfilled + more.backfilled > 50 * share / 0.4
        assert more.spent.cost == pytest.approx(server.money, rel=0.02)


def test_an_answer_that_is_lost_again_and_again_is_paid_for_only_within_the_limit(tmp_path):
    each = 20e-6 * max(map(tokens_of, TEXTS))
    with EmbeddingServer() as server:
        gallery = made(tmp_path / "g.lance", encoder_of(server, retries=1000))
        upgrade(gallery, backfill=cs.Backfill(max_cost=20 * each))
        before = server.money
        server.rules = Rules(faults={"lost": 1.0})
        report = upgrade(gallery, backfill=cs.Backfill(max_cost=40 * each))
        assert (report.ended_by, report.backfilled) == ("max_cost", 0)
        assert before + 18 * each <= server.money <= 40 * each
        assert report.spent.cost == pytest.approx(server.money, rel=0.1), "no answer told how many they were"


class Counted(Function):
    """It bills 1 for a text, and says so beforehand."""

    request_rows = 16

    def expected_bill(self, sources):
        return Bill(items=len(sources), cost=1.0 * len(sources))


def test_tries_that_were_billed_and_failed_end_with_the_money(tmp_path):
    billed, broken = [], [False]

    def embed(texts):
        billed.extend(texts)
        meter().charge(Bill(items=len(texts), cost=1.0 * len(texts)))
        if broken[0]:
            raise ConnectionError("lost on the way")
        return [embedding_of(text, 32) for text in texts]

    gallery = made(tmp_path / "g.lance", Counted(embed, 32, fingerprint="words"))
    assert upgrade(gallery, backfill=cs.Backfill(max_cost=20.0)).backfilled == 20
    broken[0] = True
    report = upgrade(gallery, backfill=cs.Backfill(max_cost=60.0), run=cs.RunSettings(retries=3))
    assert (report.ended_by, report.backfilled, report.spent.cost) == ("max_cost", 0, 60.0)
    assert len(billed) == 60
    broken[0] = False
    more = upgrade(gallery, backfill=cs.Backfill(max_cost=100.0))
    assert more.spent.cost == len(billed) <= 100
    assert more.backfilled >= 38, "the mean price holds what was lost"


def test_a_plan_estimates_the_cost_and_asks_nobody(tmp_path):
    with EmbeddingServer() as server:
        gallery = made(tmp_path / "g.lance", encoder_of(server))
        plan = gallery.upgrade("v2", backfill=cs.Backfill(share=0.5, max_cost=1.0), dry_run=True)
        (step,) = [step for step in plan.steps if step.name == "backfill"]
        assert step.rows == 200
        assert "costs about" in step.note
        assert "by the lengths of a sample of sources" in step.note
        assert server.requests == 0
        upgrade(gallery, backfill=0.25)
        told = next(
            step.note for step in gallery.upgrade("v2", backfill=0.5, dry_run=True).steps if step.name == "backfill"
        )
        assert "as billed so far" in told
        about = float(told.split("costs about ")[1].split()[0])
        before = server.money
        upgrade(gallery, backfill=0.5)
        assert server.money - before == pytest.approx(about, rel=0.05)


def test_a_limit_of_money_without_any_price_is_refused(tmp_path):
    with EmbeddingServer() as server:
        unpriced = OpenAICompatible(server.url, "words", dim=32)
        gallery = made(tmp_path / "g.lance", unpriced)
        with pytest.raises(InvalidInput, match="price_per_item"):
            upgrade(gallery, backfill=cs.Backfill(max_cost=1.0))
        report = upgrade(gallery, backfill=cs.Backfill(max_cost=1.0, price_per_item=0.01))
        assert report.spent.rows == 100
        assert report.spent.cost == pytest.approx(1.0)
        assert report.spent.tokens == server.tokens


def test_a_function_that_bills_is_charged_as_it_says(tmp_path):
    def embed(texts):
        meter().charge(Bill(items=len(texts), tokens=10 * len(texts), cost=0.03 * len(texts)))
        return [embedding_of(text, 32) for text in texts]

    gallery = made(tmp_path / "g.lance", Function(embed, 32, fingerprint="words"))
    run = cs.RunSettings(batch_rows=10)
    report = upgrade(gallery, backfill=cs.Backfill(max_cost=3.0, price_per_item=0.01), run=run)
    assert report.spent.cost == pytest.approx(3.0, abs=0.6)
    assert report.spent.cost == pytest.approx(0.03 * report.spent.rows)
    assert report.spent.tokens == 10 * report.spent.rows


def test_what_was_billed_before_a_failure_is_in_the_ledger(tmp_path):
    with EmbeddingServer() as server:
        gallery = made(tmp_path / "g.lance", encoder_of(server, retries=0))
        server.rules = Rules(faults={"lost": 1.0})
        with pytest.raises(EncoderFailed, match="expected an answer"):
            gallery.upgrade("v2", backfill=1.0)
        assert server.tokens > 0
        assert spent(gallery).tokens == pytest.approx(server.tokens, rel=0.3), "no answer told how many they were"
        server.rules = Rules(faults={"dropped": 1.0})
        with pytest.raises(EncoderFailed):
            gallery.upgrade("v2", backfill=1.0)
        server.rules = Rules()
        assert gallery.upgrade("v2", backfill=1.0).backfilled == 400


def test_a_wait_for_a_rate_limit_can_be_stopped_and_goes_on(tmp_path):
    with EmbeddingServer() as server:
        gallery = made(tmp_path / "g.lance", encoder_of(server))
        server.rules, started = Rules(faults={"limit": 1.0}, wait=3600.0), time.monotonic()
        with pytest.raises(Interrupted):
            gallery.upgrade("v2", backfill=1.0, should_stop=lambda: server.faults["limit"] > 0)
        assert time.monotonic() - started < 600
        assert spent(gallery).cost == 0
        server.rules = Rules()
        assert gallery.upgrade("v2", backfill=1.0).spent.cost == pytest.approx(server.money)
        assert server.twice == 0


def test_a_rate_limit_is_no_hanging_encoder(tmp_path):
    rules = Rules(faults={"limit": 0.5}, wait=2.5, seed=1)
    with EmbeddingServer(rules) as server:
        gallery = made(tmp_path / "g.lance", encoder_of(server), TEXTS[:64])
        run = cs.RunSettings(encoder_timeout=2.0)
        assert gallery.upgrade("v2", backfill=1.0, run=run).backfilled == 64
        assert server.faults["limit"] > 0


def test_texts_that_are_refused_are_listed_and_the_others_paid_for_once(tmp_path):
    texts = [text if number % 50 else "x" * 3000 for number, text in enumerate(TEXTS)]
    with EmbeddingServer() as server:
        gallery = made(tmp_path / "g.lance", encoder_of(server), texts)
        report = gallery.upgrade("v2", backfill=1.0)
        assert report.backfilled == 392
        assert report.num_unbackfillable == 8
        assert all("too long" in reason for _, reason in report.unbackfillable)
        assert server.twice == 0
        assert report.spent.cost == pytest.approx(server.money)


def test_searches_are_charged_what_was_billed(tmp_path):
    with EmbeddingServer() as server:
        encoder = encoder_of(server)
        gallery = made(tmp_path / "g.lance", encoder)
        upgrade(gallery, backfill=cs.Backfill(max_rows=1))
        before = server.tokens
        query = {"v1": np.ones(4, np.float32), "v2": embedding_of("item 3", 32)}
        gallery.search(query, k=5, serving=cs.Cascade(first=40))
        searched = gallery.status().upgrades[0].searched
        assert searched.rows > 30
        assert searched.cost == pytest.approx((server.tokens - before) * 20 / 1e6)


def test_a_gallery_names_an_address_only_where_it_is_trusted(tmp_path):
    with EmbeddingServer() as server:
        made(tmp_path / "g.lance", encoder_of(server, query_prefix="query: "))
        gallery = cs.Gallery.open(str(tmp_path / "g.lance"))
        with pytest.raises(Incompatible, match=r"sends texts nowhere.*trust_code=True"):
            gallery.upgrade("v2", backfill=1.0)
        assert server.requests == 0
        trusted = cs.Gallery.open(str(tmp_path / "g.lance"), trust_code=True)
        trusted.upgrade("v2", backfill=1.0)
        found = trusted.search(TEXTS[17], k=1, version="v2")
        assert server.seen[-1][0]["input"] == [f"query: {TEXTS[17]}"]
        assert found["id"].to_pylist() == ["i17"]


VICTIM = """
import sys
import compatstore as cs
from compatstore.encoders import endpoint
endpoint.FIRST_WAIT = 0.001
gallery = cs.Gallery.open({path!r}, trust_code=True, lease_term=0.5)
print("open", flush=True)
gallery.upgrade("v2", backfill=1.0)
print("done", flush=True)
"""


def test_a_kill_bills_one_batch_twice_at_most_and_the_ledger_knows(tmp_path):
    rng, path, kills = random.Random(4), tmp_path / "g.lance", 0
    rules = Rules(faults={"limit": 0.1, "error": 0.05, "lost": 0.05}, wait=0.01, latency=0.02, seed=2)
    with EmbeddingServer(rules) as server:
        made(path, encoder_of(server))
        while True:
            victim = subprocess.Popen(
                [sys.executable, "-c", VICTIM.format(path=str(path))],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
            assert victim.stdout is not None
            assert victim.stdout.readline() == "open\n"
            seen = len(server.sizes)
            until = seen + rng.randrange(1, 9)
            while victim.poll() is None and len(server.sizes) < until:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.03))
            if victim.poll() is None and kills < 3:
                victim.send_signal(signal.SIGKILL)
                kills += 1
                victim.communicate()
                continue
            said, errors = victim.communicate()
            assert said == "done\n", errors
            break
        gallery = cs.Gallery.open(str(path), trust_code=True)
        lost = server.faults["lost"]
        assert kills >= 2
        assert server.billed.keys() == set(TEXTS)
        assert server.twice <= 16 * (kills + lost)
        dearest = 16 * max(map(tokens_of, TEXTS))
        assert abs(spent(gallery).tokens - server.tokens) <= dearest * kills
        assert spent(gallery).cost == pytest.approx(spent(gallery).tokens * 20 / 1e6)
        np.testing.assert_allclose(gallery.vectors(IDS, "v2"), [embedding_of(text, 32) for text in TEXTS], atol=1e-5)
        assert gallery.maintenance.verify().clean
