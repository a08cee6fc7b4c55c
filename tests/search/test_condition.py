"""A condition is one expression: what the app requires holds whatever a condition from outside says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.artifacts import Artifact, Space
from compatstore.errors import InvalidInput
from compatstore.search.condition import MOST_CLAUSES, MOST_OPERATORS
from properties import examples

ROWS, DIM = 40, 4
TENANT = "tenant = 'a'"
BREAKS_OUT = "n < 5) OR (n < 5"


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """Two tenants' items, of which half are native in v2; a query of v2 searches both versions' columns."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(ROWS, DIM)).astype(np.float32)
    ids = [f"i{number}" for number in range(ROWS)]
    v1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
    encoder = cs.encoders.Precomputed(dict(zip(ids, vectors, strict=True)))
    v2 = cs.EmbeddingVersion("v2", dim=DIM, metric="l2", encoder=encoder)
    made = cs.Gallery.create(str(tmp_path_factory.mktemp("tenants") / "gallery.lance"), v1)
    tenants = ["a" if number % 2 else "b" for number in range(ROWS)]
    texts = ["x", "a'b", "a\\", "(", '"', "--"]
    notes = [texts[number % len(texts)] for number in range(ROWS)]
    made.add({"id": ids, "vector": vectors, "tenant": tenants, "n": range(ROWS), "note": notes})
    made.register(v2)
    made.artifacts.link(Artifact.create("Identity", source=Space.of(v1), target=Space.of(v2)))
    made.upgrade("v2", backfill=0.5)
    assert len(made.explain(version="v2").parts) == 2
    return made


def found(gallery, where, version):
    rows = gallery.search(np.zeros(DIM), ROWS, version, where, ["id", "tenant"])
    return dict(zip(rows["id"].to_pylist(), rows["tenant"].to_pylist(), strict=True))


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_condition_does_not_leave_its_brackets(gallery, version):
    for where in (BREAKS_OUT, [TENANT, BREAKS_OUT], [BREAKS_OUT, TENANT]):
        with pytest.raises(InvalidInput, match=r"closes nothing.*in quotes"):
            gallery.search(np.zeros(DIM), 5, version, where)
        with pytest.raises(InvalidInput, match="closes nothing"):
            gallery.explain(k=5, version=version, where=where)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_several_conditions_must_all_hold(gallery, version):
    both = found(gallery, [TENANT, "n < 5 OR n > 35"], version)
    assert sorted(both) == ["i1", "i3", "i37", "i39"]
    assert set(both.values()) == {"a"}
    assert found(gallery, (TENANT,), version) == found(gallery, TENANT, version)
    assert len(found(gallery, [], version)) == ROWS


SOUND = [
    "n < 5",
    "n IN (1, -2, 3)",
    "n BETWEEN 1 AND 5 AND NOT n = 3",
    "note = 'a''b'",
    "note = 'a\\'",
    "note = '--'",
    "note = '('",
    'note = "a\'b"',
    "note LIKE 'a%' OR `n` = 7",
    "((n) < (5))",
    "n::int < 5",
    "CAST(n AS DOUBLE) / 2 < 3",
    "date '2021-01-01' < date'2022-01-01'",
    "n - -1 < 5",
    "lower(tenant) = 'a'",
    "[1, 2][1] = 1",
    "n\n<\t5",
    "note IS NOT NULL",
    f"n IN ({', '.join(str(-n) for n in range(3000))})",
    " OR ".join(["n = 1"] * 1000),
]


@pytest.mark.parametrize("condition", SOUND, ids=lambda text: text[:30])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_what_lance_understands_is_let_through(gallery, condition, version):
    alone = gallery._catalog.store.snapshot().to_table(columns=["id"], filter=f"({condition})")["id"].to_pylist()
    assert sorted(found(gallery, condition, version)) == sorted(alone)


UNSOUND = {
    "": "empty",
    " \n": "empty",
    "n < 5)": "closes nothing",
    "(n < 5": "never closed",
    "n < 5]": "closes nothing",
    "(n < 5]": "closes nothing",
    "note = 'x": "a ' that is never closed",
    'note = "x': "never closed",
    "`n < 5": "never closed",
    "n < 5 -- x": "a comment at character 7",
    "n < 5 /* x */": "a comment",
    "n = 5--5": "a comment",
    "n < 5; n < 3": "statement's end ';'",
    "b'x' = b'x'": "b'",
    "note = n'x'": "n'",
    "note = $$x$$": r"'\$'",
    "n = ?": r"'\?'",
    "n < 5 \\": "which no condition has",
    "n < 5 \0": "which no condition has",
    "note = '\ud800'": "half characters",
    "n < 5 LIMIT 3": "in SQL",
    "n < 5 ORDER BY n": "in SQL",
    "n < 5 UNION SELECT 1": "in SQL",
    "+".join("n" * (MOST_OPERATORS + 2)) + " = 1": "operators in a row",
    "note" + " IS NOT NULL" * 2000: "operators in a row",
    "n BETWEEN 1 AND " * 2000 + "n": "operators in a row",
    "n" + "::int" * 2000 + " = 1": "operators in a row",
    " OR ".join(["n = 1"] * (MOST_CLAUSES + 2)): "IN",
}


@pytest.mark.parametrize(("condition", "message"), UNSOUND.items(), ids=lambda text: text[:30])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_what_is_not_one_expression_is_refused(gallery, condition, message, version):
    with pytest.raises(InvalidInput, match=message):
        gallery.search(np.zeros(DIM), 5, version, condition)


PIECES = [
    *("(", ")", "[", "]", "'", "''", '"', "`", "--", "/*", "*/", ";", "\\", ",", "$$", "#", "?", "{", "\0", "\n"),
    *(
        " OR ",
        " AND ",
        " NOT ",
        "1 = 1",
        "tenant = 'b'",
        TENANT,
        "n < 9",
        "true",
        " IS NULL",
        "x'41'",
        "b'",
        "E'",
        "N'",
    ),
    *(" UNION SELECT 1 ", " LIMIT 1 ", "::int", " BETWEEN 1 AND ", "tenant", "note", "é", "=", "-", "/", "*"),
]
simple = st.sampled_from(
    ["n < 9", "tenant = 'b'", "note = 'a''b'", "true", "n BETWEEN 2 AND 7", "note = '('", "n < -1"]
)
expressions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds("({})".format, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("{} AND {}".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)


@st.composite
def conditions(draw):
    """An expression into which pieces of other ones, of quotes and of comments were put at any place."""
    text = draw(expressions)
    for piece in draw(st.lists(st.sampled_from(PIECES), max_size=4)):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + piece + text[at:]
    return text


@pytest.mark.full
@examples(300)
@given(conditions())
@example(BREAKS_OUT)
@example("true) OR (true")
@example("note = 'a\\' OR true) OR (note = '")
@example("n < 9 -- ")
@example("true /*")
@example("n < 9 OR tenant = 'b'")
def test_a_condition_from_outside_never_shows_another_tenants_items(gallery, condition):
    try:
        alone = set(
            gallery._catalog.store.snapshot().to_table(columns=["id"], filter=f"({condition})")["id"].to_pylist()
        )
    except (OSError, ValueError, RuntimeError):  # Lance does not understand it
        alone = None
    for version in ("v1", "v2"):
        try:
            rows = found(gallery, [TENANT, condition], version)
        except InvalidInput:
            continue
        assert set(rows.values()) <= {"a"}
        assert set(rows) == {item for item in alone if int(item[1:]) % 2}
