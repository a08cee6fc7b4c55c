"""What must hold at any moment: the table against the memory of the app that writes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from pyarrow.fs import FileSystem

import compatstore as cs
from compatstore.artifacts import Artifact
from compatstore.encoders import Encoder
from compatstore.storage.columns import InputHashes
from compatstore.verification import Verification
from tests.known.galleries import Kind, Place
from tests.known.vectors import ENCODERS, SIDE_DIM, SIDE_ENCODERS, label, side_vector, source_vector, target_vector

SAMPLES = 3
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@dataclass(frozen=True)
class Expected:
    """What a table is compared with; taken between two writes.

    Attributes:
        items: Id -> source.
        behind: Ids last written behind the gallery's back: only these may lack a vector in the active version.
        earlier: Id -> sources that the target vector of such an item may still belong to.
        settled: True once the operator is done, so that the gallery has nothing left to warn of.
        charged: True while each native comes from a backfill, which charges for it.
        most: Items that the budget of the upgrade allows to charge for; None for no limit.
    """

    items: dict[str, str]
    behind: set[str] = field(default_factory=set)
    earlier: dict[str, set[str]] = field(default_factory=dict)
    settled: bool = False
    charged: bool = False
    most: int | None = None


@dataclass(frozen=True)
class State:
    """One state of the gallery.

    Attributes:
        table: All rows, as Lance has them.
        status: What the gallery says of itself.
        verification: What it finds when it checks itself.
        artifacts: Short id -> artifact that is linked to it.
    """

    table: Any
    status: cs.Status
    verification: Verification
    artifacts: dict[str, Artifact]

    @classmethod
    def read(cls, path: Place, side_encoders: Mapping[str, Encoder] = SIDE_ENCODERS) -> State:
        """Read a gallery."""
        gallery = cs.Gallery.open(str(path), encoders=ENCODERS, side_encoders=side_encoders)
        table = lance.dataset(str(path)).to_table()
        return cls(table, gallery.status(), gallery.maintenance.verify(), _artifacts(path, gallery))

    def keeps(self, version: str) -> bool:
        """Whether the gallery keeps vectors of a version; what a killed abort left of one belongs to no version."""
        return next(v for v in self.status.versions if v.name == version).state in ("active", "live")

    def rows(self, version: str) -> dict[str, int]:
        """Native, transformed and missing rows that the gallery counts."""
        found = next(v for v in self.status.versions if v.name == version)
        return {"native": found.native, "transformed": found.transformed, "missing": found.missing}


def _artifacts(path: Place, gallery: cs.Gallery) -> dict[str, Artifact]:
    """Every linked artifact, read from the files beside the table."""
    files, folder = FileSystem.from_uri(str(path))

    def read(name: str) -> bytes:
        with files.open_input_stream(f"{folder}/_compatstore/{name}") as stream:
            return bytes(stream.read())

    loaded = [Artifact.from_bytes(read(record.manifest), read(record.weights)) for record in gallery.artifacts]
    return {artifact.short_id: artifact for artifact in loaded}


def violations(state: State, expected: Expected, kind: Kind) -> list[str]:
    """All that does not hold, a sentence each."""
    found = list(_ids(state, expected, kind))
    if found:
        return found
    sources = [expected.items[item] for item in state.table[kind.id].to_pylist()]
    return [
        *_sources(state, sources, kind),
        *_source_vectors(state, sources, kind),
        *_target_vectors(state, expected, sources, kind),
        *_missing(state, expected, kind),
        *_counts(state),
        *_accounts(state, expected),
        *_verified(state, expected),
    ]


def _ids(state: State, expected: Expected, kind: Kind) -> Iterator[str]:
    ids = state.table[kind.id].to_pylist()
    if len(set(ids)) != len(ids):
        yield f"{len(ids) - len(set(ids))} rows are doubled: {_first(i for i in set(ids) if ids.count(i) > 1)}"
    lost, extra = expected.items.keys() - set(ids), set(ids) - expected.items.keys()
    if lost:
        yield f"{len(lost)} rows are lost: {_first(lost)}"
    if extra:
        yield f"{len(extra)} rows that were removed or never written are there: {_first(extra)}"


def _sources(state: State, sources: list[str], kind: Kind) -> Iterator[str]:
    found = state.table[kind.source].to_pylist()
    wrong = [i for i, source in enumerate(sources) if source != found[i]]
    if wrong:
        yield f"{len(wrong)} sources are not what was written: {_first((found[i], sources[i]) for i in wrong)}"
    labels = state.table["label"].to_pylist()
    unlike = [i for i, source in enumerate(sources) if label(source) != labels[i]]
    if unlike:
        yield f"{len(unlike)} labels are not what was written: {_first((sources[i], labels[i]) for i in unlike)}"


def _source_vectors(state: State, sources: list[str], kind: Kind) -> Iterator[str]:
    """To the bit, as long as the gallery keeps them; afterwards an adopted column is the app's own affair."""
    if state.keeps("v1"):
        vectors, valid = _matrix(state.table[kind.vector], source_vector("").size)
        wrong = ~valid | (vectors != np.stack([source_vector(source) for source in sources])).any(axis=1)
        if wrong.any():
            yield f"{wrong.sum()} source vectors are not what was written: {_first(np.flatnonzero(wrong))}"


