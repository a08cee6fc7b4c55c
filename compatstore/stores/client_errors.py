"""Errors of the clients of stores, as errors of this package: the store's own reason, and no secret."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compatstore.errors import CompatStoreError, NotFound, StorageError, shortened


@contextmanager
def reporting(
    operation: str, *, absent: tuple[type[Exception], ...] = (), secrets: tuple[str, ...] = ()
) -> Iterator[None]:
    """Raise what a client raises as an error of this package.

    Args:
        operation: The caller's operation, as a clause.
        absent: Exceptions of the client for a collection that does not exist.
        secrets: Passwords and tokens, which are left out of the message.

    Raises:
        NotFound: The collection does not exist.
        StorageError: The store refuses, or cannot be reached.
    """
    try:
        yield
    except CompatStoreError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        for secret in filter(None, secrets):
            reason = reason.replace(secret, "***")
        kind = NotFound if isinstance(error, absent) else StorageError
        raise kind(operation, found=shortened(reason)) from (None if any(secrets) else error)
