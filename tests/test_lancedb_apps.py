"""What an app may do to its adopted LanceDB table at which moment of an upgrade: tried, and held against the page.

Each operation is carried out on a real LanceDB connection at each moment, and what came of it is one of `OUTCOMES`.
`docs/guides/lancedb.md` has the same table; `python -m tests.test_lancedb_apps` prints it.
"""

from __future__ import annotations

import datetime
import itertools
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from lazily import Lazy
from tiers import few

index = Lazy("lancedb.index")
lancedb = Lazy("lancedb")

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "lancedb.md"
DIM, ROWS = 16, 300
V1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
V2 = cs.EmbeddingVersion("v2", dim=24, metric="l2")
MOMENTS = ("before", "during", "ready", "after cutover", "after retire")
OUTCOMES = ("safe", "catch up", "not in target", "begins again", "breaks", "no gallery")


def rows(numbers, seed=0):
    """What the app writes: a key, a vector, a number and a text for each number."""
    matrix = np.random.default_rng([seed, *numbers[:1]]).normal(size=(len(numbers), DIM)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), DIM)
    keys = [f"photo-{number}" for number in numbers]
    return pa.table({"key": keys, "embedding": vectors, "views": list(numbers), "shop": ["a"] * len(numbers)})


def merge(table):
    changed = rows([5, 902], seed=9)
    table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all().execute(changed)


def look_back(table):
    """Read an earlier version, and come back to the latest."""
    table.checkout(1)
    assert table.count_rows() == ROWS
    table.checkout_latest()


# What the app does -> how; each handle has looked at the latest version before.
OPERATIONS = {
    "`add` rows": lambda table: table.add(rows([900, 901])),
    "`update` metadata": lambda table: table.update(where="key = 'photo-3'", values={"views": -1}),
    "`update` vectors": lambda table: table.update(where="key = 'photo-3'", values={"embedding": [1.0] * DIM}),
    "`merge_insert`": merge,
    "`delete` rows": lambda table: table.delete("key = 'photo-7'"),
    "`optimize`": lambda table: table.optimize(),
    "`optimize(cleanup_older_than=...)` of all": lambda table: table.optimize(
        cleanup_older_than=datetime.timedelta(microseconds=1)
    ),
    "`create_index` on its vectors": lambda table: table.create_index(
        "embedding", config=index.IvfFlat(num_partitions=2)
    ),
    "`create_index` on metadata": lambda table: table.create_index("views", config=index.BTree()),
    "`add_columns`": lambda table: table.add_columns({"likes": "views + 1"}),
    "`drop_columns`, metadata": lambda table: table.drop_columns(["shop"]),
    "`drop_columns`, its vectors": lambda table: table.drop_columns(["embedding"]),
    "`drop_columns`, the target": lambda table: table.drop_columns(["v2"]),
    "`alter_columns`, rename metadata": lambda table: table.alter_columns({"path": "shop", "rename": "store"}),
    "`alter_columns`, rename its vectors": lambda table: table.alter_columns({"path": "embedding", "rename": "old"}),
    "`alter_columns`, rename its ids": lambda table: table.alter_columns({"path": "key", "rename": "photo"}),
    "`checkout` an earlier version and `checkout_latest`": look_back,
    "`restore` a version from before the upgrade": lambda table: table.restore(_linked(table)),
    "`restore` a version from before the adoption": lambda table: table.restore(1),
    '`create_table(mode="overwrite")`': lambda table: lancedb.connect(Path(table.uri).parent).create_table(
        "photos", rows(range(50)), mode="overwrite"
    ),
}


def _linked(table):
    """The last version without a column of the target."""
    versions = [entry["version"] for entry in table.list_versions()]
    lance = table.to_lance()
    return max(version for version in versions if "v2" not in lance.checkout_version(version).schema.names)


@pytest.fixture(scope="module")
def templates(tmp_path_factory, artifact):
    """By moment, a folder with the app's table as it is then."""
    folder = tmp_path_factory.mktemp("moments")
    current = folder / "current"
    table = lancedb.connect(current).create_table("photos", rows(range(ROWS)))
    gallery = cs.Gallery.adopt(table, V1, vector="embedding", id="key")
    gallery.register(V2)
    gallery.artifacts.link(artifact)
    steps = {
        "before": lambda: None,
        "ready": lambda: gallery.upgrade("v2"),
        "after cutover": lambda: gallery.cutover("v2"),
        "after retire": lambda: gallery.retire("v1"),
    }
    for moment, step in steps.items():
        step()
        shutil.copytree(current, folder / moment)
    return {**{moment: folder / moment for moment in steps}, "during": folder / "before"}


