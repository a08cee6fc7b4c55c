"""Settings of all trainers: one check, with what is expected and found."""

from __future__ import annotations

import dataclasses

import pytest

from compatstore import trainers
from compatstore.boundary import require_fields
from compatstore.errors import InvalidInput


@pytest.mark.parametrize(
    ("kind", "settings", "expected", "found"),
    [
        ("FCT", {"epochs": 0, "holdout": 1.0}, "epochs >= 1, holdout from 0 to below 1", "epochs=0, holdout=1.0"),
        ("FCT", {"device": "gpu"}, "device cpu, cuda or cuda:<n>", "device='gpu'"),
        ("Ridge", {"penalties": (1.0, -1.0)}, "penalties of one value or more, each >= 0", "penalties=(1.0, -1.0)"),
        ("Auto", {"candidates": ()}, "candidates of one value or more", "candidates=()"),
        ("BCT", {"dim": 4, "warmup_epochs": 31.0}, "warmup_epochs from 0 to epochs", "warmup_epochs=31.0"),
        ("SimCLR", {"temperature": 0.0}, "temperature > 0", "temperature=0.0"),
        ("Augmentation", {"largest_crop": 0.3}, "largest_crop >= smallest_crop", "largest_crop=0.3"),
    ],
    ids=str,
)
def test_a_setting_out_of_its_range_is_refused_with_what_is_expected_and_found(kind, settings, expected, found):
    with pytest.raises(InvalidInput) as refused:
        getattr(trainers, kind)(**settings)
    assert str(refused.value) == f"set up {kind}; expected {expected}; found {found}."


def test_a_setting_of_another_type_is_refused_before_its_range_is_read():
    with pytest.raises(InvalidInput, match=r"make FCT; expected epochs: a whole number; found 'ten'"):
        trainers.FCT(epochs="ten")
    with pytest.raises(InvalidInput, match=r"make FCT; expected loss: 'l2' or 'kl' or 'reversed-kl'; found 'l3'"):
        trainers.FCT(loss="l3")


def test_none_has_no_range():
    assert trainers.FCT(warmup_epochs=None, device=None).warmup_epochs is None


def test_rules_on_several_fields_are_reported_by_the_first_that_they_name():
    @dataclasses.dataclass(frozen=True)
    class Window:
        low: int
        high: int

    require_fields(Window(1, 2), {"low <= high": True})
    with pytest.raises(InvalidInput, match="set up Window; expected low <= high; found low=3"):
        require_fields(Window(3, 2), {"low <= high": False})