def _target_vectors(state: State, expected: Expected, sources: list[str], kind: Kind) -> Iterator[str]:
    """A vector is what its origin makes of the source, or of an earlier one, and then its input hash says so."""
    if not state.keeps("v2"):
        return
    vectors, valid = _matrix(state.table["v2"], target_vector("").size)
    origins = state.table["v2__origin"].to_pylist()
    halves = [i for i, origin in enumerate(origins) if (origin is None) == valid[i]]
    if halves:
        yield f"{len(halves)} rows have a vector without an origin, or the reverse: {_first(halves)}"
        return
    current = _matches(state, vectors, valid, origins, sources)
    stale = list(np.flatnonzero(valid & ~current))
    ids = state.table[kind.id].to_pylist()
    wrong = [i for i in stale if not _was(state, vectors[i], origins[i], expected.earlier.get(ids[i], set()))]
    if wrong:
        named = _first((ids[i], origins[i]) for i in wrong)
        yield f"{len(wrong)} target vectors are not what their origin says: {named}"
    yield from _side(state, origins, sources, current)
    hidden = [ids[i] for i in stale if _input_hash_fits(state.table, sources, kind, i)]
    if hidden:
        yield f"{len(hidden)} target vectors belong to an earlier source and no input hash tells: {_first(hidden)}"


def _side(state: State, origins: list[Any], sources: list[str], current: np.ndarray) -> Iterator[str]:
    """Natives bring their model's side-information; the artifact writes none."""
    if "v2__side" not in state.table.column_names:
        return
    side, there = _matrix(state.table["v2__side"], SIDE_DIM)
    native = np.array([origin == "native" for origin in origins], bool)
    rows = np.flatnonzero(native & current)
    truth = np.stack([side_vector(sources[i]) for i in rows]) if len(rows) else side[:0]
    wrong = rows[~there[rows] | (side[rows] != truth).any(axis=1)]
    if len(wrong):
        yield f"{len(wrong)} natives have not the side-information of their source: {_first(wrong)}"
    others = np.flatnonzero(there & ~native)
    if len(others):
        yield f"{len(others)} rows that are not native have side-information: {_first(others)}"


def _matches(
    state: State, vectors: np.ndarray, valid: np.ndarray, origins: list[Any], sources: list[str]
) -> np.ndarray:
    """(n,) bool: the vector is what its origin makes of that source."""
    good = np.zeros(len(sources), bool)
    for origin in {origin for origin in origins if origin is not None}:
        rows = np.flatnonzero([o == origin for o in origins])
        truth = _made_by(state, origin)([sources[i] for i in rows])
        good[rows] = np.isclose(vectors[rows], truth, **CLOSE).all(axis=1)
    return good & valid


