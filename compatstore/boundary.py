"""Validation at the boundary: arguments of the public API against the types that its signatures declare.

`checked` wraps a function or a class of verbs, `checked_fields` a dataclass of settings. A value of
another type is refused there with one error, before any code of ours works with it; NumPy's scalars become Python's.
Calls within a public function are not checked again, except within `from_outside`.
Nothing is turned into another error, and a `CompatStoreError` leaves without the frames of this package. Values whose
types a signature leaves open (`Any`, arrays, items) are checked on conversion to arrays, within `foreign` if another
library converts them.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, wraps
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np
import numpy.typing as npt

from compatstore.errors import CompatStoreError, InvalidInput, meant
from compatstore.tracebacks import cut

Checker = Callable[[Any], Any]
Checked = TypeVar("Checked", bound=Callable[..., Any])
Made = TypeVar("Made", bound=type)
Record = TypeVar("Record")
_BARE = "__compatstore_bare__"
_NO_NUMBERS = (bool, np.bool_, np.timedelta64)  # accepted as numbers by Python or NumPy, refused here
LONGEST = 120  # characters of a value in a message
MOST_ITEMS = 10_000_000


_inside = ContextVar("inside a public function", default=False)


@contextmanager
def _marked(*, inside: bool) -> Iterator[None]:
    token = _inside.set(inside)
    try:
        yield
    finally:
        _inside.reset(token)


def from_outside() -> AbstractContextManager[None]:
    """Check objects made within, also inside a public function: a file or a table may hold anything."""
    return _marked(inside=False)


class Unfit(Exception):  # noqa: N818  (a signal from a checker, never seen by users)
    """A value is of another type; the message is the type that was expected."""


class Malformed(Unfit, ValueError):  # noqa: N818  (a signal to the reader of a document)
    """A document is malformed; its reader names the document and the fix."""


def checked(public: Checked) -> Checked:
    """Check the arguments of a function, or of all public methods of a class, by their annotations."""
    if isinstance(public, type):
        made = "" if "__dataclass_fields__" in vars(public) else "__init__"  # `checked_fields` checks a dataclass
        for name, member in list(vars(public).items()):
            if (name.startswith("_") and name != made) or takes_no_wrapper(member):
                continue
            if isinstance(member, classmethod | staticmethod):
                setattr(public, name, type(member)(_checked(member.__func__)))
            elif inspect.isfunction(member):
                setattr(public, name, _checked(member))
        return public
    return _checked(public)  # type: ignore[return-value]


def bare(method: Checked) -> Checked:
    """Leave a public method without wrappers, which take some microseconds; it checks its arguments itself."""
    setattr(method, _BARE, True)
    return method


def takes_no_wrapper(member: Any) -> bool:
    """True if a member of a class of verbs is `bare`."""
    return hasattr(member, _BARE)


def fitted(method: Callable[..., Any], **values: Any) -> list[Any]:
    """Check arguments of a method that checks itself against its annotations.

    Raises:
        InvalidInput: One is of another type.
    """
    method = inspect.unwrap(method)
    checkers, operation = _checkers(method), f"call {method.__qualname__}"
    return [_fit(value, checkers[name], name, operation) for name, value in values.items()]


def _otherwise(made: type) -> str:
    """The fix for a class that is made by its public class methods."""
    members = [each for base in made.__mro__ for each in vars(base).items()]
    made_by = [name for name, member in members if isinstance(member, classmethod) and name[0] != "_"]
    return f"Another way to make one: {' or '.join(f'{made.__name__}.{name}' for name in made_by)}." if made_by else ""


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)
    operation, makes = f"call {function.__qualname__}", function.__name__ == "__init__"

    kinds = {parameter.kind for parameter in signature.parameters.values()}
    takes_any = bool(kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if _inside.get():
            return function(*args, **options)
        if not takes_any:
            _require_known(options, function, signature)
        try:
            bound = signature.bind(*args, **options)
        except TypeError:  # the error of the call itself names the missing argument
            return function(*args, **options)
        try:
            made = type(args[0]) if makes and args else None
            for name, checker in _checkers(function).items():
                if name in bound.arguments:
                    bound.arguments[name] = _fit(bound.arguments[name], checker, name, operation, made)
            with _marked(inside=True):
                return function(*bound.args, **bound.kwargs)
        except CompatStoreError as error:
            cut(error)
            raise

    return call


def checked_fields(settings: Made) -> Made:
    """Check the fields of a frozen dataclass, see `require_fields`, before its own `__post_init__`.

    Arguments that it has no fields for are refused with the field that was meant; its errors begin here.
    """
    make, own = settings.__init__, getattr(settings, "__post_init__", None)  # type: ignore[misc]
    signature = inspect.signature(make)

    def complete(self: Any) -> None:
        require_fields(self)
        if own is not None:
            own(self)

    settings.__post_init__ = complete  # type: ignore[attr-defined]

    @wraps(make)
    def call(self: Any, *args: Any, **options: Any) -> None:
        if _inside.get():
            make(self, *args, **options)
            return
        _require_known(options, make, signature)
        try:
            make(self, *args, **options)
            if own is None:  # `dataclass` made an `__init__` that calls none
                complete(self)
        except CompatStoreError as error:
            cut(error)
            raise

    settings.__init__ = call  # type: ignore[misc]
    return settings


# Arguments of other libraries -> ours.
_ELSEWHERE = {
    **dict.fromkeys(("top_k", "limit", "n_results", "n", "num_results"), "k"),
    **dict.fromkeys(("filter", "filters", "query_filter"), "where"),
    **dict.fromkeys(("alpha", "alphas", "lambda_", "reg", "penalty", "regularization"), "penalties"),
    **dict.fromkeys(("lr",), "learning_rate"),
    **dict.fromkeys(("dimension", "dimensions", "dims", "ndim", "size", "embedding_dim"), "dim"),
    **dict.fromkeys(("distance", "distance_type", "similarity", "space"), "metric"),
    **dict.fromkeys(("fraction", "ratio", "percent", "percentage", "backfill"), "share"),
    **dict.fromkeys(("budget", "limit", "rows"), "max_rows"),
}


def _require_known(options: Mapping[str, Any], function: Callable[..., Any], signature: inspect.Signature) -> None:
    """Refuse arguments that a function does not have.

    Raises:
        TypeError: There is one.
    """
    unknown = next((name for name in options if name not in signature.parameters), None)
    if unknown is not None:
        names = [known for known in signature.parameters if known != "self"]
        call = function.__qualname__.removesuffix(".__init__")
        elsewhere = _ELSEWHERE.get(unknown)
        near = f"Did you mean {elsewhere!r}? " if elsewhere in names else meant(unknown, names)
        hint = f"{near}It takes {', '.join(names) or 'none'}."
        raise TypeError(f"{call}() got an unexpected keyword argument {unknown!r}. {hint}")


@dataclass(frozen=True)
class Rule:
    """Condition on a field unless it is None, as a part of its type: `Annotated[int, Rule(">= 1", ...)]`.

    Args:
        text: The expected state, after the name of the field: ">= 1".
        holds: Returns True if a value fulfils the rule.
    """

    text: str
    holds: Callable[[Any], bool]


def require_fields(settings: Any, rules: Mapping[str, bool] | None = None) -> None:
    """Check the fields of a frozen dataclass by their annotations; `checked_fields` does, without `rules`.

    Args:
        settings: The dataclass.
        rules: Conditions on several fields, True if fulfilled: {"extra < dim": False}. Each rule
            begins with the name of the field to report.

    Raises:
        InvalidInput: A field is of another type, or no number at all; or fields break rules: names all of these.
    """
    if _inside.get():
        return
    kind, broken = type(settings), dict[str, str]()
    for name, (checker, of_field) in _fields(kind).items():  # type: ignore[arg-type]
        value = getattr(settings, name)
        fitted = _fit(value, checker, name, f"make {kind.__name__}")
        if isinstance(fitted, float) and fitted != fitted:
            raise InvalidInput(f"make {kind.__name__}", expected=f"{name} that is a number", found="nan")
        if fitted is not value:
            object.__setattr__(settings, name, fitted)
        for rule in of_field:
            if fitted is not None and not rule.holds(fitted):
                broken[name] = rule.text
    broken |= dict(rule.split(maxsplit=1) for rule, holds in (rules or {}).items() if not holds)
    if broken:
        raise InvalidInput(
            f"set up {kind.__name__}",
            expected=", ".join(f"{name} {text}" for name, text in broken.items()),
            found=", ".join(f"{name}={shown(getattr(settings, name))}" for name in broken),
        )


def require_all(operation: str, *rules: tuple[bool, str, object]) -> None:
    """Refuse the first rule that does not hold, (True if it holds, what is expected, what was found).

    Raises:
        InvalidInput: One does not.
    """
    for holds, expected, found in rules:
        if not holds:
            raise InvalidInput(operation, expected=expected, found=f"{found}")


def read_record(kind: type[Record], values: Any, name: str, made: Mapping[str, Any] | None = None) -> Record:
    """Make a dataclass of a JSON object, and of the objects within it.

    Args:
        kind: A dataclass whose fields are text, numbers, truth values, `None`, `Literal`s, dataclasses, tuples and
            mappings of these, or one of several of these.
        values: The object.
        name: Of the object, for messages.
        made: Fields that are no JSON any more, by their names; of any type.

    Raises:
        Malformed: A field is missing, unknown or of another type, or the dataclass refuses its values.
    """
    if not isinstance(values, dict):
        raise Malformed(f"{name} is {shown(values)}, not an object")
    known, fitted = _fields(kind, of_json=True), dict(made or {})  # type: ignore[arg-type]
    for key in values.keys() - fitted.keys():
        if key not in known:
            raise Malformed(f"{name} has the unknown field {shown(key)}")
        try:
            fitted[key] = known[key][0](values[key])
        except Unfit as unfit:
            raise Malformed(f"{name}.{key} is {shown(values[key])}, not {unfit}") from None
    try:
        with from_outside():
            return kind(**fitted)
    except (TypeError, ValueError) as error:  # a field is missing, or the dataclass refuses a value
        raise Malformed(f"{name}: {error}") from error


@contextmanager
def foreign(operation: str, expected: str) -> Iterator[None]:
    """Re-raise errors of another library that reads a caller's value as InvalidInput.

    Only the call of that library belongs inside, no code of ours.

    Raises:
        InvalidInput: It could not.
    """
    try:
        yield
    except CompatStoreError:
        raise
    except Exception as error:
        raise InvalidInput(operation, expected=expected, found=_one_line(error)) from error


def array_of(values: Any, operation: str, name: str, *, ndim: int | None = None, dtype: Any = None) -> npt.NDArray[Any]:
    """Read an array.

    Args:
        values: Convertible by NumPy; without masked values, because NumPy would take the values behind the mask.
        operation: The caller's operation, for messages.
        name: Of the array, for messages.
        ndim: Dimensions that it must have, or None for one or more.
        dtype: Type that it is converted to, or None.

    Raises:
        InvalidInput: It is none, or holds masked values. It has other dimensions.
    """
    refuse_masked(values, operation)
    with foreign(operation, f"{name} that are an array"):
        array = np.asarray(values, dtype)
    if array.ndim != ndim and (ndim is not None or not array.ndim):
        expected = f"{name} of {'one dimension or more' if ndim is None else f'{ndim} dimensions'}"
        raise InvalidInput(operation, expected=expected, found=f"shape {array.shape}")
    return array


def refuse_masked(values: Any, operation: str) -> None:
    """Refuse an array with masked values.

    Raises:
        InvalidInput: It has some.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InvalidInput(operation, expected="an array without masked values", found=f"{values.mask.sum()} masked")


