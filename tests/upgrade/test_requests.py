"""What a call asks of an upgrade: typed requests, kept by the run."""

from __future__ import annotations

import dataclasses

import pytest

import compatstore as cs
from compatstore.errors import InvalidInput
from compatstore.storage.records import RunRecord

RUN = RunRecord(
    target="v2",
    source="v1",
    previous="v1",
    path=(),
    state="expand",
    backfill=0.0,
    policy="random",
    seed=0,
    started_at="2026-01-01T00:00:00+00:00",
)


@pytest.mark.parametrize("request_type", [cs.Backfill, cs.Gates, cs.RunSettings])
def test_requests_are_frozen_and_name_their_fields(request_type):
    assert request_type.__dataclass_params__.frozen
    assert all(field.kw_only for field in dataclasses.fields(request_type))


def test_what_a_call_does_not_name_stays_as_the_run_has_it():
    first = cs.Backfill(share=0.25, order="sigma", seed=7, write_mode="move_rows").applied_to(RUN)
    assert (first.backfill, first.policy, first.seed, first.write_mode) == (0.25, "sigma", 7, "move_rows")
    assert cs.Backfill().applied_to(first) == first
    assert cs.Backfill(max_rows=5).applied_to(first) == dataclasses.replace(first, backfill=1.0, max_rows=5)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: cs.Backfill(share=2.0), "found 2.0. Name a share, Backfill(share=0.3)"),
        (lambda: cs.Backfill(share="much"), "share: a number"),
        (lambda: cs.Backfill(write_mode="rows"), "'auto' or 'move_rows' or 'rewrite_columns'"),
        (lambda: cs.Backfill(order=3), "order: a text"),
        (lambda: cs.Gates(require="map>=0.5"), "require: a list or tuple"),
        (lambda: cs.Gates(criterion="recall"), "criterion: 'map' or 'cmc@1'"),
        (lambda: cs.RunSettings(precision="float8"), "'auto' or 'float32' or 'bfloat16'"),
        (lambda: cs.RunSettings(batch_rows=0), "batch_rows > 0"),
        (lambda: cs.RunSettings(engine="spark"), "'local' or 'ray'"),
        (lambda: cs.RunSettings(address="auto"), "the engine ray beside address"),
        (lambda: cs.RunSettings(num_gpus=0.5), "the engine ray beside num_gpus"),
        (lambda: cs.RunSettings(engine="ray", encoders=0), "encoders >= 1"),
        (lambda: cs.RunSettings(engine="ray", num_gpus=-1.0), "num_gpus >= 0"),
        (lambda: cs.RunSettings(engine="ray", num_gpus=float("nan")), "num_gpus that is a number"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_when_it_is_made(make, said):
    with pytest.raises(InvalidInput) as raised:
        make()
    assert said in str(raised.value)
