"""What new users stumbled over: tables that do not fit, advice that leads nowhere, errors that name another thing."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from compatstore.cli import output
from compatstore.cli.output import fitted
from compatstore.shown import Table


@pytest.fixture
def tables(monkeypatch):
    """The tables that verbs show from here on."""
    shown, fitted = [], output.fitted

    def fit(part, width):
        shown.extend([part] if isinstance(part, Table) else [])
        return fitted(part, width)

    monkeypatch.setattr(output, "fitted", fit)
    return shown


def letters(text):
    return sorted("".join(text.split()))


@pytest.mark.full
def test_every_table_of_every_verb_is_whole_at_50_and_at_200_columns(run, linked, tables, tmp_path):
    for words in (
        ("status", linked),
        ("versions", linked),
        ("search", linked, "--id", "digit-0001", "-k", 3),
        ("upgrade", linked, "v2", "--backfill", 0.25, "--set", "gates.sample=250", "--dry-run"),
        ("evaluate", linked, "v2", "--sample", 250, "--labels", "label"),
        ("upgrade", linked, "v2", "--backfill", 0.1),
        ("unbackfillable", linked, "v2"),
        ("report", linked, "v2", "--labels", "label"),
        ("history", linked),
        ("verify", linked),
        ("doctor", linked),
        ("train", "ridge", "--gallery", linked, "--from", "v1", "--to", "v2", "--out", tmp_path / "h.compat"),
    ):
        assert run(*words).code in (0, 9), words
    assert len(tables) > 12
    for table in tables:
        assert not any(sign in cell for row in table.rows for cell in row for sign in ("{'", "[{", "=("))
        for width in (50, 200):
            console = Console(width=width, file=io.StringIO(), color_system=None)
            console.print(fitted(table, width))
            text = console.file.getvalue()
            assert max(map(len, text.splitlines())) <= width
            cells = "".join("".join(row) for row in table.rows)
            heads = "".join(table.headings)
            as_grid, as_records = heads + cells, heads * len(table.rows) + cells
            assert letters(text) in (letters(as_grid), letters(as_records))


def test_help_says_what_an_upgrade_embeds_by_default(run):
    told = " ".join(run("upgrade", "--help").out.split())
    assert "Without any limit a first sample is embedded, 2 % of the gallery" in told


def test_an_upgrade_that_cuts_over_does_not_advise_to(run, linked):
    assert "next: compatstore cutover" in run("upgrade", linked, "v2").out
    assert "next:" not in run("upgrade", linked, "v2", "--cutover").out


@pytest.mark.full
def test_a_report_measures_where_labels_are_named_and_says_where_it_does_not(run, linked):
    run("upgrade", linked, "v2")
    bare = run("report", linked, "v2")
    assert f"Nothing was estimated or measured: compatstore report {linked} v2 --sample 500 measures." in bare.out
    for words, truth in ((("--labels", "label"), "labels"), (("--sample", 300), "")):
        measured = run("report", linked, "v2", *words, "--json").json["measured"]
        assert measured["truth"] == truth
        assert measured["num_queries"] > 100
    refused = run("report", linked, "v2", "--criterion", "cmc@1")
    assert refused.code == 2
    assert "estimate cmc@1; expected labels or qrels" in refused.err


def test_computed_columns_can_be_asked_for(run, linked):
    words = ("search", linked, "--id", "digit-0001", "-k", 2)
    assert [list(row) for row in run(*words, "--columns", "id, _distance", "--json").json] == [["id", "_distance"]] * 2
    assert list(run(*words, "--columns", "_version", "--json").json[0]) == ["_version"]
    assert list(run(*words, "--columns", "id", "--json").json[0]) == ["id", "_distance", "_version", "_origin"]


def test_errors_name_the_gallery_as_it_was_typed(run, linked, digits, monkeypatch):
    monkeypatch.chdir(linked.parent)
    typed = f"./{linked.name}"
    for words in (
        ("add", typed, digits / "v1.npz"),
        ("search", typed, "--id", "nobody"),
    ):
        refused = run(*words)
        assert refused.code in (2, 3)
        assert typed in refused.err, refused.err
