"""The five lines of each page of a store, as they stand there, in a folder where the app has its data."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest
from shell import invoke as run

import compatstore as cs
from lazily import Lazy

lancedb = Lazy("lancedb")

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
PROGRAM = re.search(r"^```python\n(.*?)^```", (GUIDES / "lancedb.md").read_text(), re.MULTILINE | re.DOTALL)[1]
PAGES = {
    "postgresql": "pgvector",
    "chroma": "chroma",
    "qdrant": "qdrant",
    "milvus": "milvus",
    "faiss": "faiss",
    "sqlite-vec": "sqlite-vec",
}


def lines_of(page):
    return re.findall(r"^\$ compatstore (.+)", (GUIDES / "stores" / f"{page}.md").read_text(), re.MULTILINE)


@pytest.mark.full
def test_five_lines_of_a_page(newcomer):
    lines = lines_of(PAGES[newcomer.name])
    assert len(lines) == 5
    before = newcomer.rows("notes")
    shown = run(*shlex.split(f"{lines[0]} --check"))
    assert shown.code == 0
    assert "400 rows, 12 values" in shown.out
    for line in lines:
        done = run(*shlex.split(line))
        assert done.code == 0, done.err
    gallery = cs.Gallery.open("notes.lance")
    assert (gallery.active, len(gallery), gallery.sync().changed) == ("v2", 400, 0)
    assert gallery.version("v2").dim == 48
    assert before.keys() == {row["id"] for row in gallery.scan(["id"]).to_arrow().to_pylist()}


@pytest.mark.full
def test_what_a_newcomer_types_wrongly_names_the_next_command(newcomer):
    lines = lines_of(PAGES[newcomer.name])

    def refused(line, *expected):
        done = run(*shlex.split(line))
        assert done.code not in (0, 1)
        assert done.out == ""
        error = done.err.splitlines()[-1]
        assert error.startswith("Error: ")
        for part in expected:
            assert part in error, error

    address = lines[0].split()[1]
    if "#" in address:
        refused(lines[0].replace("#notes", "#nots"), "nots")
        refused(lines[0].replace("#notes", ""), "#")
    refused(lines[0].replace("--source text", "--source txt"), "txt", "text")
    refused(lines[0].replace(address, "pinecone:notes#x"), "convert")
    refused("sync notes.lance", "notes.lance")
    assert not Path("notes.lance").exists()
    assert run(*shlex.split(lines[0])).code == 0
    refused("cutover notes.lance v2", "upgrade")
    refused("upgrade notes.lance v2", "--encoder")
    assert run(*shlex.split(lines[0])).code == 0, "the same command again"


@pytest.fixture
def newcomer(engine, tmp_path, monkeypatch):
    """An app with its data in the working directory: the notes of the guide to LanceDB."""
    if engine.name not in PAGES:
        pytest.skip(f"{engine.name} has no page of its own")
    folder = tmp_path / "engine"
    monkeypatch.chdir(folder)
    (folder / "app.py").write_text(PROGRAM)
    app = runpy.run_path("app.py")
    id_type = getattr(engine, "id_types", ("string", "int64"))[-1]
    rows = [
        {
            "id": n + 1 if id_type == "int64" else f"n{n}",
            "text": text,
            "vector": app["vectors"][n].tolist(),
            "lang": "en",
        }
        for n, text in enumerate(app["texts"])
    ]
    for name, value in getattr(engine, "environment", {}).items():
        monkeypatch.setenv(name, value)
    engine.create("notes", 12, "cosine", id_type=id_type, rows=rows)
    return engine
