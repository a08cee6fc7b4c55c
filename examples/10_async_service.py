"""A web service answers 100 requests at a time while its gallery is upgraded and cut over, in one event loop."""

import asyncio
import itertools
import tempfile

import httpx
from fastapi import FastAPI
from sklearn.feature_extraction.text import HashingVectorizer

import compatstore as cs

WORDS = ("red green blue grey", "cotton wool silk linen", "shirt scarf coat hat", "no.100 no.101 no.102 no.103 no.104")
texts = [" ".join(words) for words in itertools.product(*(group.split() for group in WORDS))]


def version(name: str, dim: int, analyzer: str, length: int) -> cs.EmbeddingVersion:
    """A text model that counts words, or sequences of characters."""
    model = HashingVectorizer(n_features=dim, analyzer=analyzer, ngram_range=(1, length))
    encoder = cs.encoders.Function(lambda documents: model.transform(documents).toarray(), dim, fingerprint=name)
    return cs.EmbeddingVersion(name, dim=dim, metric="cosine", encoder=encoder)


gallery = cs.Gallery.create(tempfile.mkdtemp() + "/shop.lance", version("v1", 64, "word", 1))
gallery.add({"id": [f"item-{n}" for n in range(len(texts))], "source": texts})
app = FastAPI()


@app.get("/search")
async def search(text: str) -> dict[str, str]:
    found = await gallery.aio.search(text, k=1)
    return {"text": found["source"][0].as_py(), "version": found["_version"][0].as_py()}


async def main() -> None:
    await gallery.aio.register(version("v2", 96, "char_wb", 4))
    upgrade = asyncio.create_task(gallery.aio.upgrade("v2", backfill=1.0))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        cut_over = False
        while not cut_over:
            if cut_over := upgrade.done():
                await gallery.aio.cutover((await upgrade).target)
            probes = texts[:: len(texts) // 100][:100]
            answers = await asyncio.gather(*(client.get("/search", params={"text": text}) for text in probes))
            right = sum(answer.json()["text"] == text for answer, text in zip(answers, probes, strict=True))
            versions = {answer.json()["version"] for answer in answers}
            print("after" if cut_over else "during", f"the upgrade: {right} of {len(answers)} right, by", *versions)


asyncio.run(main())
