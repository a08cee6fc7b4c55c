"""Addresses of stores: read, shown without secrets, and refused with the form that was meant."""

from __future__ import annotations

import pytest

from compatstore.errors import InvalidInput
from compatstore.stores.address import Address

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("text", "place", "collection", "shown"),
    [
        ("chroma:/a b/c#notes", "/a b/c", "notes", "chroma:/a b/c#notes"),
        ("chroma:/a?b//c#d#notes", "/a?b//c#d", "notes", "chroma:/a?b//c#d#notes"),
        ("faiss:/x#y.index", "/x#y.index", "", "faiss:/x#y.index"),
        ("qdrant+https://host:6333#notes", "https://host:6333", "notes", "qdrant+https://host:6333#notes"),
        (f"milvus+http://u:{SECRET}@host#n", f"http://u:{SECRET}@host", "n", "milvus+http://u@host#n"),
        (f"postgres://u:{SECRET}@h:5/db#s.t", f"postgresql://u:{SECRET}@h:5/db", "s.t", "postgresql://u@h:5/db#s.t"),
        (
            f"postgresql:///db?host=/tmp&password={SECRET}&sslmode=require#t",
            f"postgresql:///db?host=/tmp&password={SECRET}&sslmode=require",
            "t",
            "postgresql:///db?host=/tmp&sslmode=require#t",
        ),
    ],
)
def test_an_address_is_read_and_shown_without_secrets(text, place, collection, shown):
    address = Address.of(text)
    assert (address.place, address.collection, str(address)) == (place, collection, shown)
    assert str(Address.of(str(address))) == shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pinecone:x#y", "convert"),
        ("chrome:x#y", "chroma"),
        ("chroma:x", "chroma:PATH#COLLECTION"),
        ("chroma:#x", "chroma:PATH#COLLECTION"),
        ("postgresql://h/db", "postgresql://HOST/DB#SCHEMA.TABLE"),
        ("", "the address of a store"),
        (f"postgresql://u:a/{SECRET}@h/db#t", "%2F"),
        (f"postgresql://u:a#{SECRET}@h/db#t", "%23"),
        (f"qdrant+http://u:a?{SECRET}@h#t", "%3F"),
        (f"weaviate://u:{SECRET}@h#t", "convert"),
    ],
)
def test_a_wrong_address_is_refused_without_its_secrets(text, said):
    with pytest.raises(InvalidInput) as refused:
        Address.of(text)
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)
