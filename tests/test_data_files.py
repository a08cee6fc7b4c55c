import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compatstore.data_files import read_columns
from compatstore.errors import InvalidInput


def test_lists_are_matrices_and_other_columns_are_read_as_they_are(tmp_path):
    fixed = pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2))
    table = pa.table({"id": ["a\0", None], "vector": [[1.0, 2.0], [3.0, 4.0]], "fixed": fixed})
    pq.write_table(table, tmp_path / "v.parquet")
    columns, names = read_columns(tmp_path / "v.parquet", "read", ("id", "fixed", "gone"))
    assert (columns["id"], columns["fixed"].tolist()) == (["a\0", None], [[1, 2], [3, 4]])
    assert (list(columns), names) == (["id", "fixed"], ["id", "vector", "fixed"])


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float32())])
def test_columns_without_rows_or_values_have_no_values(tmp_path, kind):
    for rows in ([], [[], []]):
        pq.write_table(pa.table({"vector": pa.array(rows, kind)}), tmp_path / "v.parquet")
        assert read_columns(tmp_path / "v.parquet", "read")[0]["vector"].shape == (len(rows), 0)


@pytest.mark.parametrize(
    ("rows", "said"),
    [([[1.0], None], "1 nulls"), ([[1.0], [None]], "1 nulls"), ([[1.0], [1.0, 2.0]], "2 lengths: 1, 2")],
)
def test_lists_that_are_no_matrix(tmp_path, rows, said):
    pq.write_table(pa.table({"vector": rows}), tmp_path / "v.parquet")
    with pytest.raises(InvalidInput, match=said):
        read_columns(tmp_path / "v.parquet", "read")