def _was(state: State, vector: np.ndarray, origin: str, earlier: set[str]) -> bool:
    made = _made_by(state, origin)
    return bool(earlier) and bool(np.isclose(vector, made(list(earlier)), **CLOSE).all(axis=1).any())


def _made_by(state: State, origin: str) -> Callable[[list[str]], np.ndarray]:
    """What an origin makes of sources: n sources -> (n, dim)."""
    if origin == "native":
        return lambda sources: np.stack([target_vector(source) for source in sources])
    if origin not in state.artifacts:
        return lambda sources: np.full((len(sources), target_vector("").size), np.nan)
    return lambda sources: (
        state.artifacts[origin].apply(np.stack([source_vector(source) for source in sources])).vectors
    )


def _input_hash_fits(table: Any, sources: list[str], kind: Kind, row: int) -> bool:
    """Whether the input hash of a row says that its target vector belongs to what stands beside it."""
    if "v2__input_hash" not in table.schema.names or kind.vector not in table.schema.names:
        return True
    now = InputHashes.of(source_vector(sources[row])[None], np.ones(1, bool), pa.array([sources[row]]))
    stored = np.array([table["v2__input_hash"][row].as_py() or 0], np.uint64)
    return bool(now.fit(stored, np.array([table["v2__origin"][row].as_py() == "native"]))[0])


def _missing(state: State, expected: Expected, kind: Kind) -> Iterator[str]:
    """Every item is found in the active version, but for those that were just written behind the gallery's back."""
    column = kind.vector if state.status.active == "v1" else "v2"
    ids, valid = state.table[kind.id].to_pylist(), state.table[column].is_valid().to_pylist()
    missing = [item for item, there in zip(ids, valid, strict=True) if not there and item not in expected.behind]
    if missing:
        yield f"{len(missing)} items have no vector in the active version: {_first(missing)}"


def _counts(state: State) -> Iterator[str]:
    """Status counts what is there."""
    if state.status.rows != state.table.num_rows:
        yield f"status counts {state.status.rows} rows of {state.table.num_rows}"
    if state.keeps("v2"):
        counted = state.rows("v2")
        missing = state.table["v2"].null_count
        native = sum(origin == "native" for origin in state.table["v2__origin"].to_pylist())
        if (counted["missing"], counted["native"]) != (missing, native):
            yield f"status counts {counted}, the table has {missing} missing and {native} native"


def _accounts(state: State, expected: Expected) -> Iterator[str]:
    """Every native that a backfill stored was charged, and no more was charged than the budget allows."""
    for run in state.status.upgrades:
        native = state.rows("v2")["native"] if state.keeps("v2") else 0
        if expected.charged and native > run.spent.rows:
            yield f"{native} items are native and {run.spent.rows} were charged"
        if expected.most is not None and run.spent.rows > expected.most:
            yield f"{run.spent.rows} items were charged, of {expected.most} that the budget allows"


def _verified(state: State, expected: Expected) -> Iterator[str]:
    """The gallery finds no error in itself, and at the end no warning either."""
    serious = {"error", "warning"} if expected.settled else {"error"}
    for finding in state.verification.findings:
        if finding.severity in serious:
            yield f"verify: {finding.severity}: {finding.check}: {finding.what}"


def _matrix(column: Any, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """A column of vectors as ((n, dim), (n,) valid), without the zeros behind it; missing rows are NaN."""
    valid = np.asarray(column.is_valid())
    rows = [np.full(dim, np.nan) if row is None else row[:dim] for row in column.to_pylist()]
    return np.array(rows, np.float32), valid


def _first(offenders: Any) -> str:
    listed = list(offenders)
    return ", ".join(str(offender) for offender in listed[:SAMPLES]) + (", ..." if len(listed) > SAMPLES else "")
