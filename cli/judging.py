"""The verb `judge`: blind comparisons in a terminal, on a page, or by clicks."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

import click

from compatstore.cli.exit_codes import end_on_signals
from compatstore.cli.output import Output, console, is_terminal
from compatstore.cli.verb import gallery_verb, open_gallery, trust_code_option
from compatstore.html import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from compatstore.evaluation import Preference
    from compatstore.gallery.judging import Judging
    from compatstore.upgrade.estimates.details import ShownItem
    from compatstore.upgrade.estimates.side_by_side import Case

ANSWERS: dict[str, Literal["left", "right", "same"]] = {"l": "left", "r": "right", "s": "same"}
BACK, QUIT = "b", "q"
TALL = 30  # lines of a terminal that has two for an item
KEYS = "l left is better   r right is better   s same   b back   q stop and save"


@gallery_verb(
    "judge",
    "judge photos.lance v2 --queries queries.jsonl",
    "judge photos.lance v2 --queries queries.jsonl --page judge.html",
    "judge shop.lance v2 --queries queries.jsonl --clicks clicks.csv",
)
@click.argument("target")
@click.option("--queries", required=True, metavar="FILE", help="The application's queries, as evaluate takes them.")
@click.option(
    "--num",
    type=int,
    default=100,
    show_default=True,
    metavar="N",
    help="Queries to judge, drawn from those that differ.",
)
@click.option("--page", metavar="PATH", help="Write a page to judge in a browser, instead of the terminal.")
@click.option("--answers", metavar="FILE", help="Store the answers that such a page saved.")
@click.option("--clicks", metavar="FILE", help="Judge by clicks, in a format of qrels: query id, item id, count.")
@trust_code_option
def judge(
    output: Output,
    gallery: str,
    target: str,
    queries: str,
    num: int,
    page: str | None,
    answers: str | None,
    clicks: str | None,
    trust_code: bool,
) -> None:
    """Compare both versions side by side, without labels.

    Each query searches the version before TARGET, and TARGET as it is or would be served. Queries with the same top 10
    in both need no answer. Of the others N are shown, blind: keys say which list is better. A stop keeps the answers.

    The result is the share of answers that prefer TARGET, with a 95 % interval, for all queries whose top 10 differ. It
    is stored in the history of the gallery. Later answers to a query replace earlier ones.
    """
    sources = [name for name, value in (("--page", page), ("--answers", answers), ("--clicks", clicks)) if value]
    if len(sources) > 1:
        raise click.UsageError(f"{' and '.join(sources)}: name one of them.")
    if not sources and not (sys.stdin.isatty() and is_terminal(sys.stderr)):
        raise click.UsageError("Judging here needs a terminal: name --page, --answers or --clicks.")
    judging = open_gallery(gallery, trust_code=trust_code, target=target).judge(target, queries, num)
    if page is not None:
        judging.page(page)
        shown = len(judging.cases)
        output.show({"page": page, "cases": shown}, lambda _: [f"wrote {page}: {shown} queries to judge"])
        words = shlex.join([target, "--queries", queries, "--answers"])
        output.note(f"Store its answers: compatstore judge GALLERY {words} FILE")
        return
    if answers is not None:
        judging.load(answers)
    elif clicks is not None:
        judging.from_clicks(clicks)
    preference = judging.save() if sources else _judge_here(judging, output)
    output.show(_plain(preference), lambda _: [f"{preference}"] if preference else [])


def _plain(preference: Preference | None) -> Mapping[str, object] | None:
    if preference is None:
        return None
    return {**asdict(preference), "win_rate": preference.win_rate, "better": preference.better}


def _judge_here(judging: Judging, output: Output) -> Preference | None:
    """Read answers from the terminal; those that were given are stored, whatever ends it."""
    with end_on_signals():
        try:
            _read_answers(judging)
        finally:
            preference = judging.save() if judging.answered else None
            output.note(f"{len(judging.answered)} answers stored")
    return preference


def _read_answers(judging: Judging) -> None:
    """Show cases and read keys until all are answered, or until a stop; begin with the first open case."""
    drawn, cases = console(stderr=True), judging.cases
    place = next((place for place, case in enumerate(cases) if case.query.id not in judging.answered), 0)
    keys = _keys()
    while place < len(cases):
        _draw(drawn, cases[place], f"{place + 1} of {len(cases)}")
        key = next((key for key in keys if key in (*ANSWERS, BACK, QUIT)), QUIT)
        if key == QUIT:
            return
        if key in ANSWERS:
            judging.answer(cases[place], ANSWERS[key])
        place = max(place - 1, 0) if key == BACK else place + 1


def _keys() -> Iterator[str]:
    """Keys as they are pressed, until the end of the input; without arrows and other sequences."""
    with suppress(EOFError):
        while pressed := click.getchar():
            if not pressed.startswith("\x1b"):
                yield from pressed.lower()


def _draw(drawn: Console, case: Case, place: str) -> None:
    from rich.table import Table
    from rich.text import Text

    between = "\n" if drawn.height >= TALL else "  "
    lists = Table(box=None, expand=True, pad_edge=False)
    for heading in ("LEFT", "RIGHT"):
        lists.add_column(heading, ratio=1, no_wrap=True, overflow="ellipsis")
    for pair in zip_longest(case.left, case.right):
        lists.add_row(*("" if item is None else _item(item, between) for item in pair))
    drawn.clear()
    drawn.print(Text(f"Query {place}"), _item(case.query, "\n"), "", lists, "", Text(KEYS), sep="\n")


def _item(item: ShownItem, between: str) -> Text:
    """Id of an item, and what is known of it."""
    from rich.text import Text

    known = [visible(text) for text in (item.label, item.caption, item.source) if text and text != item.id]
    return Text.assemble((visible(item.id), "bold"), between if known else "", (" · ".join(known), "dim"))
