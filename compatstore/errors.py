"""Every error that compatstore raises on purpose.

CompatStoreError
├── InvalidInput (ValueError)            an argument cannot be used
├── NotFound (LookupError)               a gallery, version, artifact, item or file does not exist
├── AlreadyExists (ValueError)           the object to be made exists already
├── Incompatible (ValueError)            two things do not belong together
├── CorruptArtifact (ValueError)         a file is truncated, edited or of an unknown format
├── SourceError (OSError)                some sources cannot be read (lists which, and why)
├── StorageError (OSError)               the table, or a file, cannot be read or written
│   └── TableChanged                     columns of the gallery were dropped, renamed or replaced behind its back
├── UpgradeError (RuntimeError)          an upgrade cannot take that step now
│   ├── GateFailed                       the estimate is not significantly above a gate
│   ├── LeaseHeld                        another worker holds the lease (states which, since when, until when)
│   ├── LeaseLost                        another worker took the lease over while this process did not renew it
│   ├── EncoderFailed                    the encoder hangs, is refused, or embeds nothing at all
│   └── Interrupted                      a stop was requested; the same command goes on from here
└── MissingExtra (ImportError)           an optional dependency is not installed

CompatStoreWarning (UserWarning)         the operation is done, and its settings are a bad choice

Each message states the operation, the expected and the actual state, and the fix; the same operands are attributes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from compatstore import next_step
from compatstore.former import no_attribute


class CompatStoreWarning(UserWarning):
    """The operation is done, and its settings are a bad choice; the message gives the reason and a better choice."""


class CompatStoreError(Exception):
    """Root of the tree.

    Args:
        operation: The caller's operation, as a clause ("add 3 items to photos.lance").
        expected: The expected state.
        found: The actual state.
        fix: The next thing to do, a command if there is one.

    Examples:
        >>> error = cs.CompatStoreError("add 3 items", expected="128 values", found="64", fix="Resize them.")
        >>> print(error)
        add 3 items; expected 128 values; found 64. Resize them.
    """

    def __init__(self, operation: str, *, expected: str = "", found: str = "", fix: str = "") -> None:
        self.operation, self.expected, self.found, self.fix = operation, expected, found, fix
        parts = [operation]
        if expected:
            parts.append(f"expected {expected}")
        if found:
            parts.append(f"found {found}")
        message = "; ".join(parts) + "."
        # Half characters, of a text that was refused for them, cannot be encoded.
        super().__init__(f"{message} {fix}".strip().encode(errors="backslashreplace").decode())

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross processes; the arguments of a class are not those of its base.
        return _copied, (type(self), self.args, self.__dict__)

    def to_dict(self) -> dict[str, Any]:
        """Return the operands for machine readers (`--json`)."""
        return {
            "error": type(self).__name__,
            "message": str(self),
            "operation": self.operation,
            "expected": self.expected,
            "found": self.found,
            "fix": self.fix,
        }


def _copied(kind: type[CompatStoreError], args: tuple[Any, ...], operands: dict[str, Any]) -> CompatStoreError:
    """An error with the message and the operands of another."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(operands)
    return error


class InvalidInput(CompatStoreError, ValueError):
    """An argument cannot be used.

    Args:
        operation: The caller's operation.
        expected: The expected state.
        found: The actual state.
        fix: The next thing to do.
        dim: Length of the vectors that do not fit; None if vectors are not at fault, or their length is unknown.
        duplicates: Ids that occur twice in one call, or are in the gallery already.
    """

    def __init__(
        self,
        operation: str,
        *,
        expected: str = "",
        found: str = "",
        fix: str = "",
        dim: int | None = None,
        duplicates: Sequence[object] = (),
    ) -> None:
        self.dim, self.duplicates = dim, tuple(duplicates)
        super().__init__(operation, expected=expected, found=found, fix=fix)


class NotFound(CompatStoreError, LookupError):
    """A gallery, version, artifact, item or file does not exist.

    Args:
        operation: The caller's operation.
        expected: The expected state.
        found: The actual state.
        fix: The next thing to do.
        kind: "gallery", "version", "artifact" or "item"; "" for anything else.
    """

    def __init__(self, operation: str, *, expected: str = "", found: str = "", fix: str = "", kind: str = "") -> None:
        self.kind = kind
        super().__init__(operation, expected=expected, found=found, fix=fix)

    def to_dict(self) -> dict[str, Any]:
        """Return the operands for machine readers (`--json`)."""
        return {**super().to_dict(), "kind": self.kind}


class AlreadyExists(CompatStoreError, ValueError):
    """The object to be made exists already."""


