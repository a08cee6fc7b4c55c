"""Quality gates, checked against the lower confidence bound, and the sample for their estimate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from compatstore import next_step
from compatstore.boundary import checked_fields, require_all
from compatstore.errors import InvalidInput
from compatstore.evaluation.fusion import Serving
from compatstore.evaluation.sample import AGREEMENT
from compatstore.upgrade.requests.queries import Queries, has_ground_truth, named_files

Criterion = Literal["map", "cmc@1", "cmc@5", "recall@10", "ndcg@10", "mrr@10"]
JUDGED = ("recall@10", "ndcg@10", "mrr@10")  # need judgements
METRICS = ("cmc@1", "cmc@5", "map", *JUDGED, AGREEMENT[0])
_REQUIREMENT = re.compile(r"\s*([a-z0-9@]+)\s*>=\s*([0-9.]+)\s*")


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Gates:
    """Gates of an upgrade; where none of them and no sample is named, nothing is estimated.

    Args:
        target_quality: Minimum share of a full backfill's figure, above 0 and up to 1, such as 0.98. Takes
            the smallest backfill that reaches it; without labels or qrels by agreement with a full backfill.
        require: Minimum figure, such as map>=0.6, or agreement>=0.8 without labels or qrels. The upgrade
            does not begin otherwise (exit code 11).
        max_negative_flips: Largest share of queries, from 0 to 1, that are right before and wrong after the upgrade.
            The upgrade does not begin otherwise (exit code 11).
        labels: Column of labels: items of one label are correct for each other. Without one agreement with the new
            model is measured, not quality. In Python also `Queries`: application queries search in place of items.
        criterion: Figure that quality is measured by; recall, nDCG and MRR need --qrels.
        sample: Items to estimate from, 2000 by default; a number requests an estimate.
        serving: Serving mode that is estimated and enabled: target, the target alone (the default), or fused,
            a fused search over both versions; the fusion is chosen when the upgrade is ready. Self-training
            upgrades are fused by default.

    Raises:
        InvalidInput: A gate is out of its range.

    Examples:
        >>> cs.Gates(target_quality=0.98, require=("cmc@1>=0.6",), labels="category").target_quality
        0.98
    """

    target_quality: float | None = field(default=None, metadata={"unit": "SHARE"})
    require: tuple[str, ...] = field(default=(), metadata={"unit": "FIGURE>=VALUE"})
    max_negative_flips: float | None = field(default=None, metadata={"unit": "SHARE"})
    labels: str | Queries | None = field(default=None, metadata={"unit": "COLUMN"})
    criterion: Criterion = "map"
    sample: int | None = field(default=None, metadata={"unit": "ITEMS"})
    serving: Literal["target", "fused"] | None = None

    def __post_init__(self) -> None:
        required = [read_requirement(text)[0] for text in self.require]
        quality, flips = self.target_quality, self.max_negative_flips
        require_all(
            "set the gates of an upgrade",
            (quality is None or 0 < quality <= 1, "a target quality above 0, up to 1", quality),
            (flips is None or 0 <= flips <= 1, "negative flips between 0 and 1", flips),
        )
        require_judged((self.criterion, *required), self.labels)

    @property
    def asked(self) -> bool:
        """True if anything is to be estimated."""
        named = (self.sample, self.target_quality, self.max_negative_flips)
        by_queries = isinstance(self.labels, Queries)
        return bool(self.require) or self.serving is not None or by_queries or any(gate is not None for gate in named)

    @property
    def figures(self) -> tuple[str, ...]:
        """The figures that must be measured, as they were written."""
        flips = () if self.max_negative_flips is None else (f"negative flips<={self.max_negative_flips:g}",)
        return (*self.require, *flips, *(() if self.criterion == "map" else (self.criterion,)))

    @property
    def way(self) -> Serving:
        """Serving mode of an upgrade with an artifact."""
        return self.serving or "target"

    @property
    def fused(self) -> bool:
        """True if the upgrade is to be served by fused search."""
        return self.serving == "fused"


def require_ground_truth(figures: Sequence[str], labels: str | Queries | None) -> None:
    """Refuse figures of quality without ground truth, and agreement with it.

    Raises:
        InvalidInput: One of them is not measured.
    """
    known = has_ground_truth(labels)
    for figure in figures:
        if known and figure.startswith(AGREEMENT[0]):
            fix = "Require a figure of quality, such as map>=0.6, or leave labels and qrels out."
            raise InvalidInput(f"estimate {figure}", expected="no ground truth", found="labels or qrels", fix=fix)
        if not known and not figure.startswith(AGREEMENT[0]):
            agreed = next_step.either(shell="--require 'agreement>=0.8'", python='Gates(require=["agreement>=0.8"])')
            operation = f"estimate {figure}"
            fix = f"Name a column of labels, or {named_files()}; or require agreement with the new model: {agreed}."
            raise InvalidInput(operation, expected="labels or qrels that define relevance", found="none", fix=fix)


def require_judged(figures: Sequence[str], labels: str | Queries | None) -> None:
    """Refuse figures that need judgements where there are none.

    Raises:
        InvalidInput: One does, and there are none.
    """
    needed = [figure for figure in figures if figure in JUDGED]
    if needed and not (isinstance(labels, Queries) and labels.judged):
        expected = "queries, and judgements of their correct items"
        raise InvalidInput(f"measure {needed[0]}", expected=expected, found="none", fix=f"Name them: {named_files()}.")


def read_requirement(text: str) -> tuple[str, float]:
    """Read "map>=0.6".

    Raises:
        InvalidInput: It is something else.
    """
    match = _REQUIREMENT.fullmatch(text)
    try:
        if match and match[1] in METRICS and 0 <= float(match[2]) <= 1:
            return match[1], float(match[2])
    except ValueError:
        pass
    raise InvalidInput(
        "read a requirement",
        expected=f"a figure of {', '.join(METRICS)} and its lowest value between 0 and 1, such as map>=0.6",
        found=repr(text),
        fix=next_step.either(
            shell="Put it in quotes: --require 'map>=0.6'.", python='Write it so: Gates(require=["map>=0.6"]).'
        ),
    )
