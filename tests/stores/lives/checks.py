"""What must hold at a quiet point: the app's rows, the gallery and the targets' places against the truth."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from stores.lives.rival import close, same
from stores.lives.world import NAME, SECRET, as_row, new, old


def violations(engine, truth, state, gallery):
    """All that does not hold, a sentence each."""
    return [
        *_of_the_app(engine, truth, state),
        *_of_the_switch(truth, state),
        *_of_the_gallery(truth, state),
        *_of_targets(engine, truth, state),
        *_of_itself(truth, state),
        *secrets(gallery),
    ]


def app_violations(engine, truth, first="", rows=None):
    """Rows of the app that are not as it wrote them."""
    rows = engine.rows(NAME) if rows is None else rows
    lost, extra = truth.rows.keys() - rows.keys(), rows.keys() - truth.rows.keys()
    if lost:
        yield f"{first}{len(lost)} rows of the app are lost: {_some(lost)}"
    if extra:
        yield f"{first}{len(extra)} rows are there that the app deleted or never wrote: {_some(extra)}"
    changed = [key for key in truth.rows.keys() & rows.keys() if not same(rows[key], truth.rows[key], truth.space)]
    if changed:
        key = changed[0]
        wrote = as_row(key, truth.rows[key], truth.space)
        yield f"{first}{len(changed)} rows of the app are others than it wrote: {wrote}, found {rows[key]}"


def _of_the_app(engine, truth, state):
    yield from app_violations(engine, truth)
    if truth.space == "v2" and "v1" in state.versions:  # its own vectors are kept under another name
        rows = truth.rows if truth.is_one_row else truth.kept
        if truth.is_one_row:
            kept = {key: row["target"] for key, row in engine.rows(NAME, target="before_v2").items()}
        else:
            kept = {key: row["vector"] for key, row in engine.rows(f"{NAME}_before_v2").items()}
        for key, row in rows.items():
            there = kept.get(key)
            if (there is None) != (row.v1 is None) or (there is not None and not close(there, row.v1)):
                yield f"the app's own vector of {key!r} is another one after a switch: {row.v1}, found {there}"
                return


def _of_the_switch(truth, state):
    if (state.active == "v2") != (truth.space == "v2"):
        yield f"the gallery searches {state.active} and the app reads {truth.space}"


def _of_the_gallery(truth, state):
    lost, extra = truth.rows.keys() - state.rows.keys(), state.rows.keys() - truth.rows.keys()
    if lost:
        yield f"{len(lost)} rows are not in the gallery: {_some(lost)}"
    if extra:
        yield f"{len(extra)} rows of the gallery are not in the store: {_some(extra)}"
    for key in truth.rows.keys() & state.rows.keys():
        row, here = truth.rows[key], state.rows[key]
        if (here["source"], here["lang"]) != (row.text, row.lang):
            yield f"{key!r} has {here['source'], here['lang']} in the gallery, {row.text, row.lang} in the store"
        if "v1" in state.versions:
            vector = here["v1"]
            # Cleared where the app wrote the target's vector; not where it deleted a row and added the same again.
            is_stale = truth.space == "v2" and (vector is None or close(vector, old([row.text or ""])[0]))
            if not is_stale and ((vector is None) != (row.v1 is None) or (vector and not close(vector, row.v1))):
                yield f"{key!r} has {vector} in the gallery, {row.v1} in the store ({here})"


def _of_targets(engine, truth, state):
    """Each target vector is the gallery's, and made as its origin says."""
    if "v2" not in state.versions:
        return
    placed = "v2" in state.held
    if truth.space == "v2":
        there = {key: row["vector"] for key, row in engine.rows(NAME).items()}
    elif placed:
        there = {key: row["target"] for key, row in engine.rows(NAME, target="v2").items()}
    else:
        there = None
    for key in truth.rows.keys() & state.rows.keys():
        row, here = truth.rows[key], state.rows[key]
        vector, origin = here["v2"], here["v2__origin"]
        if there is not None:
            beside = there.get(key)
            if (vector is None) != (beside is None) or (vector and not close(vector, beside)):
                yield f"{key!r} has v2 {vector} ({origin}) in the gallery, {beside} in the store, app's {row.v2}"
        if vector is None:
            continue
        if origin == "native":
            own = [row.v2] if row.v2 is not None else []  # what the app wrote since the switch stays native
            if not row.is_kept and not any(close(vector, one) for one in [*own, new([row.text or ""])[0]]):
                yield f"{key!r} has a native v2 of neither its text nor the app: {vector}, {row}"
        elif "v1" in state.versions and here["v1"] and (key not in state.made or not close(state.made[key], vector)):
            yield f"{key!r} has a v2 of {origin} that it does not make: {vector}, {state.made.get(key)}"


def _of_itself(truth, state):
    if state.findings:
        yield f"a verification finds: {state.findings}"
    for where in ("here", "store"):
        found = state.found.get(where, [])
        if len(set(found)) != len(found) or set(found) - truth.rows.keys():
            yield f"a search {where} gives rows that are not there: {_some(set(found) - truth.rows.keys())}"
    numbers = {name: state.second[name] for name in ("added", "changed", "deleted", "written", "removed")}
    if any(numbers.values()):
        yield f"a sync with nothing to do did {numbers}"


def secrets(gallery):
    """Files under the gallery's folder with a secret."""
    for path in Path(gallery).parent.rglob("*"):
        if path.is_file() and path.is_relative_to(gallery):
            data = path.read_bytes()
            for one in {SECRET, unquote(SECRET)}:
                if one.encode() in data:
                    yield f"the password is in {path.name}"


def _some(keys):
    return sorted(map(repr, keys))[:3]
