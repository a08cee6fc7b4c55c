"""Arguments that do not exist: a public dataclass says what it takes, and which one is meant."""

from __future__ import annotations

import dataclasses
import re

import pytest

import compatstore as cs
from compatstore import trainers
from compatstore.trainers import Ridge


def settings_of(places):
    """Public dataclasses that check what they are made of, by name."""
    found = {name: getattr(place, name) for place in places for name in place.__all__}
    kinds = {name: kind for name, kind in found.items() if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
    return {name: kind for name, kind in kinds.items() if hasattr(kind, "__post_init__")}


def silent_on_arguments(kinds):
    """Dataclasses that do not say what they take where an argument is unknown."""
    for name, kind in kinds.items():
        try:
            kind(no_such=1)
        except TypeError as error:
            if not re.match(rf"{kind.__name__}\(\) got an unexpected .* 'no_such'\. It takes ", str(error)):
                yield f"{name}: {error}"
        else:
            yield f"{name} takes it"


def test_every_public_dataclass_says_what_it_takes():
    kinds = settings_of((cs, cs.encoders, cs.evaluation, trainers))
    assert len(kinds) > 50
    assert list(silent_on_arguments(kinds)) == []


@dataclasses.dataclass
class Silent:
    seed: int = 0


def test_a_dataclass_that_is_silent_is_an_offender():
    (found,) = silent_on_arguments({"Silent": Silent})
    assert found.startswith("Silent: ")


@pytest.mark.parametrize(
    ("make", "meant"),
    [
        (lambda: Ridge(penalty=1), "penalties"),
        (lambda: cs.EmbeddingVersion("v1", dim=3, normalized=True), "normalised"),
        (lambda: cs.Gates(criteria="map"), "criterion"),
        (lambda: cs.RunSettings(retry=3), "retries"),
        (lambda: cs.SearchSettings(nprobe=3), "nprobes"),
    ],
)
def test_an_argument_of_another_name_names_the_field_that_is_meant(make, meant):
    with pytest.raises(TypeError, match=rf"Did you mean '{meant}'\? It takes .*{meant}"):
        make()
