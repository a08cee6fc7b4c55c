"""Documents as an attacker or a broken disk makes them: JSON with one value exchanged, and bytes that were damaged."""

from __future__ import annotations

import copy
import json
import resource
from pathlib import Path

from hypothesis import strategies as st

HOSTILE = [
    None, True, False, -1, 0, 1, 3_000_000, 2**31, 2**63, 2**200, -(2**70), 0.5, float("nan"), float("inf"), 1e308,
    "", "x", "\ud800", "\x1b[2J", "../../etc/passwd", "v" * 300, [], {}, [[]], {"": {}}, [None], ["x"], [3_000_000],
    [1] * 1000, {"x": 1}, {"\udfff": 0},
]  # fmt: skip


def deep(levels):
    """JSON text of lists within lists."""
    return "[" * levels + "]" * levels


def places(values, path=()):
    """Paths of all values within JSON values."""
    yield path
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def exchanged(values, path, value):
    """A copy with the value at a path exchanged; `...` takes it away."""
    if not path:
        return value
    changed = copy.deepcopy(values)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    if value is not ...:
        holder[path[-1]] = value
    elif isinstance(holder, dict):
        del holder[path[-1]]
    else:
        holder.pop(path[-1])
    return changed


def mutations(values):
    """A strategy of JSON values with one value exchanged, taken away, or a field too many."""

    def mutate(draw):
        path, value = draw
        return exchanged(values, path, value)

    anything = st.one_of(st.sampled_from(HOSTILE), st.integers(), st.floats(), st.text(max_size=5))
    one = st.tuples(st.sampled_from(list(places(values))), st.one_of(anything, st.just(...))).map(mutate)
    return one.filter(lambda changed: changed is not ...)


def damages(content):
    """A strategy of bytes with some of them cut off, flipped, or exchanged."""

    def flip(at):
        return content[: at // 8] + bytes([content[at // 8] ^ (1 << at % 8)]) + content[at // 8 + 1 :]

    return st.one_of(
        st.integers(0, len(content) - 1).map(lambda end: content[:end]),
        st.integers(0, 8 * len(content) - 1).map(flip),
        st.binary(max_size=300),
        st.tuples(st.integers(0, len(content)), st.binary(min_size=1, max_size=40)).map(
            lambda draw: content[: draw[0]] + draw[1] + content[draw[0] + len(draw[1]) :]
        ),
    )


def dumps(values):
    """JSON text, half surrogates and NaN included."""
    return json.dumps(values)


def limit_memory(room):
    """Refuse this process all memory beyond `room` bytes more than it has. macOS keeps no such limit: none is set."""
    taken = Path("/proc/self/statm")
    if taken.exists():
        used = int(taken.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