@pytest.fixture(scope="module")
def artifact():
    from conftest import _linear

    return _linear(V1, V2)


def follows(gallery, artifact):
    """Whether each item has the target vector that belongs to its source vector as it is now."""
    store = gallery._catalog.store
    if "embedding" not in store.schema.names:  # its vectors went; what was made of them is there
        return store.count("v2 IS NULL") == 0
    found = store.snapshot().to_table(["embedding", "v2"])
    source, target = (
        np.array([row or [np.nan] * dim for row in found[name].to_pylist()], np.float32)
        for name, dim in (("embedding", DIM), ("v2", V2.dim))
    )
    return np.allclose(target, artifact.apply(source).vectors, atol=1e-4)


def attempt(call):
    """What a call gives, or the error of ours that it ends with."""
    try:
        return call()
    except cs.CompatStoreError as error:
        return error


def outcome(operation, moment, database, artifact):
    """What comes of an operation at a moment: one of `OUTCOMES`."""
    table = lancedb.connect(database).open_table("photos")
    gallery = cs.Gallery.open(f"{database}#photos")
    said = []

    def act(progress=None):
        if not said and (progress is None or progress.step == "hop"):
            table.checkout_latest()
            said.append(operation(table))

    answers = [attempt(lambda: gallery.upgrade("v2", progress=act))] if moment == "during" else [act()]
    assert said
    active = attempt(lambda: gallery.active)
    if isinstance(active, cs.CompatStoreError):
        assert "cs.Gallery.adopt(" in active.fix
        return "no gallery"
    upgrading = moment in ("during", "ready", "after cutover")
    lost = moment != "before" and "v2" not in gallery._catalog.recorded().runs
    answers.append(attempt(lambda: gallery.search([0.0] * gallery.version(active).dim, k=1)))
    answers.append(attempt(gallery.status))
    followed = moment == "before" or ("v2" in gallery._catalog.store.schema.names and follows(gallery, artifact))
    if lost or upgrading or moment == "before":
        answers.append(attempt(lambda: gallery.upgrade("v2")))
    if any(isinstance(answer, cs.errors.TableChanged) for answer in answers):
        assert all(answer.fix for answer in answers if isinstance(answer, cs.errors.TableChanged))
        return "breaks"
    if lost:
        assert follows(gallery, artifact)
        return "begins again"
    assert not [answer for answer in answers if isinstance(answer, cs.CompatStoreError)]
    errors = [finding.check for finding in gallery.maintenance.verify().findings if finding.severity == "error"]
    assert errors in ([], ["overwritten"])
    if moment == "after retire" and not followed:
        return "not in target"
    assert follows(gallery, artifact)
    if "embedding" in table.schema.names:
        assert table.search([0.0] * DIM, vector_column_name="embedding").limit(1).to_list()
    return "safe" if followed else "catch up"


def cell(operation, moment, templates, folder, artifact):
    """What stands in the page's table."""
    shutil.copytree(templates[moment], folder)
    return outcome(OPERATIONS[operation], moment, folder, artifact)


def on_the_page():
    """(operation, moment) -> what the page says."""
    lines = re.findall(r"^\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    cells = [line.split(" | ") for line in lines if line.split(" | ")[0] in OPERATIONS]
    return {(first, moment): text for first, *rest in cells for moment, text in zip(MOMENTS, rest, strict=True)}


CELLS = [
    pytest.param(name, moment, id=f"{name} {moment}")
    for name, moment in itertools.product(OPERATIONS, MOMENTS)
    if (name, moment) != ("`drop_columns`, the target", "before")
]


@pytest.mark.filterwarnings("ignore:optimize.cleanup_older_than=0. removes every version")
@pytest.mark.parametrize(("operation", "moment"), few(16, CELLS))
def test_an_operation_does_what_the_page_says(operation, moment, templates, tmp_path, artifact):
    assert cell(operation, moment, templates, tmp_path / "app", artifact) == on_the_page()[operation, moment]


def test_the_page_has_every_operation_and_explains_every_outcome():
    said = on_the_page()
    assert said.keys() == set(itertools.product(OPERATIONS, MOMENTS))
    assert set(said.values()) == {*OUTCOMES, "-"}
    assert set(re.findall(r"^\* \*\*(.*?)\*\*", PAGE.read_text(), re.MULTILINE)) >= set(OUTCOMES)
