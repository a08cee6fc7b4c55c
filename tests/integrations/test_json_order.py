"""Texts in a column of JSON are ordered by their characters, not by how JSON writes them."""

from __future__ import annotations

import json
import operator

import lance
import pyarrow as pa
import pytest

from compatstore.integrations.filter_sql import Fields, to_sql
from compatstore.integrations.filters import Term, metadata

TEXTS = ['a"b', "a", "a\nb", "a\\b", "a\\nb", "plain", '"', "\x01", "\x01a", "\x01b", "\\u0001", "\x00", "\x1f", "\x7f"]
TEXTS += ["", " ", "/", "\\", "\\\\", "é", "\U0001f600", "[1]", "1", '"a"', "Z", "a\tb", "\b", "\f\r"]
VALUES = [*TEXTS, 1, True, None, ["x"], {"a": 1}]
COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("json") / "t.lance"
    texts = pa.array([json.dumps({"k": value}, ensure_ascii=False) for value in VALUES])
    column = pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts)
    return lance.write_dataset(pa.table({"row": range(len(VALUES)), "m": column}), path)


@pytest.mark.parametrize("compared", COMPARE)
def test_an_order_of_texts_is_that_of_their_characters(table, compared):
    for wanted in TEXTS:
        sql = to_sql(Term(metadata("k"), compared, wanted), Fields({}, "m"))
        found = table.to_table(columns=["row"], filter=sql)["row"].to_pylist()
        asked = [isinstance(one, str) and COMPARE[compared](one.encode(), wanted.encode()) for one in VALUES]
        assert found == [row for row, fits in enumerate(asked) if fits], (wanted, compared)
