"""Conditions on metadata select in SQL what they mean, whatever texts they hold."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.errors import InvalidInput
from compatstore.integrations.filter_sql import Fields, to_sql
from compatstore.integrations.filters import DEEPEST, ID, AllOf, AnyOf, Not, Term, metadata
from filter_meaning import matches
from properties import examples

INJECTIONS = [
    "' OR '1'='1",
    "'; DROP TABLE x; --",
    "x' --",
    "') OR (TRUE",
    "\\' OR 1=1 --",
    '" OR "1"="1',
    "` OR `1`=`1",
    "/* */",
    "$.a",
    '"}',
    "%",
    "_",
    ".*",
    "a)|(.*",
    "\\",
    "''",
    "'",
    "\0",
    "é\u2028\U0001f600",
    "x\ny\tz",
    "{}",
    "\x7f\x01",
]
TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "ab c",
    "A",
    "ΑΣ",
    "İ",
    "true",
    "null",
    "1",
    "1.0",
    "[1]",
    "\\n",
    'say "',
    "say \\",
    *INJECTIONS,
]
DATES = [
    "2024-02-29",
    "2023-02-29",
    "2024-02-29T10:00:00",
    "2024-02-29 10:00:00",
    "2024-02-29T10:00:00Z",
    "2024-02-29T12:00:00+02:00",
    "2024-02-29T10:00:00.5",
    "2024-02-29T10:00:00.000001-11:30",
    "0001-01-01",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59",
    "2024-02-29T24:00:00",
    "2024-13-01",
    "2024-02-29T10:00",
    "20240229",
    "2024-02-29T10:00:60",
]
NUMBERS = [
    0,
    -0.0,
    0.0,
    1,
    1.0,
    -1,
    2,
    2.5,
    0.1,
    1e-7,
    1.5e300,
    1e22,
    2**53,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    20,
    1e16,
    123456789.125,
]
PLAIN = [None, True, False, *NUMBERS, *TEXTS, *DATES]
LISTS = [
    [],
    [1],
    [1, "1", True, None],
    ["a", 2.5],
    [[1], 1],
    ["x", {"a": 1}, "y"],
    TEXTS,
    NUMBERS,
    ["a,b", 'a"]'],
    [[]],
]
VALUES = [*PLAIN, *LISTS, {}, {"b": 1}, {"b": {"c": "x"}, "0": 1}]
ESCAPED = {*'"\\', *map(chr, range(32))}  # in a column of their own, texts are ordered as they are
KEYS = ["a", "it's", 'q"', "dotted.key", "$", "", "b c", "é", "\0", "`", "id", "source", "vector"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A gallery of JSON metadata, one value of each kind under each of a few keys: (gallery, items, fields)."""
    path = tmp_path_factory.mktemp("filters") / "values.lance"
    gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=2), metadata={"metadata": "json"})
    values = [{KEYS[place % len(KEYS)]: value, "a": value} for place, value in enumerate(VALUES)] + [{}]
    ids = [f"{number}" for number in range(len(values))]
    documents = [json.dumps(value) for value in values]
    gallery.add({"id": [*ids, "none"], "vector": [[0.0, 1.0]] * (len(ids) + 1), "metadata": [*documents, None]})
    items = {
        i: {("metadata", key): v for key, v in value.items()} | {ID: i} for i, value in zip(ids, values, strict=True)
    }
    items["none"] = {ID: "none"}
    return gallery, items, Fields({ID: ("id", pa.string())}, json="metadata")


def plain():
    moments = st.sampled_from([date(2024, 2, 29), datetime(2024, 2, 29, 10), datetime(2024, 2, 29, 10, tzinfo=UTC)])
    known = st.sampled_from([value for value in PLAIN if value is not None])
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    return known | moments | texts | numbers | st.sampled_from(INJECTIONS)


def fields():
    keys = st.sampled_from(KEYS)
    return st.builds(metadata, keys) | st.builds(metadata, keys, st.sampled_from(["b", "x"])) | st.just(metadata("a"))


def texts():
    return plain().filter(lambda value: isinstance(value, str))


def conditions():
    tests = (
        st.builds(Term, fields(), st.sampled_from(["=", "holds"]), plain())
        | st.builds(
            Term,
            fields(),
            st.sampled_from(["<", "<=", ">", ">="]),
            plain().filter(lambda value: not isinstance(value, bool)),
        )
        | st.builds(Term, fields(), st.just("in"), st.lists(plain(), max_size=4).map(tuple))
        | st.builds(Term, fields(), st.sampled_from(["mentions", "mentions in any case"]), texts())
        | st.builds(Term, fields(), st.sampled_from(["missing", "empty"]))
        | st.builds(Term, st.just(ID), st.just("in"), st.lists(st.sampled_from(["0", "7", "x"])).map(tuple))
    )
    return st.recursive(
        tests,
        lambda inner: (
            st.builds(Not, inner)
            | st.builds(AllOf, st.lists(inner, max_size=3).map(tuple))
            | st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple))
        ),
        max_leaves=6,
    )


