"""WordNet's nouns: synsets, their glosses, and the kinds that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_POINTERS = 4  # fields before a synset's words: its place, its file, its kind, and how many words it has


@dataclass(frozen=True, kw_only=True)
class Synset:
    """Nouns of one meaning.

    Args:
        names: The nouns.
        text: What the gloss says before its examples.
        above: Places of its hypernyms, the first one first; classes only, not what single things are instances of.
    """

    names: tuple[str, ...]
    text: str
    above: tuple[str, ...]


def read_synsets(path: Path) -> dict[str, Synset]:
    """Read WordNet's data.noun: place of a synset -> synset."""
    found = {}
    for line in path.read_text(encoding="latin-1").splitlines():
        data, _, gloss = line.partition(" | ")
        if line.startswith(" ") or not gloss:  # the licence
            continue
        fields = data.split()
        words, pointers = fields[_POINTERS::2], fields[_POINTERS + 2 * int(fields[3], 16) + 1 :]
        names = tuple(word.replace("_", " ") for word in words[: int(fields[3], 16)])
        above = tuple(place for kind, place in pairwise(pointers) if kind == "@")
        found[fields[0]] = Synset(names=names, text=gloss.split('; "')[0].strip(), above=above)
    return found


def kinds_of(place: str, synsets: Mapping[str, Synset]) -> set[str]:
    """Places of all kinds that a synset is of: itself, its hypernyms, theirs, and so on."""
    found, left = set[str](), [place]
    while left:
        kind = left.pop()
        if kind not in found:
            found.add(kind)
            left += synsets[kind].above
    return found
