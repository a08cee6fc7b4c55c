"""The verbs of the program, as rules on its help and on its pages read them."""

from __future__ import annotations

import re


def verbs(group, path=()):
    """(words, command) of every command, those of groups and the groups themselves included."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from verbs(command, (*path, name))


def examples(command):
    """The command lines at the end of a help."""
    return re.findall(r"^  (compatstore .+)", command.epilog or "", re.MULTILINE)
