"""A real HTTP server with an embeddings endpoint of OpenAI's form: it bills, limits its rate, and fails at random.

Vectors are a function of the text alone. Every request that is billed is written down, so that one can count what was
billed twice; a share of the answers then never arrives. The server fails in these ways:

| fault | billed | what the client sees |
|---|---|---|
| limit | no | 429 with Retry-After, in seconds or as a date |
| busy | no | 503 with Retry-After |
| error | no | 500 |
| dropped | no | the connection is reset before the request is worked on |
| lost | yes | the connection is reset in place of the answer |
| cut | yes | half an answer |
"""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from compatstore.arrays import FloatArray

WAITS = ("seconds", "date", "ms")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How the server behaves.

    Args:
        dim: Length of an embedding.
        price: Of a million tokens.
        faults: Fault -> share of the requests that it befalls.
        burst: Requests that are answered at once; then `pace` a second. None for no limit.
        pace: Requests a second.
        wait: Seconds that Retry-After names where a fault is not the limit's own.
        longest: Characters of a text at most; a request with a longer one is refused with 400.
        key: What a request must be signed with, or "".
        seed: Of the faults.
        latency: Seconds that a request takes.
    """

    dim: int = 32
    price: float = 20.0
    faults: dict[str, float] = field(default_factory=dict)
    burst: int | None = None
    pace: float = 20.0
    wait: float = 0.02
    longest: int = 2000
    key: str = ""
    seed: int = 0
    latency: float = 0.0


class EmbeddingServer:
    """Serves in threads of this process while the block runs.

    Args:
        rules: How it behaves.

    Attributes:
        rules: The same; may be changed between requests.
        billed: Text -> how often it was billed.
        tokens: Tokens that were billed.
        faults: Fault -> how often it happened.
        requests: Requests that came, those that failed included.
        sizes: Texts of each billed request.
        seen: Bodies of the last requests, and their headers.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.billed, self.tokens, self.faults = Counter[str](), 0, Counter[str]()
        self.requests, self.sizes = 0, list[int]()
        self.seen: list[tuple[dict[str, Any], dict[str, str]]] = []
        self._random, self._lock = random.Random(self.rules.seed), threading.Lock()
        self._free, self._since = float(self.rules.burst or 0), time.monotonic()
        self._http = _Quiet(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> EmbeddingServer:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def money(self) -> float:
        """What was billed."""
        return self.tokens * self.rules.price / 1e6

    @property
    def twice(self) -> int:
        """How many texts were billed beyond their first time."""
        return sum(times - 1 for times in self.billed.values())

    def bill(self, texts: list[str]) -> int:
        """Write a request's texts down; returns its tokens."""
        tokens = sum(map(tokens_of, texts))
        with self._lock:
            self.billed.update(texts)
            self.tokens += tokens
            self.sizes.append(len(texts))
        return tokens

    def fate(self) -> str:
        """What happens to the next request; "" where nothing does."""
        with self._lock:
            self.requests += 1
            if self.rules.burst is not None:
                now = time.monotonic()
                self._free = min(self._free + (now - self._since) * self.rules.pace, self.rules.burst)
                self._since = now
                if self._free < 1:
                    self.faults["limit"] += 1
                    return "limit"
            drawn = self._random.random()
            for fault, share in self.rules.faults.items():
                if drawn < share:
                    self.faults[fault] += 1
                    return fault
                drawn -= share
            self._free -= 1
            return ""

    def wait(self) -> tuple[str, str]:
        """A header that says how long to wait, each time in another form."""
        with self._lock:
            form = WAITS[self._random.randrange(len(WAITS))]
        if form == "ms":
            return "Retry-After-Ms", f"{self.rules.wait * 1000:.0f}"
        if form == "date":
            return "Retry-After", formatdate(time.time() + self.rules.wait, usegmt=True)
        return "Retry-After", f"{self.rules.wait:.3f}"


def tokens_of(text: str) -> int:
    """Tokens of a text: a word has one for each five characters, and a text has two more."""
    return 2 + sum(-(-len(word) // 5) for word in text.split())


def embedding_of(text: str, dim: int) -> FloatArray:
    """(dim,) float32 of length 1: texts with words in common are alike."""
    words = [np.random.default_rng(zlib.crc32(word.encode())).standard_normal(dim) for word in text.split()]
    total = np.sum([*words, np.full(dim, 1e-6)], axis=0)
    return np.asarray(total / np.linalg.norm(total), np.float32)


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that is killed, or does not wait, is none of this server's business."""


def _handler(server: EmbeddingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize, disable_nagle_algorithm = 1 << 16, True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.seen = [*server.seen[-9:], (body, dict(self.headers))]
            rules, fate = server.rules, server.fate()
            if rules.latency:
                time.sleep(rules.latency)
            if rules.key and self.headers.get("Authorization") != f"Bearer {rules.key}":
                told = f"Incorrect API key: {self.headers.get('Authorization')}"
                self._answer(401, {"error": {"message": told, "code": "invalid_api_key"}})
            elif fate in ("limit", "busy"):
                self._answer(429 if fate == "limit" else 503, {"error": {"message": "slow down"}}, server.wait())
            elif fate == "error":
                self._answer(500, {"error": {"message": "an error of the server"}})
            elif fate == "dropped":
                self._reset()
            elif any(len(text) > rules.longest for text in body["input"]):
                self._answer(400, {"error": {"message": "an input is too long", "code": "context_length_exceeded"}})
            else:
                tokens = server.bill(body["input"])
                self._embed(body["input"], body.get("dimensions", rules.dim), tokens, fate)

        def _embed(self, texts: list[str], dim: int, tokens: int, fate: str) -> None:
            data = [{"index": n, "embedding": embedding_of(text, dim).tolist()} for n, text in enumerate(texts)]
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            if fate == "lost":
                self._reset()
            else:
                self._answer(200, {"data": data[::-1], "usage": usage}, cut=fate == "cut")

        def _answer(
            self, status: int, document: object, header: tuple[str, str] | None = None, *, cut: bool = False
        ) -> None:
            text = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            if header is not None:
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(text[: len(text) // 2] if cut else text)
            if cut:
                self._reset()

        def _reset(self) -> None:
            """End the connection without a word: the client's end sees a reset."""
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