def selected(stored, condition):
    gallery, _, where = stored
    return sorted(gallery.scan(["id"], to_sql(condition, where)).to_arrow()["id"].to_pylist())


def meant(stored, condition):
    return sorted(i for i, item in stored[1].items() if matches(condition, item))


@pytest.mark.full
@examples(400)
@given(condition=conditions())
@example(condition=Not(Term(metadata("a"), "=", 0)))
def test_sql_selects_what_a_condition_means(stored, condition):
    assert selected(stored, condition) == meant(stored, condition)


@pytest.mark.full
@examples(100)
@given(values=st.lists(plain(), min_size=1, max_size=12))
def test_equalities_of_one_field_are_one_list_however_they_are_nested(stored, values):
    first, *rest = (Term(metadata("a"), "=", value) for value in values)
    condition = AnyOf((first, AnyOf(tuple(rest[:3])), *(AllOf((AllOf((part,)),)) for part in rest[3:])))
    listed = Term(metadata("a"), "in", tuple(values))
    assert to_sql(condition, stored[2]) == f"({to_sql(listed, stored[2])})"
    assert selected(stored, condition) == meant(stored, condition)


def test_any_of_tests_of_two_fields_and_others(stored):
    equal = tuple(Term(metadata(name), "=", value) for value in ("a", 1, True, "2024-02-29") for name in "ab")
    condition = AnyOf((*equal, Term(metadata("a"), ">", 2), Not(AnyOf((Term(metadata("b"), "missing"), *equal)))))
    assert selected(stored, condition) == meant(stored, condition)
    assert to_sql(condition, stored[2]).count(" IN (") == 12  # one of texts and two of numbers, for two fields, twice


@pytest.mark.parametrize("value", [True, False])
def test_truth_has_no_order(value):
    with pytest.raises(InvalidInput, match="has an order"):
        Term(metadata("a"), "<", value)


@pytest.mark.full
@pytest.mark.parametrize("test", ["=", "<", "<=", ">", ">=", "holds"])
def test_every_value_against_every_value(stored, test):
    for value in PLAIN:
        if value is not None and (test in ("=", "holds") or not isinstance(value, bool)):
            condition = Term(metadata("a"), test, value)
            assert selected(stored, condition) == meant(stored, condition)


@pytest.mark.parametrize("test", ["mentions", "mentions in any case"])
def test_every_text_in_every_text(stored, test):
    for text in (*TEXTS, *DATES):
        condition = Term(metadata("a"), test, text)
        assert selected(stored, condition) == meant(stored, condition)


@pytest.mark.parametrize("text", INJECTIONS, ids=ascii)
def test_an_injection_stays_a_value(stored, text):
    gallery, items, _ = stored
    before = len(gallery.scan())
    as_key = selected(stored, Term(metadata(text), "=", "no such value"))
    as_value = selected(stored, Term(metadata("a"), "=", text))
    assert as_key == []
    assert as_value == sorted(i for i, item in items.items() if item.get(("metadata", "a")) == text)
    assert len(gallery.scan()) == before


COLUMNS = {
    "n": (pa.int64(), [1, None, 2**53 + 1, -5]),
    "small": (pa.int8(), [1, None, 100, -5]),
    "x": (pa.float64(), [0.0, None, -0.0, float("inf")]),
    "single": (pa.float32(), [0.5, None, 0.1, float("nan")]),
    "yes": (pa.bool_(), [True, None, False, True]),
    "text": (pa.string(), ["a", None, "2024-02-29T10:00:00Z", "it's"]),
    "large": (pa.large_string(), ["", None, "İ", "'"]),
    "at": (pa.timestamp("us"), [datetime(2024, 2, 29, 10), None, datetime(1, 1, 1), datetime(2024, 3, 1)]),
    "zoned": (pa.timestamp("us", "Europe/Berlin"), [datetime(2024, 2, 29, 10, tzinfo=UTC), None, None, None]),
    "day": (pa.date32(), [date(2024, 2, 29), None, date(1, 1, 1), date(2024, 3, 1)]),
    "tags": (pa.list_(pa.string()), [["a", "it's"], None, [], ["b"]]),
    "counts": (pa.list_(pa.int32()), [[1, 2], None, [], [3]]),
    "shares": (pa.list_(pa.float32()), [[0.5, 1.0], None, [], [0.1]]),
}


