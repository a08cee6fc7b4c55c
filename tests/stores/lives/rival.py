"""The app of a life: a thread that inserts, changes, deletes and re-adds rows, and keeps the truth."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
from stores.lives.world import NAME, SPACES, Row, as_row, languages, model_of, seeded, some_text, some_vector

RECOVERY = 60.0  # seconds that a server may need to accept connections again
KINDS = ("insert", "change", "vector", "text", "metadata", "delete", "re-add", "later")


class Rival:
    """Writes through the database's own client.

    Args:
        engine: The database.
        truth: What is true, changed here.
        keys: Ids that are not used yet.
        seed: Of all choices.
        pause: Seconds between two writes, at most.
    """

    def __init__(self, engine, truth, keys, seed, pause):
        self.engine, self.truth, self.pause = engine, truth, pause
        self.violations, self.writes, self.failures = [], 0, 0
        self._languages = languages(engine)
        self._free, self._used, self._draw = keys, [], seeded(seed, "rival")
        self._keeps_nulls = getattr(engine, "keeps_nulls", True) and self._draw.random() < 0.3
        self._lock, self._over = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()

    def stop(self):
        self._over.set()
        self._thread.join()

    @contextmanager
    def paused(self):
        """Keep the app from writing."""
        with self._lock:
            yield

    def _run(self):
        while not self._over.is_set():
            with self._lock:
                try:
                    self.step()
                except Exception as error:
                    self.violations.append(f"the app failed: {type(error).__name__}: {error}")
                    return
            self._over.wait(self._draw.uniform(0.2, 1) * self.pause)

    def step(self):
        """Write one row."""
        truth, draw = self.truth, self._draw
        kind = draw.choice(KINDS)
        if kind in ("insert", "later") and self._free:
            key = self._free.pop()
            self._write(key, self._made(None, kind))
        elif kind == "re-add" and self._used:
            self._write(self._used.pop(draw.randrange(len(self._used))), self._made(None, kind))
        elif truth.rows:
            key = draw.choice(list(truth.rows))
            if kind == "delete":
                self._remove(key)
            else:
                self._write(key, self._made(truth.rows[key], kind, key))

    def _made(self, before, kind, key=None):
        """A row for an insertion, or changed; with the vector to write where that is none of the app's."""
        draw, space = self._draw, self.truth.space
        text = some_text(draw)
        vector = model_of(space)([text])[0]
        if before is None:
            if kind == "later" and self._keeps_nulls:
                vector = None  # the app embeds it later
            return replace(Row(text, draw.choice(self._languages), None), **{space: vector})
        if kind == "vector":
            changed = {space: some_vector(draw, space), **self._stale(before)}
            return replace(before, **changed)  # a native one belongs to the text
        if kind in ("text", "metadata"):
            found = self.rows().get(key)
            own = {} if found is None or found["vector"] is None else {space: np.array(found["vector"], np.float32)}
            if own and SPACES[len(own[space])] != space:  # switched since
                self.follow()
                return self._made(self.truth.rows.get(key, before), kind, key)
            if kind == "text" and space == "v2" and before.v2 is None:
                return replace(before, text=text, is_kept=True), own.get("v2")
            if kind == "text":
                return replace(before, text=text, **own, **self._stale(before))
            if space == "v2" and before.v2 is None:
                return replace(before, lang=draw.choice(self._languages)), own.get("v2")  # it stays an upgrade's
            return replace(before, lang=draw.choice(self._languages), **own)
        return replace(before, text=text, **{space: vector, **self._stale(before)})

    def _stale(self, before):
        """A target's vector of before a change of text or source vector is no more what the app wants; it may stay."""
        if self.truth.space == "v2":
            return {}
        return {"v2": None, "is_kept": before.is_kept or before.v2 is not None}

    def _write(self, key, row):
        row, vector = row if isinstance(row, tuple) else (row, None)
        before, space = self.truth.rows.get(key), self.truth.space
        written = as_row(key, row, space)
        if vector is not None:
            written["vector"] = vector.tolist()
        try:
            self.engine.put(NAME, [written])
        except Exception as error:
            if not self._happened(key, before, row, error):
                if before is None:
                    self._free.append(key)
                return
        self.writes += 1
        self.truth.rows[key] = row

    def _remove(self, key):
        try:
            self.engine.delete(NAME, [key])
        except Exception as error:
            if not self._happened(key, self.truth.rows[key], None, error):
                return
        self.writes += 1
        del self.truth.rows[key]
        self._used.append(key)

    def _happened(self, key, before, after, error):
        """True if a write whose client raised is in the database nevertheless."""
        self.failures += 1
        try:
            rows = self.rows()
        except Exception:
            raise error from None
        found, space = rows.get(key), self.truth.space
        self.follow(rows)
        if self.truth.space != space:
            return False  # its vector was one of the other model
        if same(found, after, space):
            return True
        if not same(found, before, space):
            self.violations.append(f"half of a write of {key!r}: {before} -> {after}, found {found}")
        return False

    def rows(self):
        """Rows that the app reads; waits for a server that restarts."""
        ends = time.monotonic() + RECOVERY
        while True:
            try:
                return self.engine.rows(NAME)
            except Exception:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.05)
                with suppress(Exception):
                    getattr(self.engine, "reconnect", lambda: None)()

    def follow(self, rows=None):
        """Write vectors of the model that the database has under the name that the app knows."""
        rows = self.rows() if rows is None else rows
        lengths = {len(row["vector"]) for row in rows.values() if row["vector"] is not None}
        if len(lengths) > 1:
            self.violations.append(f"vectors of {lengths} values under one name")
        elif lengths:
            self.truth.enter(SPACES[lengths.pop()])


def same(found, row, space):
    """True if a row is as the app wrote it, as far as it did."""
    if found is None or row is None:
        return found is row
    vector = getattr(row, space)
    if (found["text"], found["lang"]) != (row.text, row.lang):
        return False
    if vector is None:
        return space == "v2" or found["vector"] is None
    return found["vector"] is not None and close(found["vector"], vector)


def close(one, other):
    """True if two vectors are one, up to the scaling of a store."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    if one.shape != other.shape:
        return False
    return bool(np.allclose(one / np.linalg.norm(one), other / np.linalg.norm(other), atol=1e-5))