class Incompatible(CompatStoreError, ValueError):
    """Two things do not belong together."""


class CorruptArtifact(CompatStoreError, ValueError):
    """A file is truncated, edited or of an unknown format."""


class SourceError(CompatStoreError, OSError):
    """Some sources of a batch cannot be read.

    Args:
        operation: The caller's operation.
        failures: Index in the batch -> reason.
        ids: The n items' ids, which the message names in place of an index.
        fix: The next thing to do.
    """

    def __init__(
        self, operation: str, failures: Mapping[int, str], *, ids: Sequence[object] = (), fix: str = ""
    ) -> None:
        self.failures = dict(failures)
        found = [f"{ids[i] if ids else i}: {why}" for i, why in self.failures.items()]
        super().__init__(operation, found=first_offenders(found), fix=fix)


class StorageError(CompatStoreError, OSError):
    """The table cannot be read or written."""


class TableChanged(StorageError):
    """Columns that the gallery needs were dropped, renamed or replaced by another writer of the table."""


class UpgradeError(CompatStoreError, RuntimeError):
    """An upgrade cannot take that step now."""


class LeaseHeld(UpgradeError):
    """Another worker holds the lease of that upgrade.

    Args:
        operation: The caller's operation.
        target: The upgrade's target, or another leased object: "the index of v1", "the gallery".
        holder: User, host and process of the worker.
        verb: The worker's activity.
        since: Start of the work, ISO 8601, UTC.
        expires: End of the lease unless it is renewed, in the same form.
    """

    def __init__(self, operation: str, *, target: str, holder: str, verb: str, since: str, expires: str) -> None:
        self.target, self.holder, self.verb, self.since, self.expires = target, holder, verb, since, expires
        super().__init__(
            operation,
            expected="no other process at work on it",
            found=f"{holder}, at {verb} since {since}, with a lease until {expires} that is renewed while they work",
            fix=f"It ends by itself; give {next_step.same()} again then."
            if " " in target
            else f"Follow it: {next_step.call('status', watch=next_step.IN_SHELL)}; "
            + next_step.either(
                shell=f"stop it: {next_step.command('pause', target)}", python="its `should_stop` ends it."
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the operands for machine readers (`--json`)."""
        who = {"target": self.target, "holder": self.holder, "since": self.since, "expires": self.expires}
        return {**super().to_dict(), **who}


class LeaseLost(UpgradeError):
    """Another worker took the upgrade over, because this process did not renew its lease in time."""


class EncoderFailed(UpgradeError):
    """The encoder hangs, is refused by its endpoint, or embeds nothing at all; items embedded before are kept.

    Args:
        operation: The caller's operation.
        expected: The expected state.
        found: The actual state.
        fix: The next thing to do.
        unaffordable: True if another try would be billed more than the caller allows; see `encoders.Meter`.
    """

    def __init__(
        self, operation: str, *, expected: str = "", found: str = "", fix: str = "", unaffordable: bool = False
    ) -> None:
        self.unaffordable = unaffordable
        super().__init__(operation, expected=expected, found=found, fix=fix)


class GateFailed(UpgradeError):
    """The lower bound of an upgrade's estimate does not reach a gate; nothing was written."""


class Interrupted(UpgradeError):
    """A stop was requested; the current batch is finished and the same command goes on from here."""


class MissingExtra(CompatStoreError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: The module that could not be imported.
        extra: The extra of compatstore that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(
            f"this needs {package}", found="it is not installed", fix=f'Run: pip install "compatstore[{extra}]"'
        )


def load_extra(module: str, extra: str) -> Any:
    """Import a module of an optional dependency.

    Args:
        module: Its name.
        extra: The extra of compatstore that brings it.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(module.partition(".")[0].replace("_", "-"), extra) from error


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise no_attribute(__name__, name)


def meant(name: object, names: Iterable[str]) -> str:
    """Suggest the most similar of some names: "Did you mean 'label'? ", or "" if none is similar."""
    known = {one.lower(): one for one in names}
    near = get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.6)
    return f"Did you mean {known[near[0]]!r}? " if near else ""


LONGEST = 300  # characters of one thing that a message names


def shortened(text: str) -> str:
    """A text, shortened if it is longer than a message can hold."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def first_offenders(items: Sequence[object], limit: int = 5) -> str:
    """Name the first few offenders and count the rest: "a, b, c (and 7 more)"."""
    shown = ", ".join(shortened(str(item)) for item in items[:limit])
    rest = len(items) - limit
    return f"{shown} (and {rest} more)" if rest > 0 else shown
