"""Texts for the benchmark: what a dictionary in dictd's format says of a noun, and which glosses it asks for."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from benchmarks.pairs.texts import Glosses, asking, read_definitions

ENTRIES = {
    "Lion": 'Lion \\Li"on\\, n. [F. lion, L. leo. Cf. {Leopard}.]\n   1. (Zool.) A large feline ({Panthera leo}); as,\n'
    "      a lion roars.\n      [1913 Webster]\n\n   2. A sign.\n",
    "Mazourka": 'Mazourka \\Ma*zour"ka\\, n.\n   A Polish dance.\n   [1913 Webster]\n',
    "Mazurka": 'Mazourka \\Ma*zour"ka\\, Mazurka \\Ma*zur"ka\\, n.\n   A Polish dance.\n   [1913 Webster]\n',
    "corgi": "corgi \\corgi\\ n.\n   a Welsh dog\n        [WordNet 1.5]\n",
    "run": "Run \\Run\\, v. i. [imp. Ran; vb. n. Running.]\n   To move.\n",
    "Genera": 'Genera \\Gen"e*ra\\, n. pl.; sing. Genus.\n   Kinds.\n',
}
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def number(value):
    return (number(value // 64) if value >= 64 else "") + DIGITS[value % 64]


@pytest.fixture
def dictionary(tmp_path):
    text, lines = b"", []
    for word, entry in ENTRIES.items():
        lines.append(f"{word}\t{number(len(text))}\t{number(len(entry.encode()))}")
        text += entry.encode()
    path = tmp_path / "gcide.dict.dz"
    path.write_bytes(gzip.compress(text))
    (tmp_path / "gcide.index").write_text("\n".join(lines) + "\n")
    return path


def test_the_first_sense_of_a_noun_is_read_without_its_asides(dictionary):
    found = read_definitions(dictionary)
    assert found["lion"] == "A large feline (Panthera leo)"
    assert found["mazourka"] == "A Polish dance."


def test_verbs_other_words_entries_and_what_is_from_wordnet_are_left_out(dictionary):
    assert not {"run", "corgi", "mazurka"} & read_definitions(dictionary).keys()


def test_each_definition_asks_for_the_glosses_of_its_noun(dictionary):
    glosses = Glosses(
        texts=["a", "b", "c", "d"], labels=np.zeros(4, np.int64), nouns=["lion", "corgi", "Lion", "mazourka"]
    )
    texts, queries, items = asking(glosses, dictionary)
    assert texts == ["A large feline (Panthera leo)", "A Polish dance."]
    assert list(zip(queries.tolist(), items.tolist(), strict=True)) == [(0, 0), (0, 2), (1, 3)]
    texts, queries, items = asking(glosses, None)
    assert (texts, queries.tolist(), items.tolist()) == (
        ["Lion", "corgi", "lion", "mazourka"],
        [2, 1, 0, 3],
        [0, 1, 2, 3],
    )
