"""Whatever was fetched of a part: when the merge calls itself complete, it is the merge of all there is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from compatstore.evaluation import Calibration
from compatstore.search.parts import PartResult, merged

pytestmark = pytest.mark.full

DISTANCES = st.lists(st.integers(0, 20), max_size=12)


@st.composite
def calibrations(draw):
    """A function from 0..20 to any distances, steep, flat, or crowded far beyond or before the other part's."""
    size = draw(st.integers(1, 4))
    x = sorted(draw(st.sets(st.integers(-2, 22), min_size=size, max_size=size)))
    y = sorted(draw(st.sets(st.floats(-30, 50), min_size=size, max_size=size)))
    slope = draw(st.sampled_from([1e-3, 1.0, 50.0]))
    return Calibration(distances=tuple(map(float, x)), mapped=tuple(y), slope=slope)


def table(name, distances):
    return pa.table(
        {"id": pa.array([f"{name}-{i}" for i in range(len(distances))], pa.string()), "_distance": pa.array(distances)},
        schema=pa.schema([("id", pa.string()), ("_distance", pa.float32())]),
    )


@given(
    native=DISTANCES,
    source=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=12),
    k=st.integers(1, 5),
    fetched=st.integers(1, 12),
    merge=st.sampled_from(["distance", "calibrated", "reciprocal rank"]),
    calibration=calibrations(),
)
def test_what_is_complete_is_what_all_rows_would_give(native, source, k, fetched, merge, calibration):
    """Rows of the source are (distance, whether they are native elsewhere)."""

    def seen(distance):
        """The distance of a source row as the merge sees it."""
        mapped = calibration.apply(np.array([float(distance)])) if merge == "calibrated" else [distance]
        return float(np.float32(mapped[0]))

    near, ranked = sorted(native), sorted(source, key=lambda row: row[0])
    own = [seen(distance) for distance, elsewhere in ranked if not elsewhere]
    all_rows, _ = merged([PartResult(table("n", near[:k]), None), PartResult(table("s", own[:k]), None)], merge, k)

    some = ranked[:fetched]
    kept = [seen(distance) for distance, elsewhere in some if not elsewhere]
    parts = [
        PartResult(table("n", near[:k]), float(near[k - 1]) if len(near) >= k else None),
        PartResult(table("s", kept), seen(some[-1][0]) if len(some) == fetched else None),
    ]
    rows, complete = merged(parts, merge, k)
    event(f"complete: {complete}")
    if complete:
        assert rows["_distance"].to_pylist() == all_rows["_distance"].to_pylist()
        if merge == "reciprocal rank":
            assert rows["id"].to_pylist() == all_rows["id"].to_pylist()
    assert complete or len(kept) < k or rows.num_rows < k
