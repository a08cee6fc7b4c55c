"""Settings of all trainers: one check, with what is expected and found."""

from __future__ import annotations

import dataclasses

import pytest

from compatstore import trainers
from compatstore.boundary import require_fields
from compatstore.errors import InvalidInput

# What is expected of settings, a value that is refused, and the settings.
RANGES = [
    (
        ">= 1",
        0,
        "FCT.epochs FCT.mixer_width FCT.branch_width FastFill.branch_width FastFill.mixer_width Residual.width",
    ),
    (">= 1", 0, "RBT.paths RBT.bottleneck DriftAdapter.width DMUHead.width LCE.width LowRankAffine.rank Auto.k"),
    (">= 1", 0, "Auto.queries Independent.dim Independent.epochs SimCLR.steps"),
    ("> 0", 0.0, "FCT.learning_rate FastFill.scale FastFill.disc_weight BCT.own_weight UniBCT.temperature"),
    ("> 0", 0.0, "Independent.learning_rate RACT.temperature SimCLR.temperature"),
    (">= 0", -1.0, "FCT.weight_decay FCT.warmup_epochs Residual.noise Regression.weight FocalDistillation.beta"),
    (">= 0", -1.0, "LCEAlignment.boundary Alternate.mixup"),
    (">= 0", -1, "SimCLR.local_views SimCLR.projection"),
    ("from 0 to below 1", 1.0, "FCT.holdout FastFill.holdout MeanShift.holdout QueryAdapter.holdout"),
    ("from 0 to below 1", 1.0, "FastFill.label_smoothing Residual.dropout"),
    ("between 0 and 1", 0.0, "Auto.holdout Ridge.validation"),
    ("above 0 to 1", 0.0, "UniBCT.restart Augmentation.smallest_crop"),
    (">= 2", 1, "FCT.batch_size"),
    ("from 0 to 1.5708", 2.0, "FastFill.margin"),
    ("cpu, cuda or cuda:<n>", "abacus", "FCT.device"),
    ("from 0 to epochs", 99.0, "BCT.warmup_epochs Independent.warmup_epochs"),
    ("of one value or more, each >= 0", (-1.0,), "Ridge.penalties"),
    ("of one value or more, each >= 0", (), "Ridge.penalties"),
    ("of one value or more, each >= 1", (0,), "LowRankRidge.ranks"),
    ("of one value or more, each >= 1", (), "LowRankRidge.ranks"),
    ("of one value or more", (), "Auto.candidates"),
    (">= smallest_crop", 0.3, "Augmentation.largest_crop"),
]
CHOICES = "FCT.loss FastFill.loss FastFill.disc FastFill.head FastFill.precision FastFill.holdout_by Auto.by"
CHOICES += " Regression.distance Independent.head"


def set_up(setting, value):
    """A trainer with one setting, all others at their defaults, or four values where it has no default."""
    kind, name = setting.split(".")
    made = getattr(trainers, kind)
    required = {field.name: 4 for field in dataclasses.fields(made) if field.default is field.default_factory}
    return made(**{**required, name: value})


@pytest.mark.parametrize(
    ("expected", "value", "setting"),
    [(expected, value, setting) for expected, value, settings in RANGES for setting in settings.split()],
)
def test_a_setting_out_of_its_range_is_refused_with_what_is_expected_and_found(expected, value, setting):
    kind, name = setting.split(".")
    with pytest.raises(InvalidInput) as refused:
        set_up(setting, value)
    assert str(refused.value) == f"set up {kind}; expected {name} {expected}; found {name}={value!r}."


@pytest.mark.parametrize("setting", CHOICES.split())
def test_a_setting_that_is_none_of_its_choices_is_refused_with_all_of_them(setting):
    kind, name = setting.split(".")
    with pytest.raises(InvalidInput, match=rf"make {kind}; expected {name}: '.+' or '.+'.*; found 'font'"):
        set_up(setting, "font")


def test_all_settings_out_of_their_range_are_named():
    with pytest.raises(InvalidInput) as refused:
        trainers.FCT(epochs=0, holdout=1.0)
    told = "set up FCT; expected epochs >= 1, holdout from 0 to below 1; found epochs=0, holdout=1.0."
    assert str(refused.value) == told


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
