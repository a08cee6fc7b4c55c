"""An encoder behind HTTP, against a real server: its pace, its faults, its bill, and its key that goes nowhere else."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from compatstore.encoders import Bill, Metered, OpenAICompatible, encode_readable, from_spec, metered
from compatstore.encoders import endpoint as endpoint_module
from compatstore.errors import EncoderFailed, InvalidInput, SourceError
from tests.servers.embeddings import EmbeddingServer, Rules, embedding_of, tokens_of

TEXTS = [f"text {number} of {'some ' * (number % 7)}words" for number in range(200)]
KEY = "sk-a-secret-of-the-users"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "FIRST_WAIT", 0.001)


def encoder_of(server: EmbeddingServer, **settings: object) -> OpenAICompatible:
    given = {"dim": server.rules.dim, "batch_size": 16, "price_per_million": server.rules.price, **settings}
    return OpenAICompatible(server.url, "words", **given)


def expected(texts: list[str], dim: int = 32) -> np.ndarray:
    return np.stack([embedding_of(text, dim) for text in texts])


def test_texts_are_embedded_in_their_order_and_billed_as_the_server_says() -> None:
    with EmbeddingServer() as server, metered() as call:
        encoder = encoder_of(server)
        assert isinstance(encoder, Metered)
        np.testing.assert_allclose(encoder.encode(TEXTS), expected(TEXTS), atol=1e-6)
    assert call.bill.items == 200
    assert call.bill.tokens == server.tokens == sum(map(tokens_of, TEXTS))
    assert call.bill.cost == pytest.approx(server.money)
    assert server.sizes == [16] * 12 + [8]
    assert encoder.encode([]).shape == (0, 32)


def test_a_text_that_stands_in_a_batch_twice_is_paid_for_once() -> None:
    with EmbeddingServer() as server:
        vectors = encoder_of(server).encode(["a b", "c", "a b"])
    assert (vectors[0] == vectors[2]).all()
    assert server.billed == {"a b": 1, "c": 1}


def test_the_length_is_asked_of_the_endpoint_once_and_then_part_of_the_spec() -> None:
    with EmbeddingServer() as server:
        encoder = encoder_of(server, dim=None)
        assert encoder.dim == 32
        assert server.requests == 1
        again = from_spec(encoder.spec)
        assert again.dim == 32
        assert again.fingerprint == encoder.fingerprint
        assert server.requests == 1


def test_shorter_embeddings_are_asked_for() -> None:
    with EmbeddingServer() as server:
        encoder = encoder_of(server, dim=None, dimensions=8)
        assert encoder.encode(["a b"]).shape == (1, 8)
        assert from_spec(encoder.spec).fingerprint == encoder.fingerprint
        assert encoder.fingerprint != encoder_of(server, dim=8).fingerprint


def test_prefixes_tell_queries_from_documents_and_belong_to_the_fingerprint() -> None:
    with EmbeddingServer() as server:
        plain, prefixed = encoder_of(server), encoder_of(server, query_prefix="query: ", document_prefix="passage: ")
        np.testing.assert_allclose(prefixed.encode(["a b"]), expected(["passage: a b"]), atol=1e-6)
        np.testing.assert_allclose(prefixed.encode_queries(["a b"]), expected(["query: a b"]), atol=1e-6)
        assert len({plain.fingerprint, prefixed.fingerprint, encoder_of(server, query_prefix="q").fingerprint}) == 3
        assert from_spec(prefixed.spec).fingerprint == prefixed.fingerprint


def test_one_model_at_two_addresses_is_one_where_its_identity_is_named() -> None:
    here, there = "http://here/v1", "https://there/v2"
    named = [OpenAICompatible(url, "m", dim=4, identity="m@2026").fingerprint for url in (here, there)]
    assert named[0] == named[1]
    assert OpenAICompatible(here, "m", dim=4).fingerprint != OpenAICompatible(there, "m", dim=4).fingerprint


@pytest.mark.parametrize("fault", ["busy", "error", "dropped", "lost", "cut"])
def test_faults_that_pass_lose_nothing(fault: str) -> None:
    with EmbeddingServer(Rules(faults={fault: 0.4}, seed=3)) as server, metered() as call:
        np.testing.assert_allclose(encoder_of(server).encode(TEXTS), expected(TEXTS), atol=1e-6)
    assert server.faults[fault] > 0
    assert server.billed.keys() == set(TEXTS)
    if fault in ("busy", "error"):
        assert (server.twice, call.bill.tokens) == (0, server.tokens)
    else:
        assert server.twice == (0 if fault == "dropped" else sum(server.sizes) - 200)
        assert (call.bill.tokens == server.tokens) == (fault != "dropped")
        assert call.bill.tokens >= server.tokens, "what may have been billed is counted"


@pytest.mark.parametrize("form", ["seconds", "date", "ms"])
def test_a_rate_limit_is_a_pace_however_often_it_is_reached(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.servers.embeddings.WAITS", (form,))
    waits: list[float] = []
    rules = Rules(faults={"limit": 0.8}, wait=1.0 if form == "date" else 0.25, seed=1)
    with EmbeddingServer(rules) as server, metered(waits.append) as call:
        encoder_of(server, retries=0).encode(TEXTS)
    assert len(waits) == server.faults["limit"] > 20
    assert set(waits) <= ({0.0, 0.01, 1.0, 2.0} if form == "date" else {0.25})
    assert call.waited == pytest.approx(sum(waits))
    assert server.twice == 0


def test_a_limit_that_does_not_say_how_long_is_waited_for_ever_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(EmbeddingServer, "wait", lambda _: ("X-Nothing", "said"))
    monkeypatch.setattr(endpoint_module, "FIRST_WAIT", 0.5)

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 12:
            server.rules = Rules()

    with EmbeddingServer(Rules(faults={"limit": 1.0})) as server, metered(sleep):
        encoder_of(server, retries=0).encode(["a"])
    assert all(0.25 * 2**step <= wait <= 0.5 * 2**step for step, wait in enumerate(waits[:7]))
    assert max(waits) <= 60


def test_a_wait_ends_where_the_caller_is_asked_to_stop_and_nothing_is_paid_for_twice() -> None:
    class StopAskedError(Exception):
        pass

    def stop(seconds: float) -> None:
        raise StopAskedError

    with EmbeddingServer(Rules(faults={"limit": 0.3}, seed=5)) as server:
        encoder, stops = encoder_of(server), 0
        for _ in range(100):
            try:
                with metered(stop):
                    vectors = encoder.encode(TEXTS)
                break
            except StopAskedError:
                stops += 1
    np.testing.assert_allclose(vectors, expected(TEXTS), atol=1e-6)
    assert stops > 1
    assert server.twice == 0


def test_a_caller_without_patience_is_told_how_long_it_would_take() -> None:
    with EmbeddingServer(Rules(faults={"limit": 1.0}, wait=30.0)) as server:
        encoder = encoder_of(server)
        with metered(patience=1.0), pytest.raises(EncoderFailed, match=r"an answer within 1 s.*429.*slow down"):
            encoder.encode_queries(["a"])


def test_a_text_that_is_refused_fails_alone_and_the_rest_is_paid_for_once() -> None:
    texts = [*TEXTS[:20], "x" * 3000, *TEXTS[20:60], "y" * 3000]
    with EmbeddingServer() as server, metered() as call:
        encoded = encode_readable(encoder_of(server), texts)
    assert sorted(encoded.failures) == [20, 61]
    assert all("an input is too long" in reason for reason in encoded.failures.values())
    np.testing.assert_allclose(encoded.vectors, expected(TEXTS[:60]), atol=1e-6)
    assert server.twice == 0
    assert call.bill.tokens == server.tokens


def test_sources_that_are_no_texts_are_named_before_anything_is_sent() -> None:
    with EmbeddingServer() as server:
        with pytest.raises(SourceError) as error:
            encoder_of(server).encode(["a", 3, "", None, "\ud800"])
        assert sorted(error.value.failures) == [1, 2, 3, 4]
        assert server.requests == 0


def test_an_endpoint_that_refuses_everything_is_at_fault_itself() -> None:
    with EmbeddingServer(Rules(longest=0)) as server:
        with pytest.raises(EncoderFailed, match=r"takes some of them.*an input is too long.*16 requests"):
            encoder_of(server).encode(TEXTS)
        assert server.requests == 16


def test_faults_that_do_not_pass_end_with_what_was_answered_kept() -> None:
    with EmbeddingServer(Rules(seed=2)) as server:
        encoder = encoder_of(server, retries=2)
        encoder.encode(TEXTS[:4])
        server.rules = Rules(faults={"error": 1.0})
        with pytest.raises(EncoderFailed, match=r"500.*an error of the server, in 3 tries"):
            encoder.encode(TEXTS[4:])
        server.rules = Rules(faults={"error": 0.5}, seed=4)
        for _ in range(50):
            try:
                encoder.encode(TEXTS[4:])
                break
            except EncoderFailed:
                continue
    assert server.billed == dict.fromkeys(TEXTS, 1)


def test_no_server_at_the_address_is_an_error_and_no_bill() -> None:
    with EmbeddingServer() as server:
        pass
    with metered(lambda _: None) as call, pytest.raises(EncoderFailed, match=r"127\.0\.0\.1.*refused, in 7 tries"):
        encoder_of(server).encode(["a"])
    assert call.bill == Bill()


def test_a_slow_endpoint_is_given_up_on_and_may_have_billed() -> None:
    server = EmbeddingServer(Rules(latency=0.6))
    with server, metered(lambda _: None) as call, pytest.raises(EncoderFailed, match=r"within 0.05 s|[Tt]imed? ?out"):
        encoder_of(server, timeout=0.05, retries=1).encode(["a b"])
    assert call.bill.tokens > 0


def test_the_key_comes_from_the_environment_and_stands_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddingServer(Rules(key=KEY)) as server:
        encoder = encoder_of(server, key_env="A_KEY")
        with pytest.raises(EncoderFailed, match=r"401.*A_KEY is not set"):
            encoder.encode(["a"])
        monkeypatch.setenv("A_KEY", KEY)
        assert encoder.encode(["a"]).shape == (1, 32)
        assert server.seen[-1][1]["Authorization"] == f"Bearer {KEY}"
        server.rules = Rules(key="another")
        with pytest.raises(EncoderFailed, match="A_KEY is set") as error:
            encoder.encode(["b"])
        monkeypatch.setenv("A_KEY", "a\nb")
        with pytest.raises(EncoderFailed, match="no HTTP header can hold"):
            encoder.encode(["b"])
    texts = [
        str(error.value),
        str(error.value.to_dict()),
        encoder.spec,
        repr(vars(encoder)),
        str(vars(encoder._endpoint)),
    ]
    assert not any(KEY in text for text in texts)
    assert "A_KEY" in encoder.spec


def test_the_key_is_no_part_of_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", KEY)
    signed = OpenAICompatible("http://here/v1", "m", dim=4, key_env="A_KEY")
    assert signed.fingerprint == OpenAICompatible("http://here/v1", "m", dim=4).fingerprint


@pytest.mark.parametrize(
    "url",
    ["https://me:secret@host/v1", "https://host/v1?key=secret", "https://host/v1#secret", "https://secret@host"],
)
def test_an_address_that_may_hold_a_secret_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidInput, match="may hold a secret") as error:
        OpenAICompatible(url, "m", dim=4)
    assert "secret@" not in str(error.value)
    assert "=secret" not in str(error.value)


@pytest.mark.parametrize(
    "url", ["", "host/v1", "ftp://host", "http://", "http://host:99999", "http://a b/v1", "file:///etc"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        OpenAICompatible(url, "m", dim=4)


def test_a_query_of_the_address_stays_behind_the_path() -> None:
    encoder = OpenAICompatible("https://host/openai?api-version=2024-10-21", "m", dim=4)
    assert encoder._endpoint.url == "https://host/openai/embeddings?api-version=2024-10-21"
    assert from_spec(encoder.spec).base_url == encoder.base_url


@pytest.mark.parametrize(
    "settings",
    [
        {"dim": 0},
        {"dimensions": 0},
        {"dim": 4, "dimensions": 8},
        {"batch_size": 0},
        {"price_per_million": -1.0},
        {"price_per_item": float("nan")},
        {"timeout": 0.0},
        {"retries": -1},
        {"key_env": "A=B"},
        {"key_env": "A\n"},
        {"dim": "4"},
    ],
)
def test_settings_out_of_their_range_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        OpenAICompatible("http://host/v1", "m", **settings)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"data": []}, "data with 1 embeddings"),
        ({"data": [{"embedding": "no base64!"}]}, "Error"),
        ({"data": [{"embedding": [[1.0]]}]}, "ValueError"),
        ({"data": [{"embedding": None}]}, "null in place of all"),
        ({"data": [{"embedding": [1.0, 2.0]}]}, "embeddings of 2 values"),
        ({"data": [{"embedding": []}]}, "embeddings of 0 values"),
        ({"data": [{"embedding": [0.0] * 32, "index": 7}]}, "other numbers"),
        ([1, 2], "no such list"),
        ("embeddings", "no such list"),
        ({"error": {"message": "fine"}}, "no such list"),
    ],
)
def test_answers_of_another_form_are_refused(answer: object, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddingServer() as server:
        encoder = encoder_of(server)
        monkeypatch.setattr(encoder._endpoint, "post", lambda *_: (answer, 0))
        with pytest.raises((EncoderFailed, InvalidInput), match=said):
            encoder.encode(["a"])


def test_base64_is_read_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    import base64

    vector = embedding_of("a", 32)
    text = base64.b64encode(vector.tobytes()).decode()
    with EmbeddingServer() as server, metered() as call:
        encoder = encoder_of(server)
        monkeypatch.setattr(encoder._endpoint, "post", lambda *_: ({"data": [{"embedding": text}]}, 0))
        np.testing.assert_array_equal(encoder.encode(["a"])[0], vector)
    assert call.bill.tokens == 1, "an answer that does not say is billed as expected"


def test_the_expected_bill_learns_from_what_was_billed() -> None:
    with EmbeddingServer() as server:
        encoder = encoder_of(server)
        guessed = encoder.expected_bill(TEXTS).tokens
        encoder.encode(TEXTS[:50])
        learned, true = encoder.expected_bill(TEXTS).tokens, sum(map(tokens_of, TEXTS))
    assert abs(learned - true) < abs(guessed - true)
    assert learned == pytest.approx(true, rel=0.05)
    assert encoder.expected_bill([]).cost == 0
    assert OpenAICompatible("http://host/v1", "m", dim=4).expected_bill(["a"]).cost is None


def test_threads_share_an_encoder() -> None:
    found: dict[int, np.ndarray] = {}
    with EmbeddingServer(Rules(faults={"error": 0.2, "limit": 0.2})) as server:
        encoder = encoder_of(server)
        work = [
            threading.Thread(target=lambda n=n: found.update({n: encoder.encode(TEXTS[n * 50 : n * 50 + 50])}))
            for n in range(4)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    np.testing.assert_allclose(np.concatenate([found[n] for n in range(4)]), expected(TEXTS), atol=1e-6)


def test_a_date_is_read_by_the_clock_of_the_endpoint() -> None:
    from email.utils import formatdate

    then = time.time() - 5000
    headers = {"retry-after": formatdate(then + 7, usegmt=True), "date": formatdate(then, usegmt=True)}
    assert endpoint_module._requested_wait(headers) == 7
    assert endpoint_module._requested_wait({"retry-after": formatdate(then, usegmt=True)}) == 0
    assert endpoint_module._requested_wait({"retry-after": "soon"}) is None
    assert endpoint_module._requested_wait({"retry-after": "-3"}) is None
    assert endpoint_module._requested_wait({"retry-after": "nan"}) is None
