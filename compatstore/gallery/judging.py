"""Blind comparison of the two versions of an upgrade: cases, answers, and where answers come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import fsum
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, TypeAlias

from compatstore.data_files import readable, require_file
from compatstore.digests import seed_of
from compatstore.documents import Malformed, parse, read_record
from compatstore.errors import InvalidInput
from compatstore.evaluation import Preference
from compatstore.evaluation.judgements import qrels_of, read_qrels
from compatstore.gallery.core import verbs
from compatstore.report.judging import write_judging_page
from compatstore.upgrade.estimates.side_by_side import Case, SideBySide, Winner

Answer: TypeAlias = Literal["left", "right", "same"]


@dataclass(frozen=True, kw_only=True)
class _AnswersFile:
    """Answers as the page saves them: query id -> answer."""

    digest: str
    answers: Mapping[str, Answer]


@verbs("Judging")
class Judging:
    """A blind comparison of both versions; `Gallery.judge` makes one.

    Attributes:
        cases: Queries with the results of both versions, in random order left and right.

    Examples:
        >>> _ = gallery.upgrade("v2")
        >>> queries = {"id": ["q1", "q2"], "v1": [[0.0, 1.0], [1.0, 1.2]], "v2": [[0.9, 0.1], [0.4, 3.0]]}
        >>> judging = gallery.judge("v2", queries)
        >>> for case in judging.cases:
        ...     judging.answer(case, "same")
        >>> judging.save().same == len(judging.cases)
        True
    """

    def __init__(self, found: SideBySide, num: int, seed: int) -> None:
        self._catalog, self._found = found.context.catalog, found
        run, registry = found.context.run, found.context.registry
        versions = [registry.record(name).version().fingerprint for name in (run.source, run.target)]
        identity = [found.context.store.location.name, run.started_at, versions, found.request, seed]
        self._digest = sha256(json.dumps(identity).encode()).hexdigest()[:32]
        self._answers = found.earlier()
        names = found.draw(num, seed)
        self.cases: tuple[Case, ...] = found.cases(names, [self._target_left(name) for name in names])

    @property
    def answered(self) -> frozenset[str]:
        """Ids of the queries with an answer, those of earlier sessions with the same lists included."""
        return frozenset(self._answers)

    def answer(self, case: Case, preferred: Answer) -> None:
        """Answer a case; an earlier answer is replaced.

        Args:
            case: One of `cases`.
            preferred: The better list, or "same".

        Raises:
            InvalidInput: There is no such answer, or it is a case of another comparison.
        """
        if case not in self.cases:
            raise InvalidInput("answer a case", expected="one of the cases of this comparison", found=case.query.id)
        self._answers[case.query.id] = self._winner(case.query.id, preferred)

    def from_clicks(self, qrels: str | PathLike[str] | Mapping[Any, Any]) -> None:
        """Answer by clicks: the list that ranks the clicked items of a query higher is better.

        The rank counts as its reciprocal, weighted by clicks. Queries without a click in either list get no answer.
        All queries whose lists differ are answered, not `cases` alone.

        Args:
            qrels: File of clicks in a format of qrels; or query id -> item id -> count.

        Raises:
            NotFound: There is no such file.
            InvalidInput: It cannot be read.
        """
        answers: dict[str, Winner] = {}
        clicks = qrels_of(qrels) if isinstance(qrels, Mapping) else read_qrels(fspath(qrels))
        for name, row in self._found.differing.items():
            clicked = {item: count for item, count in clicks.get(name, {}).items() if count > 0}
            source, target = (
                fsum(clicked.get(str(item), 0) / rank for rank, item in enumerate(lists[row], 1))
                for lists in (self._found.source, self._found.target)
            )
            if source or target:
                answers[name] = "same" if source == target else "target" if target > source else "source"
        if not answers:
            raise InvalidInput(
                "judge by clicks",
                expected="a click on an item of either top 10",
                found="none",
                fix="Check that the clicks name these queries, and the gallery's own ids.",
            )
        self._answers |= answers

    def page(self, path: str | PathLike[str]) -> None:
        """Write a page that shows the cases in a browser, and saves the answers as a file for `load`.

        Raises:
            StorageError: The file cannot be written.
        """
        write_judging_page(Path(path), self.cases, self._digest)

    def load(self, path: str | PathLike[str]) -> None:
        """Read the answers of a page; those to queries whose lists do not differ any more are left out.

        Raises:
            NotFound: There is no such file.
            InvalidInput: It is no file of answers, or of another gallery, target, seed or other queries.
        """
        file, operation = Path(path), f"read answers from {fspath(path)}"
        require_file(file, operation, (".json",))
        with readable(file, operation):
            content = file.read_bytes()
        try:
            read = read_record(_AnswersFile, parse(content), "the file")
        except Malformed as error:
            expected = "answers left, right or same, as the page saves them"
            raise InvalidInput(operation, expected=expected, found=str(error)) from error
        if read.digest != self._digest:
            raise InvalidInput(
                operation,
                expected=f"answers to these queries of this gallery's upgrade to {self._found.context.run.target}",
                found="answers of another comparison",
                fix="Write the page again, or name the queries and the seed that it was written with.",
            )
        answers = {name: answer for name, answer in read.answers.items() if name in self._found.differing}
        self._answers |= {name: self._winner(name, answer) for name, answer in answers.items()}

    def save(self) -> Preference:
        """Add the answers to the gallery's history.

        Returns:
            The preference by all answers to these queries since the upgrade began; the latest of a query counts.

        Raises:
            InvalidInput: There is no answer.
            Interrupted: The upgrade has ended meanwhile.
        """
        if not self._answers:
            raise InvalidInput("save answers", expected="at least one answer", found="none")
        return self._found.save(self._answers)

    def _winner(self, name: str, answer: Answer) -> Winner:
        if answer == "same":
            return "same"
        return "target" if (answer == "left") == self._target_left(name) else "source"

    def _target_left(self, name: str) -> bool:
        return seed_of(f"{self._digest} {name}", 0) % 2 == 1
