"""What packages export and how it is declared: names, signatures, docstrings of settings, and the lists of packages."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

from lint.tree import ROOT, Source, assert_none, planted, read_packages

MOST_PARAMETERS = 10
MOST_LEVELS = 3  # of classes of trainers that extend each other
LINKS = ("trainers", "cli")  # folders that are packages of `compatstore` by a link


def wrong_names(place):
    """Names of `__all__` that are missing or not offered by `dir`."""
    yield from (f"{place.__name__}: no {name}" for name in place.__all__ if getattr(place, name, None) is None)
    yield from (f"{place.__name__}: {name} in dir or __all__ alone" for name in {*place.__all__} ^ {*dir(place)})


def wrong_homes(place):
    """Lazy exports that are not what their home defines under that name."""
    yield from (f"{name}: a home or an export alone" for name in {*place.__all__} ^ place._HOMES.keys())
    for name, home in place._HOMES.items():
        value = getattr(place, name, None)
        if (getattr(value, "__name__", None), getattr(value, "__module__", None)) != (name, home):
            yield f"{place.__name__}.{name} is not {home}.{name}"


def undocumented(place):
    """Exports without a docstring."""
    return [f"{place.__name__}.{name}" for name in place.__all__ if not getattr(place, name).__doc__]


def verbs(gallery):
    """Public functions of a class, by name, those of the class itself included."""
    members = [(name, getattr(member, "__func__", member)) for name, member in inspect.getmembers_static(gallery)]
    return {name: member for name, member in members if not name.startswith("_") and inspect.isfunction(member)}


def many_parameters(functions):
    """Functions with more parameters than a reader keeps in mind."""
    for name, function in functions.items():
        parameters = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
        if len(parameters) > MOST_PARAMETERS:
            yield f"{name}: {len(parameters)} parameters"


def classes_of(sources, package):
    """The classes that a package's modules define, all of them imported."""
    modules = [importlib.import_module(each.name) for each in sources if f"{each.name}.".startswith(f"{package}.")]
    kinds = {kind for module in modules for kind in vars(module).values() if inspect.isclass(kind)}
    return {kind for kind in kinds if f"{kind.__module__}.".startswith(f"{package}.")}


def trainers_of(kinds):
    """Classes that can be fitted."""
    fitted = {kind for kind in kinds if hasattr(kind, "fit") and not inspect.isabstract(kind)}
    return {kind for kind in fitted if not getattr(kind, "_is_protocol", False)}


def undescribed_settings(kinds):
    """Fields of settings of which no docstring says anything."""
    from compatstore.cli.settings import descriptions

    for kind in kinds:
        missing = {field.name for field in dataclasses.fields(kind)} - descriptions(kind).keys()
        yield from (f"{kind.__name__}.{name}" for name in sorted(missing))


def levels(kind, package):
    """Longest chain of classes of a package from a class up."""
    own = [base for base in kind.__bases__ if base.__module__.startswith(package)]
    return 1 + max((levels(base, package) for base in own), default=0)


def deep_classes(kinds, package):
    """Classes that extend each other too often."""
    return [kind.__name__ for kind in kinds if levels(kind, package) > MOST_LEVELS]


def scattered_settings(kind):
    """Settings of a class that are neither its own nor listed in its docstring."""
    listed = re.findall(r"`(\w+)`", (inspect.getdoc(kind) or "").partition("Args:")[0])
    return sorted({field.name for field in dataclasses.fields(kind)} - {*listed, *kind.__annotations__})


def unlisted_packages(listed, sources):
    """Packages that the project's metadata lacks or has in vain."""
    there = {each.name for each in sources if Path(each.place).name == "__init__.py"}
    return [f"{name}: listed or there alone" for name in sorted({*listed} ^ there)]


def missing_links(root, names):
    """Folders that the package reaches by no link."""
    links = {name: root / "compatstore" / name for name in names}
    return [name for name, link in links.items() if not link.is_symlink() or link.resolve() != (root / name).resolve()]