@pytest.fixture(scope="module")
def columns(tmp_path_factory):
    """The same for columns of their own."""
    path = tmp_path_factory.mktemp("filters") / "columns.lance"
    schema = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
    gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=2), metadata=schema)
    arrays = {name: pa.array(values, kind) for name, (kind, values) in COLUMNS.items()}
    gallery.add({"id": list("abcd"), "vector": [[0.0, 1.0]] * 4, **arrays})
    rows = gallery.scan(["id", *COLUMNS]).to_arrow().to_pylist()
    items = {row["id"]: {metadata(name): row[name] for name in COLUMNS} for row in rows}
    return gallery, items, Fields({metadata(field.name): (field.name, field.type) for field in schema})


@pytest.mark.parametrize("test", [("=", "2024-02-29"), ("in", ("2024-02-29",))])
def test_a_date_is_equal_to_the_text_of_its_day(columns, test):
    condition = Term(metadata("day"), *test)
    assert selected(columns, condition) == meant(columns, condition) == ["a"]


@pytest.mark.full
@examples(300)
@given(data=st.data())
def test_columns_of_their_own(columns, data):
    name = st.sampled_from(sorted(COLUMNS)).map(metadata)
    own = st.sampled_from(
        [value for _, values in COLUMNS.values() for value in values if isinstance(value, str | date)]
    )
    values = (plain() | own).filter(lambda value: not isinstance(value, str) or not ESCAPED & set(value))
    kind = data.draw(st.sampled_from(["=", "<", "<=", ">", ">=", "holds", "in", "empty", "missing", "mentions"]))
    if kind in ("empty", "missing"):
        test = Term(data.draw(name), kind)
    elif kind == "in":
        test = Term(data.draw(name), kind, tuple(data.draw(st.lists(values, max_size=3))))
    elif kind == "mentions":
        test = Term(data.draw(name), data.draw(st.sampled_from([kind, f"{kind} in any case"])), data.draw(texts()))
    else:
        usable = values.filter(lambda value: kind in ("=", "holds") or not isinstance(value, bool))
        test = Term(data.draw(name), kind, data.draw(usable))
    condition = data.draw(st.sampled_from([test, Not(test)]))
    assert selected(columns, condition) == meant(columns, condition)


def test_an_unknown_field_without_json_is_refused(columns):
    where = columns[2]
    with pytest.raises(InvalidInput, match=r"metadata\.lost.*a field that the gallery has"):
        to_sql(Term(metadata("lost"), "=", 1), where)


def test_a_condition_works_in_a_search(stored):
    gallery, _, where = stored
    condition = to_sql(AllOf((Term(metadata("a"), "=", "it's"), Not(Term(metadata("a"), "missing")))), where)
    assert gallery.search([0.0, 1.0], where=[condition, "id <> 'x'"]).num_rows == 0
    found = gallery.search([0.0, 1.0], where=to_sql(Term(metadata("a"), "=", "' OR '1'='1"), where))
    assert (
        found["metadata"].to_pylist() == [json.dumps({"a": "' OR '1'='1"}, separators=(",", ":"))]
        or found.num_rows == 1
    )


@pytest.mark.parametrize(
    ("test", "value"),
    [
        ("=", None),
        ("=", [1]),
        ("=", float("nan")),
        ("=", 2**63),
        ("=", "\ud800"),
        ("in", 1),
        ("in", (1, None)),
        ("missing", 1),
        ("mentions", 1),
        ("<", True),
        ("~", 1),  # no such operator
        ("in", tuple(range(5001))),
    ],
    ids=ascii,
)
def test_what_cannot_be_tested_is_refused(test, value):
    with pytest.raises(InvalidInput):
        Term(metadata("a"), test, value)


@pytest.mark.parametrize("wrap", [Not, lambda inner: AllOf((inner,)), lambda inner: AnyOf((inner,))], ids=range(3))
def test_deep_conditions_are_refused(stored, wrap):
    condition = Term(metadata("a"), "=", 1)
    for _ in range(DEEPEST):
        condition = wrap(condition)
    assert selected(stored, condition) == meant(stored, condition)
    with pytest.raises(InvalidInput, match="nested"):
        to_sql(Not(condition), stored[2])


@pytest.mark.parametrize("values", [NUMBERS, [0], [-0.0], [2**53 + 1], [float(2**53)], [1, "1", True, 1.0, DATES[0]]])
def test_numbers_among_others(stored, columns, values):
    for gallery, names in ((stored, ["a"]), (columns, ["n", "small", "x", "single", "text", "yes"])):
        for name in names:
            condition = Term(metadata(name), "in", tuple(values))
            assert selected(gallery, condition) == meant(gallery, condition)


@pytest.mark.full
def test_many_values_and_parts(stored):
    many = (*(f"x{number}" for number in range(4999)), "it's")
    condition = AllOf(tuple(Not(Term(metadata("a"), "=", number)) for number in range(300)))
    assert selected(stored, Term(metadata("a"), "in", many)) == meant(stored, Term(metadata("a"), "in", many))
    assert selected(stored, condition) == meant(stored, condition)
