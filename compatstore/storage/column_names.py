"""Which names of columns Lance can read, write, filter by and search: found by doing all of that with each odd name.

A column of a name that it cannot is made without a word, and from then on no row can be added, found or read.
"""

from __future__ import annotations

# Lance resolves names as paths: a dot goes into a struct and a backtick quotes. A star is all columns.
_LANCE_TAKES = ("`", ".")
# What Lance gives rows beside their columns, and what a search gives them beside those.
_OF_LANCE = frozenset({"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})
OF_RESULTS = frozenset({"_distance", "_version", "_origin", "_query"})


def fault_of(name: str) -> str:
    """Why no column of a gallery can have a name, for messages; "" where one can."""
    if not name or name == "*":
        return "Lance does not read columns of such a name"
    taken = [character for character in _LANCE_TAKES if character in name]
    if taken:
        return f"Lance reads {taken[0]!r} in a name as its own"
    if "\0" in name or any("\ud800" <= character <= "\udfff" for character in name):
        return "Lance does not keep all of its characters"
    if name in _OF_LANCE or name in OF_RESULTS:
        return "results have a column of that name"
    return ""