def shown(value: Any) -> str:
    """A value for a message: short, in ASCII, even if its own `repr` fails."""
    try:
        text = ascii(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _one_line(error: Exception) -> str:
    try:
        text = " ".join(str(error).split()).encode("ascii", "backslashreplace").decode()
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _fit(value: Any, checker: Checker, name: str, operation: str, made: type | None = None) -> Any:
    try:
        return checker(value)
    except Unfit as unfit:
        fix = "" if made is None else _otherwise(made)
        if inspect.isroutine(value) and "Encoder" in f"{unfit}":
            fix = "An encoder of a function: encoders.Function(function, dim, fingerprint=...)."
        raise InvalidInput(operation, expected=f"{name}: {unfit}", found=shown(value), fix=fix) from None


@cache
def _checkers(function: Callable[..., Any]) -> dict[str, Checker]:
    found, scope = {}, inspect.unwrap(function).__globals__
    for name, parameter in inspect.signature(function).parameters.items():
        bare = parameter.annotation is parameter.empty
        checker = None if bare else _checker(_resolved(parameter.annotation, scope))
        if checker is not None and parameter.kind is parameter.VAR_POSITIONAL:
            checker = _items_of(checker, tuple)
        if checker is not None:
            found[name] = checker
    return found


@cache
def _fields(kind: type, *, of_json: bool = False) -> dict[str, tuple[Checker, tuple[Rule, ...]]]:
    """The checker of each field of a dataclass, and the rules in its type."""
    homes = {name: base for base in reversed(kind.__mro__) for name in vars(base).get("__annotations__", {})}
    found = {}
    for field in dataclasses.fields(kind):
        hint = _resolved(field.type, vars(inspect.getmodule(homes[field.name])))
        found[field.name] = _checker(hint, of_json=of_json) or _any, tuple(_rules(hint))
    return found


def _rules(hint: Any) -> Iterator[Rule]:
    """Rules of a type that is `Annotated`, alone or beside others."""
    if get_origin(hint) is Annotated:
        yield from (part for part in get_args(hint) if isinstance(part, Rule))
    elif get_origin(hint) in (Union, types.UnionType):
        for part in get_args(hint):
            yield from _rules(part)


def _resolved(annotation: Any, scope: Mapping[str, Any]) -> Any:
    """An annotation as a type; Any for one of a library that is not loaded, as torch's are while nothing needs it."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, dict(scope))
    except NameError:
        return Any


def _checker(hint: Any, *, of_json: bool = False) -> Checker | None:
    """The checker of a type's values; None for types that are open, or that the reader of the value checks.

    Args:
        hint: The type.
        of_json: Make a dataclass of its mapping in JSON.
    """
    if hint is None or hint in _PLAIN:
        return _PLAIN[hint or types.NoneType]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _choice_of(arguments)
    if origin is Callable:
        return _where("a function", callable)
    if origin is Sequence and arguments[0] is Any:
        return _sequence
    parts = [_checker(argument, of_json=of_json) for argument in arguments if argument is not Ellipsis]
    if origin is Annotated:
        return parts[0]
    if origin in (Union, types.UnionType):
        return _any_of(parts, arguments)
    if origin is tuple and arguments[1:] != (Ellipsis,):
        return _record_of(parts)
    if origin in (tuple, list, Sequence):
        return _items_of(parts[0], tuple if origin is tuple else list)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_of(parts[0], parts[1])
    kind = origin or hint
    if not isinstance(kind, type) or kind in (Any, object, np.ndarray):
        return None
    if of_json and dataclasses.is_dataclass(kind):
        return lambda value: read_record(kind, value, kind.__name__)
    return _instance_of(kind)


def _choice_of(choices: Sequence[Any]) -> Checker:
    kinds = tuple({type(choice) for choice in choices})
    return _where(" or ".join(map(repr, choices)), lambda value: isinstance(value, kinds) and value in choices)


def _where(expected: str, holds: Callable[[Any], bool]) -> Checker:
    """The checker of values that fulfil a condition."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise Unfit(expected)
        return value

    return check


def _any(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit("a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit("a text without half characters") from None
    return value


def _whole(value: Any) -> int:
    if type(value) is int and 0 <= value < 2**63:  # nearly every one: a search of a cache takes 0.1 ms
        return value
    if isinstance(value, _NO_NUMBERS) or not isinstance(value, int | np.integer):
        raise Unfit("a whole number")
    if not -(2**63) <= int(value) < 2**64:  # a seed may be unsigned
        raise Unfit("a whole number of 64 bits")
    return int(value) if isinstance(value, np.integer) else value


def _number(value: Any) -> float:
    if isinstance(value, _NO_NUMBERS) or not isinstance(value, int | float | np.integer | np.floating):
        raise Unfit("a number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Unfit("a number of 64 bits")
    return value.item() if isinstance(value, np.generic) else value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise Unfit("True or False")
    return bool(value)


def _any_of(checkers: Sequence[Checker | None], hints: Sequence[Any]) -> Checker | None:
    """The checker of a union; its paths hold no NUL."""
    closed = [checker for checker in dict.fromkeys(checkers) if checker is not None]
    arrays = any(str(getattr(get_origin(hint) or hint, "__module__", "")).startswith("numpy") for hint in hints)
    if arrays or None in checkers:
        return None
    kinds = [get_origin(hint) or hint for hint in hints]
    paths = any(isinstance(kind, type) and issubclass(kind, os.PathLike) for kind in kinds)

    def check(value: Any) -> Any:
        expected = []
        for checker in closed:
            try:
                fitted = checker(value)
            except Unfit as unfit:
                expected.append(str(unfit))
                continue
            if paths and isinstance(fitted, str | os.PathLike) and "\0" in str(fitted):
                raise Unfit("a path without NUL")
            return fitted
        raise Unfit(" or ".join(expected))

    return check


def _items_of(checker: Checker | None, kind: type) -> Checker:
    def check(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = value.tolist()
        if not isinstance(value, list | tuple | range):
            raise Unfit("a list or tuple")
        if len(value) > MOST_ITEMS:
            raise Unfit(f"{MOST_ITEMS} items at most")
        if checker is None:
            return value if isinstance(value, kind) else kind(value)
        try:
            return kind(checker(item) for item in value)
        except Unfit as unfit:
            raise Unfit(f"a list or tuple, each item {unfit}") from None

    return check


def _sequence(value: Any) -> Any:
    """Anything that is counted and indexed by numbers: a list, an array of any library."""
    kind = type(value)
    if isinstance(value, str | bytes | Mapping) or not (hasattr(kind, "__len__") and hasattr(kind, "__getitem__")):
        raise Unfit("a list, tuple or array")
    if hasattr(kind, "ndim") and not value.ndim:  # an array of any library
        raise Unfit("a list, tuple or array of one dimension or more")
    if isinstance(value, range) and len(value) > MOST_ITEMS:  # a list of its items would fill the memory
        raise Unfit(f"a range of {MOST_ITEMS} items at most")
    return value


def _record_of(checkers: Sequence[Checker | None]) -> Checker:
    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(checkers):
            raise Unfit(f"{len(checkers)} values")
        pairs = zip(value, checkers, strict=True)
        return tuple(item if checker is None else checker(item) for item, checker in pairs)

    return check


def _mapping_of(keys: Checker | None, values: Checker | None) -> Checker:
    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Unfit("a mapping")
        found = {}
        for key, item in value.items():
            fitted = []
            for checker, part, name in ((keys, key, "key"), (values, item, "value")):
                try:
                    fitted.append(part if checker is None else checker(part))
                except Unfit as unfit:
                    raise Unfit(f"a mapping, each {name} {unfit}") from None
            found[fitted[0]] = fitted[1]
        return found

    return check


def _instance_of(kind: type) -> Checker:
    expected = f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
    if not getattr(kind, "_is_protocol", False):
        return _where(expected, lambda value: isinstance(value, kind) and not isinstance(value, type))
    parts = {**vars(kind), **vars(kind).get("__annotations__", {})}
    needed = [name for name in parts if not name.startswith("_")]
    return _where(expected, lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in needed))


_PLAIN: dict[Any, Checker] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _truth,
    types.NoneType: _where("None", lambda value: value is None),
}