def test_exported_names_exist_and_are_offered():
    import compatstore
    from compatstore import trainers

    assert sorted(compatstore.__all__) == compatstore.__all__
    assert_none(offender for place in (compatstore, trainers) for offender in wrong_names(place))
    assert_none(wrong_homes(trainers))


def test_every_exported_name_of_evaluation_is_documented():
    from compatstore import evaluation

    assert_none(undocumented(evaluation))


def test_every_trainer_is_exported():
    from compatstore import trainers

    names = {kind.__name__ for kind in trainers_of(classes_of(read_packages(), "compatstore.trainers"))}
    assert len(names) >= 27
    assert_none(sorted(names - {*trainers.__all__}))


def test_no_verb_of_a_gallery_has_many_parameters():
    from compatstore import Gallery
    from compatstore.gallery import Maintenance
    from compatstore.gallery.versions import Artifacts

    every = verbs(Gallery) | verbs(Maintenance) | verbs(Artifacts)
    assert len(every) > 30
    assert_none(many_parameters(every))


def test_every_setting_is_described():
    from compatstore import trainers

    exported = [getattr(trainers, name) for name in trainers.__all__]
    fitted = [kind for kind in exported if dataclasses.is_dataclass(kind) and hasattr(kind, "fit")]
    kinds = [kind for kind in fitted if hasattr(kind, "__post_init__")]
    assert len(kinds) > 25
    assert_none(undescribed_settings(kinds))


def test_classes_extend_each_other_at_most_twice():
    from compatstore.trainers import BCT, FastFill

    kinds = classes_of(read_packages(), "compatstore.trainers")
    assert {FastFill, BCT} < kinds
    assert_none(deep_classes(kinds, "compatstore.trainers"))


def test_all_settings_of_fastfill_stand_in_one_place():
    from compatstore.trainers import FastFill

    assert len(dataclasses.fields(FastFill)) == 22
    assert_none(scattered_settings(FastFill))


def test_every_package_is_listed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert_none(unlisted_packages(project["tool"]["setuptools"]["packages"], read_packages()))


def test_trainers_and_cli_are_one_tree_with_the_package():
    assert_none(missing_links(ROOT, LINKS))


class Planted:
    """A class that breaks the rules on names and signatures."""

    __name__ = "planted"
    __all__ = ("gone", "verb")
    _HOMES = {"verb": "another.home"}  # noqa: RUF012
    __dir__ = lambda self: ["verb"]  # noqa: E731

    def verb(self, a, b, c, d, e, f, g, h, i, j, k): ...

    def get(self): ...


@dataclasses.dataclass
class Settings:
    """Settings.

    Args:
        told: A field.
    """

    told: int = 0


@dataclasses.dataclass
class More(Settings):
    untold: int = 0


class Most(More): ...


class Deepest(Most):
    def fit(self): ...


def test_each_rule_finds_a_planted_offender(tmp_path):
    assert sorted(wrong_names(Planted())) == ["planted: gone in dir or __all__ alone", "planted: no gone"]
    assert sorted(wrong_homes(Planted())) == [
        "gone: a home or an export alone",
        "planted.verb is not another.home.verb",
    ]
    assert undocumented(SimpleNamespace(__name__="a", __all__=["b", "c"], b=Settings, c=Most)) == ["a.c"]
    assert list(many_parameters(verbs(Planted))) == ["verb: 11 parameters"]
    assert trainers_of({Settings, Deepest}) == {Deepest}
    assert classes_of([planted("", "lint.tree")], "lint.tree") >= {type(planted(""))}
    assert list(undescribed_settings([Settings, More])) == ["More.untold"]
    assert deep_classes([Most, Deepest], __name__) == ["Deepest"]
    assert scattered_settings(More) == ["told"]
    assert unlisted_packages(["b"], [Source("a/__init__.py", "", "a")]) == [
        "a: listed or there alone",
        "b: listed or there alone",
    ]
    (tmp_path / "cli").mkdir()
    assert missing_links(tmp_path, ["cli"]) == ["cli"]
