"""The engines of `engines/`: each real database is one case of every test that takes `engine`.

A module there has a class `Engine`, the side of the app, which uses the database's own client:

| member | content |
|---|---|
| `Engine(folder)` | starts the database, or connects to one that is started once |
| `create(collection, dim, metric, id_type, rows, float16)` | a collection, of rows `{id, vector, text, lang}` |
| `address(collection)`, `parts` | how a mirror names it |
| `put(collection, rows)`, `delete(collection, ids)` | writes of an app |
| `rows(collection, target=None)` | what is there: id -> row; with `target`, the vector of that version too |
| `objects()` | names of everything in the database |
| `close()` | stops what it started |

Of what a database lacks, its engine may name `metrics` and `id_types` that it has, `keeps_nulls = False` if each row
has a vector, `text_ids = "uuid"` if texts are no ids but UUIDs are, `refused_ids` of texts that are none, `odd_names`
of collections that it takes, the `secret` in its address, and `types_ids_by_rows = True` if a collection without rows
takes ids of any type.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ENGINES = sorted(path.stem for path in (Path(__file__).parent / "engines").glob("*.py") if path.stem != "__init__")
FAST = ("faiss_file", "postgres", "sqlite_vec")  # the others are of the slow tier; their pages run in the full one


def started(name, tmp_path):
    """A database, empty, until the test ends."""
    try:
        module = importlib.import_module(f"stores.engines.{name}")
    except ImportError as error:
        pytest.skip(f"{error}")
    folder = tmp_path / "engine"
    folder.mkdir()
    engine = module.Engine(folder)
    yield engine
    engine.close()


@pytest.fixture(params=[pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in ENGINES])
def engine(request, tmp_path):
    """A database, empty."""
    yield from started(request.param, tmp_path)
