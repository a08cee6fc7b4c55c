"""Embedding one batch: tried again while the encoder fails, taken apart to find the items at fault, checked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from compatstore import next_step
from compatstore.arrays import Digests, FloatArray, Id, RowNumbers
from compatstore.encoders import Bill, Encoder, Metered, encode_readable, meter, metered
from compatstore.encoders.protocol import NO_SOURCE, NOT_FINITE, require_same_model
from compatstore.encoders.specs import PortableEncoder
from compatstore.errors import EncoderFailed, InvalidInput, UpgradeError, first_offenders
from compatstore.storage.catalog import Catalog
from compatstore.storage.staging import NativeBatch
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.backfilling.throttle import Hangs, backoff, may_pass, with_retries, within
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.requests.run_settings import RunSettings

# Parts of a batch that may fail without a success before the encoder is considered broken.
BARREN_PARTS = 32


@dataclass(frozen=True, kw_only=True)
class ItemBatch:
    """Items to embed, as they were read.

    Args:
        ids: n ids.
        inputs: n sources, or ids for an encoder that reads ids; None if an item has none.
        input_hash: (n,) uint64, hash of each item when it was read.
        side_inputs: n sources or ids for the side-information encoder, None if an item has none; empty without that
            encoder.
        addresses: (n,) int64, row addresses when the rows were read; None if unknown.
    """

    ids: list[Id]
    inputs: list[Any]
    input_hash: Digests
    side_inputs: list[Any] = field(default_factory=list)
    addresses: RowNumbers | None = None

    def first(self, rows: int) -> ItemBatch:
        """Its first items."""
        return replace(self, **{name: values[:rows] for name, values in vars(self).items() if values is not None})


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """Result of a batch. Items that are neither embedded nor failed were not tried to the end, for want of money.

    Args:
        batch: The items.
        rows: (m,) int64, which of them were embedded.
        vectors: (m, dim) float32, finite.
        failures: Position in the batch -> why that item was not.
        seconds: Time in the encoders, without waits between tries and for rate limits.
        side: (m, side_dim) float32, NaN where an item has none; None without a side-information encoder.
    """

    batch: ItemBatch
    rows: RowNumbers
    vectors: FloatArray
    failures: dict[int, str]
    seconds: float
    side: FloatArray | None = None

    @property
    def natives(self) -> NativeBatch:
        """The embedded items, at least one, as they are stored."""
        batch, rows = self.batch, self.rows
        made = NativeBatch.of([batch.ids[row] for row in rows], self.vectors, batch.input_hash[rows], self.side)
        return made if batch.addresses is None else replace(made, addresses=batch.addresses[rows])


class Paid(NamedTuple):
    """An embedded batch, and the amount billed as reported by the encoder; its inputs are dropped."""

    embedded: Embedded
    bill: Bill


@dataclass
class Embedder:
    """Embeds batches.

    Args:
        encoder: The target's model.
        target: Name of the version, for messages.
        settings: Retries and time limit.
        rest: Waits the given seconds; raises once a stop is requested.
        side_encoder: The target's side-information model, or None.
        form: Storage format of the target's vectors; items whose vector does not fit fail.
    """

    encoder: Encoder
    target: str
    settings: RunSettings
    rest: Callable[[float], None]
    side_encoder: Encoder | None = None
    form: VectorForm = field(default_factory=lambda: VectorForm("float32", "dot"))

    def __post_init__(self) -> None:
        self.models = [(one, one.fingerprint) for one in (self.encoder, self.side_encoder) if one is not None]

    def __reduce__(self) -> tuple[type[_EmbedderElsewhere], tuple[object, ...]]:
        side = None if self.side_encoder is None else PortableEncoder.of(self.side_encoder)
        settings = replace(self.settings, latency=None, latency_file=None, latency_bound=None)
        return _EmbedderElsewhere, (PortableEncoder.of(self.encoder), side, self.target, settings, self.form)

    def __call__(self, batch: ItemBatch) -> Paid:
        """Embed a batch, see `embed`, and report the amount billed; function and result pickle."""
        with metered(self.rest) as call:
            embedded = self.embed(batch)
        return Paid(replace(embedded, batch=replace(batch, inputs=[], side_inputs=[])), call.bill)

    def embed(self, batch: ItemBatch) -> Embedded:
        """Embed a batch, as far as the money of the call allows where tries are billed again.

        Raises:
            EncoderFailed: The encoder hangs, or fails on every part of the batch.
            InvalidInput: The encoder gave NaN or infinite values; ids are named. The encoder gave vectors of another
                number, length or type; ids are named.
        """
        attempt = _Attempt(self, batch)
        delays = backoff(self.settings.retries, random.Random())
        try:
            try:
                with_retries(lambda: attempt.encode(attempt.usable), delays, self.rest)
            except Exception as error:
                if not may_pass(error):
                    raise
                attempt.take_apart(attempt.usable, error)
        except EncoderFailed as error:
            if not error.unaffordable:
                raise
        return attempt.result()

    def embed_once(self, batch: ItemBatch) -> Embedded:
        """Embed a batch by one call of the encoder; one more where it reports sources that it cannot read.

        Vectors with NaN or infinite values are failures of their items: the search itself does not validate them.

        Raises:
            Exception: Whatever the encoder raises.
        """
        attempt = _Attempt(self, batch)
        attempt.encode(attempt.usable, refuse_broken=False)
        return attempt.result()


def embedder_of(
    context: UpgradeContext, settings: RunSettings, rest: Callable[[float], None] = lambda _: None
) -> Embedder:
    """The embedder of an upgrade's target.

    Raises:
        UpgradeError: The target version has no encoder.
    """
    catalog, target = context.catalog, context.run.target
    encoder, side_encoder = require_encoder(catalog, target), catalog.side_encoder(target)
    form = VectorForm.of(context.target_record)
    return Embedder(encoder, target, settings, rest, side_encoder=side_encoder, form=form)


def require_encoder(catalog: Catalog, target: str) -> Encoder:
    """The encoder of a version.

    Raises:
        UpgradeError: It has none here.
    """
    encoder = catalog.encoder(target)
    if encoder is None:
        found = "none: its vectors come from outside"
        fix = f"Give its model, or Precomputed vectors: {next_step.encoder(target)}; or upgrade without a backfill."
        raise UpgradeError(f"embed items in {target}", expected=f"an encoder for {target}", found=found, fix=fix)
    return encoder


@dataclass(frozen=True)
class _EmbedderElsewhere:
    """An embedder that was sent to another process, where its models are loaded with the first batch.

    It does not see requests to stop, so it waits for retries as they come.
    """

    encoder: PortableEncoder
    side_encoder: PortableEncoder | None
    target: str
    settings: RunSettings
    form: VectorForm

    @cached_property
    def embedder(self) -> Embedder:
        side = None if self.side_encoder is None else self.side_encoder.build()
        encoder = self.encoder.build()
        return Embedder(encoder, self.target, self.settings, time.sleep, side_encoder=side, form=self.form)

    def __call__(self, batch: ItemBatch) -> Paid:
        return self.embedder(batch)


class _Part(NamedTuple):
    """A part of a batch that went through the encoders."""

    rows: RowNumbers
    vectors: FloatArray
    side: FloatArray | None


class _Attempt:
    """One batch on its way through the encoder, whole or in parts."""

    def __init__(self, embedder: Embedder, batch: ItemBatch) -> None:
        self._embedder, self._batch = embedder, batch
        self.usable = [i for i, value in enumerate(batch.inputs) if value is not None]
        self._parts: list[_Part] = []
        self._failures = {i: NO_SOURCE for i, value in enumerate(batch.inputs) if value is None}
        self._seconds = 0.0

    def encode(self, part: Sequence[int], *, refuse_broken: bool = True) -> None:
        """Send some items through the encoder; they succeed, fail one by one, or the call raises."""
        if not part:
            return
        call, started = meter(), time.monotonic()
        rested = call.waited
        inputs = [self._batch.inputs[i] for i in part]
        encoder, limit = self._embedder.encoder, self._embedder.settings.encoder_timeout
        if call.bill.cost and isinstance(encoder, Metered) and not call.may_pay(encoder.expected_bill(inputs)):
            raise EncoderFailed(
                self._operation(part),
                expected="money for another try",
                found="charges for failed tries",
                fix="Allow more money.",
                unaffordable=True,
            )
        try:
            encoded = within(limit, lambda: self._embedder.form.keep(encode_readable(encoder, inputs)))
            rows = np.asarray(part, np.int64)[encoded.readable]
            side = within(limit, lambda: self._side(rows))
            for model, fingerprint in self._embedder.models:
                require_same_model(model, fingerprint)
        except Hangs:
            raise EncoderFailed(
                self._operation(part),
                expected=f"an answer of the encoder within {limit:g} s",
                found="none; its call cannot be ended and goes on until this process does",
                fix="Nothing of this batch is stored. Mend the encoder, or allow more: "
                f"{next_step.option('encoder_timeout', within='RunSettings')}; {next_step.same()} goes on from here.",
            ) from None
        except InvalidInput as error:
            raise InvalidInput(
                self._operation(part), expected=error.expected, found=error.found, fix=error.fix or _mend()
            ) from error
        broken = [self._batch.ids[part[i]] for i, reason in encoded.failures.items() if reason == NOT_FINITE]
        if broken and refuse_broken:
            found = f"NaN or infinite values for {first_offenders(broken)}"
            raise InvalidInput(self._operation(part), expected="finite vectors", found=found, fix=_mend())
        self._seconds += max(time.monotonic() - started - (call.waited - rested), 0.0)
        self._failures |= {part[i]: reason for i, reason in encoded.failures.items()}
        self._parts.append(_Part(rows, encoded.vectors, side))

    def take_apart(self, whole: Sequence[int], error: Exception) -> None:
        """Bisect the batch down to a single failing item.

        Halves take every second item: neighbours in the order are alike, and a cluster of bad ones is spread.
        """
        waiting, barren = _halves(whole), 0
        if not waiting:
            self._failures[whole[0]] = _reason(error)
        while waiting:
            part = waiting.pop()
            try:
                self.encode(part)
            except Exception as failure:
                if not may_pass(failure):
                    raise
                barren += 1
                if barren >= BARREN_PARTS and not self._parts:
                    found = f"{_reason(failure)}, for the batch and for {BARREN_PARTS} parts of it"
                    raise EncoderFailed(
                        self._operation(whole), expected="an encoder that embeds some of them", found=found, fix=_mend()
                    ) from failure
                if len(part) == 1:
                    self._failures[part[0]] = _reason(failure)
                waiting += _halves(part)

    def result(self) -> Embedded:
        """The result of the batch."""
        encoder, side_encoder = self._embedder.encoder, self._embedder.side_encoder
        side = None
        if side_encoder is not None:
            side = _stacked([part.side for part in self._parts if part.side is not None], side_encoder.dim)
        return Embedded(
            batch=self._batch,
            rows=np.concatenate([np.zeros(0, np.int64), *(part.rows for part in self._parts)]),
            vectors=_stacked([part.vectors for part in self._parts], encoder.dim),
            failures=self._failures,
            seconds=self._seconds,
            side=side,
        )

    def _side(self, rows: RowNumbers) -> FloatArray | None:
        """Side-information of some items: (k, side_dim) float32, NaN where there is none to be had."""
        encoder = self._embedder.side_encoder
        if encoder is None:
            return None
        side: FloatArray = np.full((len(rows), encoder.dim), np.nan, np.float32)
        inputs = {i: self._batch.side_inputs[row] for i, row in enumerate(rows)}
        usable = [i for i, value in inputs.items() if value is not None]
        encoded = encode_readable(encoder, [inputs[i] for i in usable])
        side[np.asarray(usable, np.int64)[encoded.readable]] = encoded.vectors
        return side

    def _operation(self, part: Sequence[int]) -> str:
        ids = first_offenders([self._batch.ids[i] for i in part])
        return f"embed {len(part)} items in {self._embedder.target}: {ids}"


def _mend() -> str:
    return f"Nothing of this batch is stored. Mend the encoder; {next_step.same()} goes on from here."


def _stacked(parts: list[FloatArray], dim: int) -> FloatArray:
    return np.concatenate([np.zeros((0, dim), np.float32), *parts])


def _halves(part: Sequence[int]) -> list[Sequence[int]]:
    return [part[1::2], part[0::2]] if len(part) > 1 else []


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
