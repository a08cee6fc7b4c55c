"""POST requests to one HTTP endpoint, with waits for rate limits and retries of transient faults.

| answer | reaction |
|---|---|
| 429; 503 and 529 with Retry-After | wait that long, any number of times: the endpoint works, at its own pace |
| none, or a broken one; other 5xx; 408, 409, 425 | try again with growing waits, a limited number of times |
| 400, 413, 422 | `Refused`: the caller finds out which of its inputs is at fault |
| all others | an error that no further try would mend |

A request has a deadline as a whole, even if bytes trickle in meanwhile, and an answer a limit of bytes, unpacked.

An answer that did not arrive may have been billed, and is counted as billed: a limit of money must hold. A 5xx of the
endpoint itself is not billed, one of a gateway before it may be.
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import time
import zlib
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from compatstore import next_step
from compatstore.boundary import checked
from compatstore.encoders.metering import Bill, Meter, deadline, meter, pool_of
from compatstore.errors import EncoderFailed, InvalidInput

if TYPE_CHECKING:
    import urllib3

log = logging.getLogger("compatstore.encoders")

LIMITED, BUSY = 429, (503, 529)
GATEWAY, PASSING = (502, 504), (408, 409, 425)
AT_FAULT = (400, 413, 422)
FIRST_WAIT, LONGEST_WAIT, LEAST_WAIT = 0.5, 60.0, 0.01  # seconds
LONGEST_RETRY_AFTER = 86_400.0  # seconds that an endpoint may make its caller wait
MOST_OF_AN_ERROR = 2**16  # bytes that are read of an answer without embeddings
USED_UP = ("insufficient_quota", "billing_hard_limit_reached")  # codes of a 429 that no wait mends
LONGEST_MESSAGE = 200  # characters of an endpoint's own message


class Refused(Exception):  # noqa: N818  (a signal to the caller, which has the inputs)
    """The endpoint refuses the inputs of a request."""


@checked
class Endpoint:
    """An address that takes JSON and gives JSON.

    Args:
        url: http:// or https://, without name and password; of a query only `api-version`.
        key_env: Name of the environment variable that holds the key, "" for an endpoint without one. The key is read
            as each request is sent. It is never stored, and is struck out of the endpoint's own messages.
        timeout: Seconds for a request.
        retries: Further tries, in a row, of a request whose fault may pass.

    Raises:
        InvalidInput: The URL or a setting is out of its range.
    """

    def __init__(self, url: str, *, key_env: str = "", timeout: float = 60.0, retries: int = 6) -> None:
        operation = "query an endpoint"
        if not 0 < timeout < math.inf or retries < 0:
            raise InvalidInput(operation, expected="timeout > 0 and retries >= 0", found=f"{timeout} and {retries}")
        if "=" in key_env or not key_env.isprintable():
            raise InvalidInput(
                operation, expected="the name of an environment variable as key_env", found="another text"
            )
        _require_address(url)
        self.url, self.key_env, self._timeout, self._retries = url, key_env, timeout, retries
        self._random = random.Random()

    def post(self, document: Mapping[str, Any], expected: Bill, most_bytes: int) -> tuple[Any, int]:
        """Send a request, and return the content of the answer.

        Args:
            document: The request, as JSON.
            expected: Approximate bill of an answer: charged for each one that was lost, if none arrives.
            most_bytes: Length of an answer at most, unpacked.

        Returns:
            The answer, and the number of lost ones before it, which may have been billed like this one.

        Raises:
            Refused: The inputs are at fault.
            EncoderFailed: No try can help, or none of them did; or the caller is not ready to wait that long. Answers
                were lost, and another try would cost more than the caller allows.
            Interrupted: A stop was requested during a wait for the endpoint.
        """
        body, call = json.dumps(document).encode(), meter()
        limited = failed = lost = 0
        try:
            while True:
                answer, data, fault, may_be_billed = self._send(body, most_bytes)
                if answer is not None and answer.status == 200:
                    read = _parsed(data)
                    if read is not None:
                        return read, lost
                    fault, may_be_billed = "an answer that is no JSON", True
                lost += may_be_billed
                wait = None if answer is None else _requested_wait(answer.headers)
                if wait is not None and wait > LONGEST_RETRY_AFTER:
                    raise self._refusal(f"{fault}: it requests a wait of {wait / 86_400:.3g} days")
                if answer is not None and (answer.status == LIMITED or (answer.status in BUSY and wait is not None)):
                    if _error_of(data)[0] in USED_UP:
                        raise self._refusal(f"{fault}: the quota of this account is used up")
                    wait = self._step(limited) if wait is None else max(wait, LEAST_WAIT)
                    limited += 1
                elif answer is None or answer.status >= 500 or answer.status in (*PASSING, 200):
                    if failed >= self._retries:
                        found = f"{fault}, in {failed + 1} tries" if failed else fault
                        fix = f"Earlier answers are kept; {next_step.same()} goes on from here."
                        raise self._error("an answer", found, fix)
                    wait = self._step(failed) if wait is None else wait
                    failed += 1
                elif answer.status in AT_FAULT:
                    raise Refused(fault)
                else:
                    raise self._refusal(fault)
                self._require_affordable(call, expected, lost, fault, wait)
                log.warning("%s: %s; next try in %.1f s", self._place, fault, wait)
                call.rest(wait)
        except BaseException:
            for _ in range(lost):
                call.charge(expected)
            raise

    def _send(self, body: bytes, most_bytes: int) -> tuple[Any, bytes, str, bool]:
        """Send once: the response or None, its body, the fault, and True if it may have been billed for nothing."""
        from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

        with deadline(self._timeout) as passed:
            try:
                answer, data = self._receive(body, most_bytes)
            # Any fault before an answer is there.
            except (HTTPError, OSError, ValueError, zlib.error) as error:
                sent = not isinstance(error, NewConnectionError | ConnectTimeoutError)
                late = f"no whole answer within {self._timeout:g} s" if passed() else ""
                return None, b"", late or f"{type(error).__name__}: {self._struck(str(error))}", sent
        if answer.status == 200:
            return answer, data, "", False
        fault, message = self._struck(f"{answer.status} {answer.reason or ''}"), self._struck(_error_of(data)[1])
        return answer, data, f"{fault}: {message}" if message else fault, answer.status in GATEWAY

    def _receive(self, body: bytes, most_bytes: int) -> tuple[Any, bytes]:
        """Send once, and read no more of the response than it may have."""
        key = self._key()
        signed = {"Authorization": f"Bearer {key}"} if key else {}
        headers = {"Content-Type": "application/json", "Accept": "application/json", **signed}
        answer = self._pool.request("POST", self.url, body=body, headers=headers, redirect=False, preload_content=False)
        try:
            most = most_bytes if answer.status == 200 else MOST_OF_AN_ERROR
            data = answer.read(most + 1, decode_content=False)
            packed = answer.headers.get("content-encoding", "identity").strip().lower()
            if packed in ("gzip", "deflate"):
                data = zlib.decompressobj(47).decompress(data, most + 1)
            elif packed not in ("identity", ""):
                raise self._refusal(f"an answer packed as {self._struck(packed)}, which was not requested")
            if len(data) > most and answer.status == 200:
                raise self._refusal(f"an answer of more than {most:,} bytes")
        except BaseException:
            answer.close()
            raise
        answer.release_conn() if len(data) <= most else answer.close()
        return answer, data

    def _key(self) -> str:
        key = os.environ.get(self.key_env, "").strip() if self.key_env else ""
        if not (key.isascii() and key.isprintable()):
            expected = f"a key in the environment variable {self.key_env}"
            raise self._error(expected, "characters that no HTTP header can hold", "")
        return key

    def _struck(self, text: str) -> str:
        """A text in one short line, without the key."""
        key = self._key()
        text = " ".join((text.replace(key, "...") if key else text).split())
        text = text.encode("ascii", "backslashreplace").decode()
        return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}..."

    def _step(self, tries: int) -> float:
        """Seconds before another try without Retry-After: doubling, with a random part."""
        return float(min(FIRST_WAIT * 2 ** min(tries, 30), LONGEST_WAIT) * self._random.uniform(0.5, 1.0))

    def _require_affordable(self, call: Meter, expected: Bill, lost: int, fault: str, wait: float) -> None:
        """Refuse another try that exceeds the caller's money, with the lost ones, or patience."""
        if lost and not call.may_pay(sum([expected] * lost, expected)):
            within, found = "an answer, for the money that the caller allows", f"{fault}; another try is billed again"
            raise self._error(within, found, "Allow more money.", unaffordable=True)
        if not call.may_rest(wait):
            found = f"{fault}; it would take {wait:.1f} s more"
            raise self._error(f"an answer within {call.patience:g} s", found, "Try again later.")

    def _refusal(self, fault: str) -> EncoderFailed:
        fix = "Check the address and the model's name."
        if self.key_env:
            known = "is set" if self._key() else "is not set"
            fix = f"Check the address, the model's name and the key: {self.key_env} {known}."
        return self._error("embeddings", fault, fix)

    def _error(self, expected: str, found: str, fix: str, **details: bool) -> EncoderFailed:
        return EncoderFailed(f"query {self._place}", expected=expected, found=found, fix=fix, **details)

    @property
    def _place(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.hostname}{parts.path}"

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        host = urlsplit(self.url).hostname or ""
        proxy = None if proxy_bypass(host) else getproxies().get(urlsplit(self.url).scheme)
        return pool_of(self.url, proxy, self._timeout)


