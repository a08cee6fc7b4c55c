"""Settings of other libraries' models as their identity: without secrets, and without where and how fast they run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(r"key$|token$|secret|password|passphrase|credential|^auth", re.IGNORECASE)
_RUNNING = frozenset({"batch_size", "device", "max_retries", "num_workers", "show_progress_bar"})
_WITHIN = re.compile(r"(?<=://)[^/@]*@")  # a name and password in an address


def without_secrets(value: Any) -> Any:
    """A value as JSON can hold it, without secrets; what JSON has no form for becomes the name of its type."""
    if isinstance(value, Mapping):
        kept = {f"{key}": item for key, item in value.items() if not _SECRET.search(f"{key}") and key not in _RUNNING}
        return {key: without_secrets(item) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    if isinstance(value, str):
        return _WITHIN.sub("", value)
    return value if value is None or isinstance(value, bool | int | float) else f"{type(value).__name__}"
