"""An upgrade by an encoder behind HTTP that limits its rate, fails at random and bills: is all embedded, and paid once?

A real server in this process counts what it bills (`tests/servers`). Three upgrades of a gallery of texts:

* whole: every item is embedded, by one process;
* killed: the same, by processes that are killed at random moments, each followed by the next one;
* limited: a self-training upgrade of a quarter of the texts, with a limit of money and no price: the encoder knows it.

A text that is billed twice is explained by an answer that was lost after it was billed, or by a kill: one batch each.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import compatstore as cs
from benchmarks.bounds import bound, verdict
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from compatstore.encoders import Function, OpenAICompatible
from tests.servers.embeddings import EmbeddingServer, Rules, embedding_of, tokens_of

WORDS = ["small", "large", "old", "new", "red", "green", "blue", "grey", "round", "flat", "soft", "hard"]
WORDS += ["cup", "shirt", "lamp", "chair", "book", "coat", "door", "key", "umbrella", "typewriter"]
FAULTS = {"busy": 0.02, "error": 0.03, "dropped": 0.002, "lost": 0.008, "cut": 0.004}
RULES = Rules(faults=FAULTS, burst=20, pace=150.0, wait=0.05, latency=0.003)
SHORT = 12
WITHIN = 0.01  # of the server's bill
WATCHED = 0.05  # seconds
CLOSE = 1e-5


def line(upgrade: str, what: str, found: float, limit: float) -> Row:
    """A figure that was found, and its limit; a figure above it is a violation."""
    found = found if found > 1e-9 else 0.0  # rounding of sums
    return bound(what, found, limit, upgrade=upgrade, violations=int(found > limit))


def texts_of(items: int, seed: int) -> list[str]:
    """Texts of 4 to 12 words, each with its number."""
    rng = random.Random(seed)
    return [f"{' '.join(rng.choices(WORDS, k=rng.randrange(4, 13)))} {number}" for number in range(items)]


def encoder_of(server: EmbeddingServer, batch: int) -> OpenAICompatible:
    return OpenAICompatible(
        server.url, "words", dim=server.rules.dim, batch_size=batch, price_per_million=server.rules.price, retries=12
    )


def made(path: Path, texts: list[str], encoder: OpenAICompatible) -> cs.Gallery:
    """A gallery whose vectors are the source's, and which knows the target."""
    # The source's model knows the words too, in fewer values.
    earlier = lambda texts: [embedding_of(text, SHORT) for text in texts]  # noqa: E731
    source = Function(earlier, SHORT, fingerprint="words of 12 values")
    gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=SHORT, metric="cosine", encoder=source))
    gallery.add({"id": [f"{number}" for number in range(len(texts))], "source": texts})
    gallery.register(cs.EmbeddingVersion("v2", dim=encoder.dim, metric="cosine", encoder=encoder))
    return gallery


VICTIM = """
import compatstore as cs
gallery = cs.Gallery.open({path!r}, trust_code=True, lease_term=0.5)
print("open", flush=True)
gallery.upgrade("v2", backfill=1.0)
"""


def upgrade_with_kills(path: Path, server: EmbeddingServer, kills: int, requests: int, rng: random.Random) -> int:
    """Upgrade in processes of their own, killed after some requests each; returns how many were."""
    killed = 0
    while True:
        command = [sys.executable, "-c", VICTIM.format(path=str(path))]
        victim = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert victim.stdout is not None
        victim.stdout.readline()
        until = len(server.sizes) + rng.randrange(1, max(2 * requests // (kills + 1), 2))
        while victim.poll() is None and (killed >= kills or len(server.sizes) < until):
            time.sleep(0.001 if killed < kills else WATCHED)
        time.sleep(rng.uniform(0, 0.03) if victim.poll() is None else 0.0)
        if victim.poll() is None:
            victim.send_signal(signal.SIGKILL)
            killed += 1
        elif victim.returncode:
            raise RuntimeError(f"an upgrade ended with {victim.returncode}")
        victim.communicate()
        if victim.returncode == 0:
            return killed


def lines_of(
    name: str, gallery: cs.Gallery, server: EmbeddingServer, texts: list[str], batch: int, kills: int
) -> Iterator[Row]:
    """What must hold of an upgrade that has embedded everything."""
    natives = gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()
    vectors = gallery.vectors([f"{n}" for n in range(len(texts))], "v2")
    true = np.stack([embedding_of(text, server.rules.dim) for text in texts])
    wrong = int((np.abs(vectors - true).max(axis=1) > CLOSE).sum())
    yield line(name, "items without their native vector", len(texts) - len(natives) + wrong, 0)
    lost = server.faults["lost"] + server.faults["cut"]
    yield line(name, f"texts billed twice ({lost} answers lost, {kills} kills)", server.twice, batch * (lost + kills))
    yield _spent(name, gallery, server)
    wrong = sum(finding.severity != "note" for finding in gallery.maintenance.verify().findings)
    yield line(name, "errors and warnings of verify", wrong, 0)


def _spent(name: str, gallery: cs.Gallery, server: EmbeddingServer) -> Row:
    spent = gallery.status().upgrades[0].spent.cost
    return line(name, "what the ledger differs from the bill, as a share", abs(spent / server.money - 1), WITHIN)


def run(*, items: int = 20_000, batch: int = 16, kills: int = 10, seed: int = 0) -> Iterator[Row]:
    """All three upgrades."""
    texts = texts_of(items, seed)
    with tempfile.TemporaryDirectory() as folder, EmbeddingServer(replace(RULES, seed=seed)) as server:
        gallery = made(Path(folder, "whole.lance"), texts, encoder_of(server, batch))
        gallery.upgrade("v2", backfill=1.0)
        yield from lines_of("whole", gallery, server, texts, batch, 0)
    with tempfile.TemporaryDirectory() as folder, EmbeddingServer(replace(RULES, seed=seed + 1)) as server:
        path = Path(folder, "killed.lance")
        made(path, texts, encoder_of(server, batch))
        done = upgrade_with_kills(path, server, kills, len(texts) // batch, random.Random(seed))
        yield from lines_of("killed", cs.Gallery.open(str(path), trust_code=True), server, texts, batch, done)
    texts = texts[: len(texts) // 4]
    limit = 0.2 * sum(map(tokens_of, texts)) * RULES.price / 1e6
    with tempfile.TemporaryDirectory() as folder, EmbeddingServer(replace(RULES, seed=seed + 2)) as server:
        gallery = made(Path(folder, "limited.lance"), texts, encoder_of(server, batch))
        gallery.upgrade("v2", backfill=cs.Backfill(max_cost=limit))
        yield line("limited", "money billed", server.money, limit)
        yield _spent("limited", gallery, server)


def table(record: Record) -> str:
    """Figures beside their limits, by upgrade."""
    cells = [
        (row["upgrade"], row["what"], f"{row['figure']:.4g}", f"{row['limit']:.4g}", verdict(row))
        for row in record.rows
    ]
    return markdown(("upgrade", "what", "figure", "at most", ""), cells)


SMOKE = {"items": 400, "kills": 1}
TABLES = {"limits": table}
