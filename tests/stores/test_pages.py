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
PAGES = {  # engine -> its page
    "postgres": "pgvector",
    "chroma": "chroma",
    "qdrant": "qdrant",
    "milvus": "milvus",
    "faiss_file": "faiss",
    "sqlite_vec": "sqlite-vec",
}


@pytest.fixture
def lines(request):
    """The commands of the page of the engine that `newcomer` has."""
    page = PAGES[request.node.callspec.params["newcomer"]]
    return re.findall(r"^\$ compatstore (.+)", (GUIDES / "stores" / f"{page}.md").read_text(), re.MULTILINE)


@pytest.mark.full
def test_five_lines_of_a_page(newcomer, lines):
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
def test_what_a_newcomer_types_wrongly_names_the_next_command(newcomer, lines):

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
    refused(re.sub("--source .+", "--source txt", lines[0]), "txt", "among")
    refused(lines[0].replace(address, "pinecone:notes#x"), "convert")
    refused("sync notes.lance", "notes.lance")
    assert not Path("notes.lance").exists()
    assert run(*shlex.split(lines[0])).code == 0
    refused("cutover notes.lance v2", "upgrade")
    refused("upgrade notes.lance v2", "--encoder")
    assert run(*shlex.split(lines[0])).code == 0, "the same command again"


@pytest.fixture(params=sorted(PAGES))
def newcomer(request, tmp_path, monkeypatch):
    """An app with its data in the working directory: the notes of the guide to LanceDB."""
    module = pytest.importorskip(f"stores.engines.{request.param}")
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "app-db" if request.param in ("chroma", "qdrant") else tmp_path
    place.mkdir(exist_ok=True)
    app = module.Engine(place)
    if request.param == "postgres":
        app.rename("shop")
        monkeypatch.setenv("PGHOST", app.connection.info.host)
        monkeypatch.setenv("PGUSER", app.connection.info.user)
    Path("app.py").write_text(PROGRAM.replace('"app-db"', '"lance-db"'))
    made = runpy.run_path("app.py")
    id_type = getattr(app, "id_types", ("string", "int64"))[-1]
    rows = [
        {"id": n + 1 if id_type == "int64" else f"n{n}", "text": text, "vector": vector.tolist(), "lang": "en"}
        for n, (text, vector) in enumerate(zip(made["texts"], made["vectors"], strict=True))
    ]
    app.create("notes", 12, "cosine", id_type=id_type, rows=rows)
    yield app
    app.close()


@pytest.mark.full
@pytest.mark.parametrize("newcomer", ["postgres"], indirect=True)
def test_fused_search_in_sql(newcomer, lines):
    for line in lines[:2]:
        assert run(*shlex.split(line)).code == 0
    page = (GUIDES / "stores" / "pgvector.md").read_text()
    statement = re.search(r"^```\n(WITH .*?)^```", page, re.MULTILINE | re.DOTALL)[1]
    gallery = cs.Gallery.open("notes.lance")
    one = gallery.scan(["id"]).to_arrow()["id"][0].as_py()
    named = {version: str(gallery.vectors([one], version)[0].tolist()) for version in ("v1", "v2")}
    found = [row[0] for row in newcomer.connection.execute(statement, named)]
    assert (len(found), found[0]) == (10, one)