def joined(base: str, path: str) -> str:
    """The URL of a path below a base URL; a query of the base stays behind it."""
    parts = urlsplit(base)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}"))


def _require_address(url: str) -> None:
    """Refuse a text that is no address, or may hold a secret; such an address is not shown."""
    expected = "http:// or https:// and a host, without name, password and query (only api-version)"
    try:
        parts = urlsplit(url)
        secret = bool(parts.username is not None or parts.password is not None or parts.fragment)
        names = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        fits = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        secret, names, fits = False, set[str](), None
    if secret or names - {"api-version"}:
        found = "an address that may hold a secret"
        raise InvalidInput("query an endpoint", expected=expected, found=found, fix="Name key_env, the key's variable.")
    if not fits or any(character.isspace() for character in url):
        raise InvalidInput("query an endpoint", expected=expected, found=ascii(url[:100]))


def _requested_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by Retry-After, in seconds or as a date by the endpoint's own clock; None without it."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) * unit
        except ValueError:
            now = _timestamp(headers.get("date", ""))
            seconds = max(_timestamp(text) - (time.time() if math.isnan(now) else now), 0.0)
        if 0 <= seconds < math.inf:
            return seconds
    return None


def _timestamp(text: str) -> float:
    """A date of HTTP in seconds; NaN for other texts."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return math.nan


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _error_of(data: bytes) -> tuple[str, str]:
    """Code and message of an error: {"error": {...}}, as OpenAI has it, or the text in its place."""
    read = _parsed(data)
    error = read.get("error", read) if isinstance(read, dict) else read
    code, message = "", error
    if isinstance(error, dict):
        code, message = error.get("code") or error.get("type") or "", error.get("message") or error.get("detail")
    return f"{code}", f"{message}" if message else data[: 2 * LONGEST_MESSAGE].decode(errors="replace")
