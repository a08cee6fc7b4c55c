"""Endpoints that answer without end, slowly, in other forms, or with the key in what they say."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import tracemalloc
import zlib

import numpy as np
import pytest

from compatstore.encoders import OpenAICompatible, encode_readable, metered
from compatstore.encoders import endpoint as endpoint_module
from compatstore.errors import CompatStoreError, EncoderFailed, SourceError

TIMEOUT = 0.5
KEY = "sk-a-secret-of-the-users"


class Hostile:
    """Answers each request by one function, which writes to the socket as it likes."""

    def __init__(self, answer):
        self._answer, self._over = answer, threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._socket.close()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection):
        try:
            with connection:
                received = b""
                while b"\r\n\r\n" not in received:
                    received += connection.recv(65536)
                head, _, body = received.partition(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
                )
                while len(body) < length:
                    body += connection.recv(65536)
                self._answer(connection, json.loads(body)["input"], self._over)
        except OSError:
            return


def reply(connection, body, status="200 OK", headers=""):
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n"
    connection.sendall(head.encode() + body)


def embeddings(texts, **usage):
    data = [{"index": place, "embedding": [float(len(text)), 1.0]} for place, text in enumerate(texts)]
    return json.dumps({"data": data, "usage": usage}).encode()


def packed_bomb(connection, texts, over):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = b"".join([packer.compress(b"[" * 2**20) for _ in range(256)]) + packer.flush()
    reply(connection, body, headers="Content-Encoding: gzip\r\n")


def endless(connection, texts, over):
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while not over.is_set():
        connection.sendall(b" " * 2**16)


def endless_chunks(connection, texts, over):
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not over.is_set():
        connection.sendall(b"10000\r\n" + b" " * 2**16 + b"\r\n")


def slow_body(connection, texts, over):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not over.wait(0.05):
        connection.sendall(b" ")


def slow_head(connection, texts, over):
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while not over.wait(0.05):
        connection.sendall(b"x")


def silent(connection, texts, over):
    over.wait(60)


def long_error(connection, texts, over):
    connection.sendall(b"HTTP/1.1 418 A Teapot\r\n\r\n")
    while not over.is_set():
        connection.sendall(b"no " * 2**14)


def waits_for_ever(connection, texts, over):
    reply(connection, b"", "429 Too Many", "Retry-After: 1e300\r\n")


def waits_until_9999(connection, texts, over):
    reply(connection, b"", "503 Busy", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n")


def no_http(connection, texts, over):
    connection.sendall(b"\x00" * 1000)


def all_null(connection, texts, over):
    reply(connection, json.dumps({"data": [{"embedding": None} for _ in texts]}).encode())


def deep(connection, texts, over):
    reply(connection, b"[" * 60_000)


def odd_packing(connection, texts, over):
    reply(connection, embeddings(texts), headers="Content-Encoding: br\r\n")


HOSTILE = [
    *(packed_bomb, endless, endless_chunks, slow_body, slow_head, silent, long_error, waits_for_ever),
    *(waits_until_9999, no_http, all_null, deep, odd_packing),
]


def encoder_at(server, **settings):
    return OpenAICompatible(server.url, "m", **{"dim": 2, "timeout": TIMEOUT, "retries": 0, **settings})


@pytest.mark.parametrize("answer", HOSTILE, ids=lambda answer: answer.__name__)
def test_a_call_ends_within_twice_its_timeout_and_in_little_memory(answer):
    with Hostile(answer) as server:
        encoder = encoder_at(server)
        tracemalloc.start()
        began = time.monotonic()
        with pytest.raises(EncoderFailed):
            encoder.encode(["a", "b"])
        took, (_, peak) = time.monotonic() - began, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert took < 2 * TIMEOUT + 1.0  # a second for a busy machine
    assert peak < 16 * 2**20 + (300 * 2**20 if answer is packed_bomb else 0)  # the bomb is packed in this process


def test_an_answer_that_was_packed_unasked_is_read():
    def answer(connection, texts, over):
        reply(connection, gzip.compress(embeddings(texts)), headers="Content-Encoding: gzip\r\n")

    with Hostile(answer) as server:
        assert encoder_at(server).encode(["ab", "c"]).tolist() == [[2.0, 1.0], [1.0, 1.0]]


def test_the_key_in_a_reason_phrase_is_struck(monkeypatch):
    monkeypatch.setenv("KEY_OF_TESTS", KEY)

    def answer(connection, texts, over):
        reply(connection, f"body {KEY}".encode(), f"401 No {KEY} here", f"X-Key: {KEY}\r\n")

    with Hostile(answer) as server, pytest.raises(EncoderFailed) as error:
        encoder_at(server, key_env="KEY_OF_TESTS").encode(["a"])
    assert KEY not in f"{error.value} {error.value.found} {error.value.fix}"
    assert "401 No ... here" in str(error.value)


def test_a_count_of_tokens_beyond_all_measure_loses_no_embeddings():
    def answer(connection, texts, over):
        reply(connection, embeddings(texts, total_tokens=int("9" * 400)))

    with Hostile(answer) as server, metered() as call:
        found = encoder_at(server, price_per_million=1.0).encode(["ab"])
    assert found.tolist() == [[2.0, 1.0]]
    assert 0 < call.bill.tokens < 10


def test_a_null_among_embeddings_is_its_texts_fault_alone():
    def answer(connection, texts, over):
        data = [{"embedding": None if text == "bad" else [1.0, 2.0]} for text in texts]
        reply(connection, json.dumps({"data": data}).encode())

    with Hostile(answer) as server:
        encoder = encoder_at(server)
        with pytest.raises(SourceError) as error:
            encoder.encode(["good", "bad", "fine"])
        assert list(error.value.failures) == [1]
        found = encode_readable(encoder, ["good", "bad", "fine"])
    assert found.readable.tolist() == [0, 2]
    np.testing.assert_array_equal(found.vectors, [[1, 2], [1, 2]])


def test_the_length_of_an_embedding_is_asked_for_within_limits():
    with Hostile(endless) as server, pytest.raises(CompatStoreError):
        _ = encoder_at(server, dim=None).dim


def test_what_does_not_answer_is_told_before_it_is_asked_again(monkeypatch, caplog):
    monkeypatch.setattr(endpoint_module, "FIRST_WAIT", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    encoder = OpenAICompatible(f"http://127.0.0.1:{port}/v1", "m", dim=2, retries=2)
    with pytest.raises(EncoderFailed, match="in 3 tries"):
        encoder.encode(["a"])
    assert [record.message.partition(" ")[0] for record in caplog.records] == ["127.0.0.1/v1/embeddings:"] * 2
