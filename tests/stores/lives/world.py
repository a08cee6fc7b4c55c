"""The collection of a life: its models, the names of its parts, and the rows as the app wrote them."""

from __future__ import annotations

import copy
import random
import uuid
from dataclasses import dataclass, field

import numpy as np

import compatstore as cs
from compatstore.trainers import Ridge

NAME, SHORT, LONG = "notes", 8, 12
SECRET = "pass-%2Fword%40-of-the-app"  # of an address, as a URI has it
LEARN = cs.Learn(first=40, candidates=(Ridge(penalties=(0.1,)),), time_share=None)
WORDS = [f"word{number}" for number in range(40)]
LANGUAGES = ("en", "de", "ja", None)
SPACES = {SHORT: "v1", LONG: "v2"}


def embed(texts, dim, seed):
    """Vectors of unit length that depend on the text alone; similar for texts with the same words."""
    rows = []
    for text in texts:
        words = [np.random.default_rng([seed, *word.encode()]).normal(size=dim) for word in text.split() or [" "]]
        rows.append(np.sum(words, axis=0))
    rows = np.array(rows).reshape(-1, dim)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def old(texts):
    return embed(texts, SHORT, 1)


def new(texts):
    return embed(texts, LONG, 2)


def target():
    encoder = cs.encoders.Function(new, dim=LONG, fingerprint="new-words")
    return cs.EmbeddingVersion("v2", dim=LONG, encoder=encoder)


def model_of(space):
    return old if space == "v1" else new


def some_vector(draw, space):
    """A vector that no text has."""
    dim = SHORT if space == "v1" else LONG
    vector = np.random.default_rng(draw.randrange(10**9)).normal(size=dim)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


@dataclass
class Row:
    """A row as the app wrote it.

    Attributes:
        text: Its text.
        lang: Its metadata.
        v1: Its vector by the app's first model; None for none.
        v2: Its vector by the app's second model, if the app wrote it; None where it is an upgrade's.
        is_kept: True if the app has changed the text and kept an upgrade's vector, which is of an earlier text then.
    """

    text: str | None
    lang: str | None
    v1: np.ndarray | None
    v2: np.ndarray | None = None
    is_kept: bool = False


@dataclass
class Truth:
    """What the app wrote.

    Attributes:
        rows: By id, those under the name that the app knows.
        kept: Those under the name of before a switch, for a store whose switch replaces the collection.
        space: The version whose vectors the app writes.
        is_one_row: True if both vectors are columns of one row.
    """

    is_one_row: bool
    rows: dict = field(default_factory=dict)
    kept: dict | None = None
    space: str = "v1"

    def enter(self, space):
        """Follow a switch of the store."""
        if space == self.space:
            return
        self.space = space
        if not self.is_one_row:
            if space == "v2":
                self.kept = copy.deepcopy(self.rows)
            else:
                self.rows, self.kept = self.kept, None

    def vector(self, key):
        """The vector that the app wrote, of the space that it writes; None where it is not the app's."""
        return getattr(self.rows[key], self.space)


def ids(engine, draw, count):
    """Ids of a kind that an engine has."""
    kind = draw.choice(getattr(engine, "id_types", ("string", "int64")))
    if kind == "int64":
        return kind, list(range(1, count + 1))
    if getattr(engine, "text_ids", "") == "uuid":
        return kind, [str(uuid.UUID(int=draw.getrandbits(128), version=4)) for _ in range(count)]
    return kind, [f'it\'s "{number}" é' if number % 7 == 0 else f"id-{number}" for number in range(count)]


def some_text(draw):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 4)))


def languages(engine):
    """Values of the metadata; None for none, where an engine keeps that."""
    return LANGUAGES if getattr(engine, "keeps_nulls", True) else LANGUAGES[:-1]


def first_rows(draw, keys, chosen):
    rows = {}
    for key in keys:
        text = some_text(draw)
        rows[key] = Row(text, draw.choice(chosen), old([text])[0])
    return rows


def as_row(key, row, space):
    vector = getattr(row, space)
    return {"id": key, "vector": None if vector is None else vector.tolist(), "text": row.text, "lang": row.lang}


def seeded(seed, *names):
    return random.Random(f"{seed} {names}")
