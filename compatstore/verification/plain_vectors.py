"""Examine vectors before they are adopted, and preview the adoption; read-only.

All rows are read once, a batch at a time. Repeats are found among digests, or a share of them if there are
many, and two models (`two_models.py`) in a sample.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowSchema, BoolArray, Digests, FloatArray, RowNumbers
from compatstore.digests import digest_half
from compatstore.errors import CompatStoreError, InvalidInput
from compatstore.storage.create import AppColumns, adoptable
from compatstore.storage.ids import NAMED
from compatstore.storage.lancedb_functions import function_of
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.progress import OnProgress
from compatstore.verification.context import Diagnosis, Level, Tally
from compatstore.verification.plain_columns import PlainColumns, first_id, is_vectors
from compatstore.verification.two_models import SAMPLE, SEPARATED, distinct, find_mixture
from compatstore.versions import EmbeddingVersion

MOST_DIGESTS = 4 << 20  # that are held; 32 MiB
UNIT = 1e-3  # how far a length may be from 1


@dataclass
class VectorTally:
    """Counts of one column of vectors.

    Attributes:
        rows: All rows.
        empty: Rows without a vector.
        lengths: Values of a row -> rows.
        broken: Rows with NaN, infinite or missing values, by position.
        zero: Rows of zeros, by position.
        unit: Rows of unit length.
        shortest: Smallest length (l2) of those that are not zero.
        longest: Largest length.
        kept: One digest in `kept` is held: those that it divides.
        sampled: Positions of the sample, ascending.
    """

    sampled: RowNumbers
    rows: int = 0
    empty: int = 0
    broken: Tally = field(default_factory=Tally)
    zero: Tally = field(default_factory=Tally)
    unit: int = 0
    shortest: float = np.inf
    longest: float = 0.0
    kept: int = 1
    lengths: Counter[int] = field(default_factory=Counter)
    _digests: list[Digests] = field(default_factory=list)
    _sample: list[tuple[FloatArray, RowNumbers]] = field(default_factory=list)

    def add(self, column: ArrowArray) -> None:
        """Count a batch."""
        start, n = self.rows, len(column)
        self.rows += n
        valid = np.asarray(column.is_valid())
        self.empty += int((~valid).sum())
        lengths = np.asarray(pc.list_value_length(column).fill_null(-1))
        sizes, counts = np.unique(lengths[valid], return_counts=True)
        self.lengths.update(dict(zip(sizes.tolist(), counts.tolist(), strict=True)))
        dim = self.dim
        places = np.flatnonzero(valid & (lengths == dim))
        if not len(places) or not dim:
            return
        values = column.take(pa.array(places)).flatten()
        nulls = np.asarray(np.asarray(values.is_null()).reshape(-1, dim).any(axis=1), bool)
        with np.errstate(over="ignore"):
            rows = values.fill_null(0).to_numpy(zero_copy_only=False).reshape(-1, dim).astype(np.float32)
        self._flaws(rows, nulls, start + places)

    def _flaws(self, rows: FloatArray, nulls: BoolArray, places: RowNumbers) -> None:
        finite = np.isfinite(rows).all(axis=1) & ~nulls
        self.broken.add(~finite, places)
        rows, places = rows[finite], places[finite]
        sizes = np.linalg.norm(rows.astype(np.float64), axis=1)
        some = sizes > 0
        self.zero.add(~some, places)
        rows, places, sizes = rows[some], places[some], sizes[some]
        if not len(rows):
            return
        self.unit += int((np.abs(sizes - 1) <= UNIT).sum())
        self.shortest, self.longest = min(self.shortest, float(sizes.min())), max(self.longest, float(sizes.max()))
        digests = digest_half(rows)
        self._digests.append(digests[digests % np.uint64(self.kept) == 0])
        while sum(map(len, self._digests)) > MOST_DIGESTS:
            self.kept *= 2
            self._digests = [part[part % np.uint64(self.kept) == 0] for part in self._digests]
        chosen = np.isin(places, self.sampled, assume_unique=True)
        self._sample.append((rows[chosen], places[chosen]))

    @property
    def dim(self) -> int:
        """Values of most rows."""
        return self.lengths.most_common(1)[0][0] if self.lengths else 0

    @property
    def sound(self) -> int:
        """Rows that are of that length, finite and not zero."""
        return self.lengths[self.dim] - self.broken.rows - self.zero.rows

    @property
    def repeats(self) -> int:
        """Rows that repeat an earlier one to the precision of float16, about, where only a share was kept."""
        digests = np.concatenate([np.zeros(0, np.uint64), *self._digests])
        return self.kept * (len(digests) - len(np.unique(digests)))

    def sample(self) -> tuple[FloatArray, RowNumbers]:
        """Distinct sound rows of the sample, and their positions."""
        parts = [(np.zeros((0, self.dim), np.float32), np.zeros(0, np.int64)), *self._sample]
        rows, places = map(np.concatenate, zip(*(part for part in parts if part[0].shape[1] == self.dim), strict=True))
        kept = distinct(rows)
        return rows[kept], places[kept]


def look_at_vectors(plain: PlainColumns, named: Mapping[str, str | None], progress: OnProgress) -> Iterator[Diagnosis]:
    """Examine each column of vectors, ids and sources, and preview the adoption.

    Args:
        plain: The vectors.
        named: The columns "vector", "id" and "source" as the caller names them; see `doctor`.
        progress: Called as rows are read and parts compared.

    Raises:
        InvalidInput: A column is named that is not there, or holds no lists of numbers.
    """
    schema = plain.schema
    _require_named(plain, named)
    vector, key, source = named["vector"], named["id"] or first_id(schema), named["source"]
    vectors = [vector] if vector else [f.name for f in schema if is_vectors(f.type)]
    widths = {name: getattr(schema.field(name).type, "list_size", None) for name in vectors}
    what = f"{plain.name}: {len(plain)} rows, no gallery yet; columns of vectors: "
    listed = ", ".join(f"{name} ({width or 'lists of any length'})" for name, width in widths.items())
    if not vectors:
        fix = f"Name a column of lists of float32 or float16: {next_step.option('vector', next_step.COLUMN)}."
        yield Diagnosis("vectors", "problem", f"{what}none of {', '.join(schema.names)}", fix)
        return
    yield Diagnosis("vectors", "ok", what + listed)
    for name in vectors:
        yield from _column(plain, name, f" of {name}" if len(vectors) > 1 else "", key, progress)
    if source is not None:
        yield _sources(plain, source, progress)
    for name in vectors:
        yield _adoption(plain, name, key, source)


def _require_named(plain: PlainColumns, named: Mapping[str, str | None]) -> None:
    for option, name in named.items():
        if name is not None and name not in plain.schema.names:
            expected = f"{next_step.option(option)} of {', '.join(plain.schema.names)}"
            raise InvalidInput(f"examine {plain.name}", expected=expected, found=repr(name))
    vector = named["vector"]
    if vector is not None and not is_vectors(kind := plain.schema.field(vector).type):
        expected = f"{next_step.option('vector')} of lists of numbers"
        raise InvalidInput(f"examine {plain.name}", expected=expected, found=f"{vector!r} of type {kind}")


def _column(plain: PlainColumns, name: str, of: str, key: str | None, progress: OnProgress) -> Iterator[Diagnosis]:
    """Flaws of one column; `of` names it behind each topic."""
    draw = np.random.default_rng(0).choice(len(plain), min(SAMPLE, len(plain)), replace=False)
    tally = VectorTally(sampled=np.sort(draw))
    keys = list[object]()
    for batch in plain.read(list(dict.fromkeys([name, *([key] if key else [])])), progress):
        start = tally.rows
        tally.add(batch.column(name))
        if key is not None:
            inside = tally.sampled[(tally.sampled >= start) & (tally.sampled < tally.rows)] - start
            keys += batch.column(key).take(pa.array(inside)).to_pylist()
    yield from _flaws(tally, name, of)
    if tally.sound:
        yield _two_models(tally, name, of, key, keys, progress)


def _flaws(tally: VectorTally, name: str, of: str) -> Iterator[Diagnosis]:
    def diagnosis(topic: str, flawed: Tally, what: str, fix: str) -> Diagnosis:
        at = f", the first at row {', '.join(map(str, flawed.first))}" if flawed.first else ""
        found = f"{flawed.rows} rows {what}{at}" if flawed.rows else "none"
        return Diagnosis.of(f"{topic}{of}", not flawed.rows, found, fix)

    again = "Embed these rows again, or delete them: no transform and no search can use them."
    embed = "Embed them, or let an upgrade's backfill do it."
    yield diagnosis("missing vectors", Tally(tally.empty), "have none", embed)
    other = tally.rows - tally.empty - tally.lengths[tally.dim]
    if other:
        sizes = ", ".join(f"{rows} of {size} values" for size, rows in tally.lengths.most_common(NAMED))
        fix = "They are another model's, or cut off: give each length a column of its own."
        yield Diagnosis(f"lengths{of}", "problem", f"{name}: {sizes}", fix)
    yield diagnosis("not finite", tally.broken, "hold NaN, infinite or missing values", again)
    yield diagnosis("zero vectors", tally.zero, "are zero", again)
    if tally.sound:
        yield _length(tally, of)
        repeats, about = tally.repeats, "about " if tally.kept > 1 else ""
        what = f"{about}{repeats} rows repeat the vector of another one" if repeats else "none"
        fix = "Harmless where items are the same; else the encoder has failed on some of them in one way."
        level: Level = "warning" if repeats > tally.sound // 100 else "ok"
        yield Diagnosis.of(f"repeated vectors{of}", not repeats, what, fix, level)


def _length(tally: VectorTally, of: str) -> Diagnosis:
    topic = f"unit length{of}"
    if tally.unit == tally.sound:
        fix = f"Adopt it with {next_step.option('normalised', True, within='EmbeddingVersion')}."
        return Diagnosis(topic, "ok", "all vectors have it", fix)
    what = f"{tally.unit} of {tally.sound} vectors have it; lengths from {tally.shortest:.3g} to {tally.longest:.3g}"
    if not tally.unit:
        return Diagnosis(topic, "ok", what, "Choose the metric with care: l2 and dot count lengths, cosine does not.")
    fix = "Find out why some have it: an app that began to normalise ranks both kinds together under l2 and dot."
    return Diagnosis(topic, "warning", what, fix)


def _two_models(
    tally: VectorTally, name: str, of: str, key: str | None, keys: list[object], progress: OnProgress
) -> Diagnosis:
    rows, places = tally.sample()
    found = find_mixture(rows, progress=progress)
    topic = f"two models{of}"
    if found is None:
        return Diagnosis(topic, "ok", f"not tested: {len(rows)} distinct vectors are too few")
    if not found.found:
        return Diagnosis(topic, "ok", f"no sign of them in {len(rows)} distinct vectors")
    what = (
        f"a part of {found.share:.0%} of {name} differs from the rest by its spectrum: {found.separated:.1%} of rows "
        f"in held-out neighbourhoods are classified correctly, {SEPARATED:.0%} are a sign of another model"
    )
    part = places[found.part][:NAMED]
    named = part.tolist() if key is None else [keys[at] for at in np.searchsorted(tally.sampled, part)]
    what += f"; such as {key or 'rows'} {', '.join(map(str, named))}"
    fix = "Find out what embedded these rows, and embed them again by one model; or keep each model in its own column."
    return Diagnosis(topic, "problem", what, fix)


def _sources(plain: PlainColumns, source: str, progress: OnProgress) -> Diagnosis:
    kind = plain.schema.field(source).type
    texts, missing = pa.types.is_string(kind) or pa.types.is_large_string(kind), 0
    for batch in plain.read([source], progress):
        column = batch.column(source)
        empty = pc.equal(pc.utf8_trim_whitespace(column), "").fill_null(True) if texts else column.is_null()
        missing += empty.true_count
    what = f"{missing} of {len(plain)} rows have no {source}" if missing else f"each row has its {source}"
    fix = "An upgrade cannot embed these natively: they keep transformed vectors."
    return Diagnosis.of("sources", not missing, what, fix)


def _adoption(plain: PlainColumns, vector: str, key: str | None, source: str | None) -> Diagnosis:
    """The outcome of `adopt`, by its own checks."""
    topic, schema = "adoption", plain.schema
    dim = getattr(schema.field(vector).type, "list_size", 1)
    if plain.store is None:
        what = f"{plain.name} is no Lance table: its rows are added to a gallery, with columns id and vector"
        rows = next_step.Word("rows", shlex.quote(plain.name))
        made = next_step.both(next_step.creating("photos.lance", dim), next_step.call("add", rows, at="photos.lance"))
        return Diagnosis(topic, "ok", what, f"Run: {made}")
    if key is None:
        what, named = "refused: no column of ids, texts or whole numbers", next_step.option("id", next_step.COLUMN)
        return Diagnosis(topic, "problem", what, f"Add one, or name it: {named}.")
    version = _free_version(schema)
    try:
        described = EmbeddingVersion(version, dim=dim)
        record, _, sources = adoptable(plain.store, described, AppColumns(vector, key, source))
    except CompatStoreError as error:
        what = f"refused: {vector} as vectors and {key} as ids; expected {error.expected}; found {error.found}"
        return Diagnosis(topic, "problem", what, error.fix or "Name other columns.")
    found = plain.store.snapshot().describe_indices()
    indexes = ", ".join(f"{index.name} on {', '.join(index.field_names)}" for index in found)
    kept = [each for each in schema.names if each not in (vector, key, sources)]
    what = (
        f"{vector} becomes the vectors of {version} ({dim} values, {VectorForm.of(record).dtype}), {key} the ids"
        + (f", {sources} the sources" if sources else ", no column the sources: none can be embedded again")
        + (f"; {', '.join(kept)} stay metadata" if kept else "")
        + f"; no data is rewritten; indexes: {indexes or 'none'}"
    )
    declared = function_of(schema, vector)
    if declared is not None:
        what += f"; LanceDB's function {declared.name} is the model, and is built where code is trusted"
    made_as = next_step.made("EmbeddingVersion", version, dim=next_step.Word(f"{dim}", None))
    adopt = next_step.call("adopt", made_as, at=plain.name, vector=vector, id=key, source=source)
    return Diagnosis(topic, "ok", what, f"Run: {adopt}")


def _free_version(schema: ArrowSchema) -> str:
    numbers = iter(range(1, len(schema.names) + 2))
    return next(f"v{number}" for number in numbers if not any(n.split("__")[0] == f"v{number}" for n in schema.names))
