"""Text models behind an HTTP endpoint of OpenAI's form: providers, proxies, and servers of one's own.

vLLM, TEI, llama.cpp, Ollama and LiteLLM answer in this form as well.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.boundary import checked, foreign
from compatstore.digests import fingerprint as digest
from compatstore.encoders.endpoint import Endpoint, Refused, joined
from compatstore.encoders.metering import Bill, meter
from compatstore.encoders.specs import join_spec
from compatstore.encoders.text_models import TextEncoder, unit
from compatstore.errors import EncoderFailed, InvalidInput, SourceError

TOKENS_A_BYTE = 0.25  # estimate for English text before the first answer
BARREN_REQUESTS = 16  # refused in a row before the first that is answered: then no single text is at fault
ANSWER_BYTES, VALUE_BYTES = 2**16, 40  # of an answer at most, and of each value in it
UNKNOWN_DIM = 2**15  # values of an embedding at most, before its length is known
MOST_TOKENS = 2**40  # of an answer; a larger number is no count of tokens
NO_EMBEDDING = "the endpoint gave null in place of its embedding"
OTHER_FORM = "The endpoint does not answer in the form of OpenAI's embeddings."
MOST_BYTES = 64 * 2**20  # of vectors that are kept for a call to come


@checked
class OpenAICompatible(TextEncoder):
    """Embeds texts by POST to BASE_URL/embeddings.

    The encoder waits for the endpoint's rate limit as long as the answers request. Transient faults are
    tried again. A text that the endpoint refuses is found by halving its batch, and fails alone. Answers
    before a call fails are kept for the next call, so nothing is paid for twice.

    Args:
        base_url: Address of the API ("https://api.openai.com/v1").
        model: Name of the model ("text-embedding-3-small").
        dim: Length of an embedding; None queries the endpoint, once, with one short text.
        dimensions: Length of shortened embeddings that is requested from the model; only some models can.
        batch_size: Texts of a request.
        query_prefix: Put before each query ("query: ").
        document_prefix: Put before each item ("passage: ").
        normalise: Scale embeddings to unit length.
        price_per_million: Price of a million tokens, in any currency.
        price_per_item: Price of a text, beside that of its tokens.
        timeout: Seconds for a request.
        retries: Further tries, in a row, of a request whose fault may pass.
        key_env: Name of the environment variable that holds the key. The key itself is never stored.
        identity: Identity of the model ("text-embedding-3-small@2024-01"), in place of its address and name: two
            addresses of one model are one model then.

    Raises:
        InvalidInput: A setting is out of its range, or the address may hold a secret.

    Examples:
        >>> encoder = cs.encoders.OpenAICompatible(
        ...     "https://api.example.com/v1", "small", dim=512, price_per_million=0.02, key_env="EXAMPLE_KEY"
        ... )
        >>> encoder.spec
        'openai:https://api.example.com/v1#small?dim=512&price_per_million=0.02&key_env=EXAMPLE_KEY'
        >>> encoder.expected_bill(["a text of some words"]).tokens
        5
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        dim: int | None = None,
        dimensions: int | None = None,
        batch_size: int = 64,
        query_prefix: str = "",
        document_prefix: str = "",
        normalise: bool = False,
        price_per_million: float | None = None,
        price_per_item: float | None = None,
        timeout: float = 60.0,
        retries: int = 6,
        key_env: str = "",
        identity: str = "",
    ) -> None:
        super().__init__(
            query_prefix=query_prefix, document_prefix=document_prefix, normalise=normalise, batch_size=batch_size
        )
        prices = [price for price in (price_per_million, price_per_item) if price is not None]
        if not model.strip() or not all(0 <= price < math.inf for price in prices):
            raise InvalidInput("make an encoder", expected="a model's name, prices >= 0", found=f"{model!r}, {prices}")
        known = dim if dim is not None else dimensions
        if (known is not None and known < 1) or (dim is not None and dimensions not in (None, dim)):
            found = f"dim {dim}, dimensions {dimensions}"
            raise InvalidInput("make an encoder", expected="dim >= 1, and dimensions the same", found=found)
        self._endpoint = Endpoint(joined(base_url, "embeddings"), key_env=key_env, timeout=timeout, retries=retries)
        self.base_url, self.model, self.dimensions = base_url, model, dimensions
        self.price_per_million, self.price_per_item = price_per_million, price_per_item
        self.timeout, self.retries, self.key_env, self.identity = timeout, retries, key_env, identity
        self._dim, self._proven, self._lock = known, False, Lock()
        self._paid = _Paid()
        self._tokens = self._bytes = 0

    @property
    def dim(self) -> int:
        """Length of an embedding, queried from the endpoint if it was not given."""
        if self._dim is None:
            (vector,) = self._request(["dimension"])
            assert vector is not None  # `_read` refuses an answer without any
            self._dim = len(vector)
        return self._dim

    @cached_property
    def fingerprint(self) -> str:
        """Digest (32 hex digits) of model, dimension, prefixes and normalisation; never of the key."""
        model = {"identity": self.identity} if self.identity else {"url": self.base_url, "model": self.model}
        return digest(openai=model, dim=self.dim, shortened=self.dimensions is not None, **self.treatment)

    @property
    def spec(self) -> str:
        """Spec by which `encoders.from_spec` builds this encoder again; the key stays in the environment."""
        _, _, dim, *names = inspect.signature(OpenAICompatible).parameters
        settings = {dim: None if self.dimensions else self._dim} | {name: getattr(self, name) for name in names}
        return join_spec("openai", [self.base_url, self.model], OpenAICompatible, settings)

    @property
    def request_rows(self) -> int:
        """Most texts of one request."""
        return self.batch_size

    def expected_bill(self, sources: Sequence[Any]) -> Bill:
        """Estimated bill of items, by their bytes, and by the tokens that earlier answers have counted."""
        return self._expected([f"{self.document_prefix}{text}" for text in sources if isinstance(text, str)])

    def _encode(self, sources: Sequence[Any], *, queries: bool) -> FloatArray:
        texts = self._prefixed(sources, queries=queries)
        if not texts:
            return np.empty((0, self.dim), np.float32)
        found, failures = self._paid.take(texts), dict[str, str]()
        try:
            self._fill(found, list(dict.fromkeys(text for text in texts if text not in found)), failures)
        except BaseException:
            self._paid.keep(found)
            raise
        if failures:
            self._paid.keep(found)
            refused = {place: failures[text] for place, text in enumerate(texts) if text in failures}
            raise SourceError(f"embed {len(texts)} texts", refused, fix="Leave these sources out of the batch.")
        vectors = np.stack([found[text] for text in texts])
        return unit(vectors) if self.normalise else vectors

    def _fill(self, found: dict[str, FloatArray], texts: list[str], failures: dict[str, str]) -> None:
        """Embed texts, request by request; a request that is refused is halved until one text is at fault."""
        parts = deque(texts[start : start + self.batch_size] for start in range(0, len(texts), self.batch_size))
        refused = 0
        while parts:
            part = parts.popleft()
            try:
                vectors = self._request(part)
            except Refused as fault:
                refused += 1
                if refused >= BARREN_REQUESTS and not self._proven:
                    raise EncoderFailed(
                        f"embed texts with {self.model}",
                        expected="an endpoint that takes some of them",
                        found=f"{fault}, for {refused} requests of other texts",
                        fix="Check the model's name and its settings.",
                    ) from fault
                if len(part) == 1:
                    failures[part[0]] = f"{fault}"
                else:
                    parts.extendleft([part[len(part) // 2 :], part[: len(part) // 2]])
            else:
                self._proven = True
                failures.update({text: NO_EMBEDDING for text, one in zip(part, vectors, strict=True) if one is None})
                found.update({text: one for text, one in zip(part, vectors, strict=True) if one is not None})

    def _request(self, texts: list[str]) -> list[FloatArray | None]:
        """Send one request: a vector, (dim,) float32, or None for each text, and its bill to the meter of the call."""
        shorter = {} if self.dimensions is None else {"dimensions": self.dimensions}
        document = {"model": self.model, "input": texts, "encoding_format": "float", **shorter}
        expected = self._expected(texts)
        most_bytes = ANSWER_BYTES + len(texts) * (self._dim or UNKNOWN_DIM) * VALUE_BYTES
        answer, lost = self._endpoint.post(document, expected, most_bytes)
        tokens = _tokens(answer)
        for _ in range(1 + lost):  # an answer that was lost has the same texts, and the same tokens
            meter().charge(expected if tokens is None else self._bill(len(texts), tokens))
        if tokens is not None:
            with self._lock:
                self._tokens, self._bytes = self._tokens + tokens, self._bytes + _bytes(texts)
        return self._read(answer, len(texts))

    def _read(self, answer: Any, rows: int) -> list[FloatArray | None]:
        """The embeddings of an answer, in the order of its texts: (dim,) float32, or None if it has null."""
        expected = f"data with {rows} embeddings" + (f" of {self._dim} values" if self._dim else "")

        def refusal(found: str, fix: str = OTHER_FORM) -> EncoderFailed:
            return EncoderFailed(f"read an answer of {self.model}", expected=expected, found=found, fix=fix)

        data = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(data, list) or len(data) != rows or not all(isinstance(one, dict) for one in data):
            raise refusal(f"{len(data)} of them" if isinstance(data, list) else "no such list")
        places = [one.get("index", place) for place, one in enumerate(data)]
        if sorted(place for place in places if isinstance(place, int)) != list(range(rows)):
            raise refusal("other numbers of texts")
        try:
            vectors = {
                place: None if one.get("embedding", "") is None else _vector(one.get("embedding"))
                for place, one in zip(places, data, strict=True)
            }
        except (TypeError, ValueError, binascii.Error) as error:
            raise refusal(type(error).__name__) from error
        lengths = {len(vector) for vector in vectors.values() if vector is not None}
        if not lengths and not self._proven:
            raise refusal("null in place of all of them")
        if lengths and (len(lengths) > 1 or lengths - {self._dim or max(lengths)} or not min(lengths)):
            found = f"embeddings of {', '.join(map(str, sorted(lengths)))} values"
            raise refusal(found, "Name the length that it gives: dim.")
        return [vectors[place] for place in range(rows)]

    def _expected(self, texts: list[str]) -> Bill:
        with self._lock:
            ratio = self._tokens / self._bytes if self._bytes else TOKENS_A_BYTE
        return self._bill(len(texts), math.ceil(ratio * _bytes(texts)))

    def _bill(self, items: int, tokens: int) -> Bill:
        by_token, by_item = self.price_per_million, self.price_per_item
        unknown = by_token is None and by_item is None
        cost = None if unknown else tokens * (by_token or 0.0) / 1e6 + items * (by_item or 0.0)
        return Bill(items=items, tokens=tokens, cost=cost)


class _Paid:
    """Vectors that were answered in calls that failed, for the calls that come after; the oldest go first."""

    def __init__(self) -> None:
        self._vectors: OrderedDict[str, FloatArray] = OrderedDict()
        self._lock = Lock()

    def take(self, texts: Iterable[str]) -> dict[str, FloatArray]:
        """Those of some texts, which are kept no longer."""
        with self._lock:
            there = [text for text in dict.fromkeys(texts) if text in self._vectors]
            return {text: self._vectors.pop(text) for text in there}

    def keep(self, vectors: dict[str, FloatArray]) -> None:
        """Keep some."""
        with self._lock:
            self._vectors.update(vectors)
            width = max((vector.nbytes for vector in vectors.values()), default=1)
            while len(self._vectors) > max(MOST_BYTES // width, 1):
                self._vectors.popitem(last=False)


def _bytes(texts: Iterable[str]) -> int:
    return sum(len(text.encode(errors="replace")) for text in texts)


def _tokens(answer: Any) -> int | None:
    """Billed tokens by an answer, if the number is plausible."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counts = [usage.get(name) for name in ("total_tokens", "prompt_tokens")] if isinstance(usage, dict) else []
    return next((count for count in counts if isinstance(count, int) and 0 <= count < MOST_TOKENS), None)


def _vector(given: Any) -> FloatArray:
    """One embedding: a list of numbers, or the base64 of float32 values, the least byte first."""
    if isinstance(given, str):
        return np.frombuffer(base64.b64decode(given, validate=True), "<f4").astype(np.float32)
    with foreign("read an embedding", "numbers"):
        vector = np.asarray(given, np.float32)
    if vector.ndim != 1:
        raise ValueError("an embedding that is no list of numbers")
    return vector
