"""Pages of results: figures are those of the journals, tables and recorded sessions those that their tools write."""

from __future__ import annotations

import re
import runpy

from lint.tree import ROOT, assert_none, page, planted_page, read_pages

# Every figure of a page of results is held by a statement, but for those of these pages, which benchmarks print.
PRINTED = {"bounds", "crashes", "index_upgrade", "learning_intervals", "natives", "ray", "stopping"}
COVERED = re.compile(rf"docs/(results/(?!({'|'.join(sorted(PRINTED))})\.md)[^/]+|training)\.md")
# On these pages, figures beside a measure of retrieval are.
RETRIEVAL = ("README.md", "docs/architecture.md", "docs/decisions.md")


def of_retrieval(prose):
    """True for a paragraph that gives figures of retrieval, and does not name the page that has them."""
    return re.search(r"\b(CMC|mAP)\b", prose) is not None and "stopping.md" not in prose


def covered_by(place):
    """The paragraphs of a page in which each figure needs a statement."""
    if COVERED.fullmatch(place):
        return lambda prose: True
    return of_retrieval if place in RETRIEVAL else lambda prose: False


def wrong_sentences(pages):
    """Statements that do not hold, and figures without a statement."""
    from benchmarks.claims import findings

    for each in pages:
        yield from (f"{each.place}: {finding}" for finding in findings(each.text, covered=covered_by(each.place)))


def stale_papers(pages, sentences):
    """Pages on papers that differ from what the journals give, or whose sizes are not those that were measured."""
    from benchmarks.papers.__main__ import fill
    from benchmarks.papers.verdicts import SIZES, found_of

    for each in pages:
        said = sentences[each.path.stem]
        if fill(each.text, said) != each.text:
            yield f"{each.place}: run python -m benchmarks.papers"
        measured = {size for size in SIZES if any(found_of(one, size) for one in said)}
        shown = {*re.findall(r"<!-- size: (\w+) -->", each.text)}
        if "standard" not in measured or measured != shown:
            yield f"{each.place}: sizes {sorted(shown)}, measured {sorted(measured)}"


def unlike_session(place, text, prompts):
    """Differences between a recorded session and the commands that its tool runs, each behind its prompt."""
    shown = re.findall(r"^\$ (?:.*\\\n)*.*", text, flags=re.MULTILINE)
    if shown != prompts:
        yield f"{place}: runs {shown}, its tool {prompts}"
    if "(exit code" in text:
        yield f"{place}: a command that failed"


def test_sentences_are_what_the_journals_hold():
    assert_none(wrong_sentences(read_pages()))


def test_pages_on_papers_are_as_the_journals_are():
    from benchmarks.papers.__main__ import PAGES

    assert_none(stale_papers([page(f"docs/results/papers/{name}.md") for name in PAGES], PAGES))


def test_recorded_sessions_are_those_that_their_tool_runs():
    record = runpy.run_path(str(ROOT / "docs" / "tools" / "record.py"))
    recording, weights = page("docs/recording.md"), page("docs/results/real_weights.md")
    sessions = [(recording.place, recording.text, "SESSION")]
    for name in ("PHOTOGRAPHS", "TEXTS"):
        marks = [f"{word}: {name.lower()}" for word in ("begin", "end")]
        part = weights.text.partition(marks[0])[2].partition(marks[1])[0]
        sessions.append((f"{weights.at(marks[0])}", part, name))
    assert record["MODELS"].rstrip() in recording.text
    for place, text, name in sessions:
        assert_none(unlike_session(place, text, [record["prompt"](command) for command in record[name]]))


def test_each_rule_finds_a_planted_offender():
    from benchmarks.papers.__main__ import PAGES

    gain = 'methods("classes", "Glyphs", "BCT", "t/s").map'
    text = f"BCT is 5.9 points above.\n<!-- check\n{gain} < 0\n-->\n\nAn mAP of 3.1.\n"
    by_place = {
        "docs/results/pairs.md": ["does not hold", "no statement covers 5.9", "no statement covers 3.1"],
        "README.md": ["does not hold", "no statement covers 3.1"],
        "docs/results/ray.md": ["does not hold"],
        "docs/table.md": ["does not hold"],
    }
    for place, expected in by_place.items():
        wrong = [each.removeprefix(f"{place}: ") for each in wrong_sentences([planted_page(text, place)])]
        assert [each.startswith(begin) for each, begin in zip(wrong, expected, strict=True)] == [True] * len(expected)
    name = next(iter(PAGES))
    paper = planted_page("<!-- size: standard -->\nOf 99 sentences.\n<!-- end -->\n", f"docs/results/papers/{name}.md")
    assert next(stale_papers([paper], {name: PAGES[name][:1]})).endswith("run python -m benchmarks.papers")
    assert list(stale_papers([planted_page("", paper.place)], {name: PAGES[name][:1]}))
    session = "\n$ a --long \\\n    b\nprinted\n\n$ c\n"
    assert list(unlike_session("a", session, ["$ a --long \\\n    b", "$ c"])) == []
    assert list(unlike_session("a", session, ["$ c", "$ a --long \\\n    b"]))
    assert list(unlike_session("a", session + "(exit code 3)", ["$ a --long \\\n    b", "$ c"]))
