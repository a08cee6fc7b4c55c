"""The verdict of an upgrade: one sentence, the same in a terminal, JSON, the page, Markdown and `str()`."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner
from digit_galleries import DIGITS, IDS, LABELS, gallery_of

import compatstore as cs
from compatstore.cli.app import app
from compatstore.report.files import to_markdown, to_page

ITEMS, QUERIES = 400, 60
GOOD = DIGITS[:ITEMS]
NOISE = np.random.default_rng(0).normal(0, 4, GOOD.shape).astype(np.float32)
POOR = (GOOD + NOISE)[:, ::3].copy()
BROKEN = np.random.default_rng(1).normal(0, 1, (ITEMS, 22)).astype(np.float32)
MIRRORED = GOOD[:, ::-1].copy()
MODEL = {
    name: cs.encoders.Precomputed(dict(zip(IDS, native, strict=False)))
    for name, native in {"good": GOOD, "poor": POOR, "broken": BROKEN, "mirrored": MIRRORED}.items()
}
good, poor, random, mirrored = MODEL["good"], MODEL["poor"], MODEL["broken"], MODEL["mirrored"]  # for `--encoder`


def upgraded(source, target, share):
    """A maker of a gallery whose upgrade embedded a share."""

    def make(path):
        gallery = gallery_of(path, source, target)
        gallery.upgrade("v2", backfill=share)
        return gallery

    return make


better, worse = upgraded(POOR, GOOD, 0.25), upgraded(GOOD, POOR, 1.0)
level, broken = upgraded(GOOD, MIRRORED, 0.5), upgraded(GOOD, BROKEN, 0.5)


def wholly_native(path):
    gallery = upgraded(POOR, GOOD, 1.0)(path)
    gallery.cutover("v2")
    return gallery


def midway(path):
    """Items have come that the upgrade has not seen."""
    gallery = better(path)
    gallery.add({"id": ["late"], "vector": POOR[:1], "digit": LABELS[:1]})
    return gallery


def learned(path):
    gallery = cs.Gallery.create(str(path / "g.lance"), cs.EmbeddingVersion("v1", dim=22, metric="l2"))
    gallery.add({"id": IDS[:ITEMS], "vector": POOR, "digit": LABELS[:ITEMS]})
    gallery.register(cs.EmbeddingVersion("v2", dim=GOOD.shape[1], metric="l2", encoder=good))
    gallery.upgrade("v2", backfill=0.25, learn=cs.Learn(first=60))
    return gallery


def chained(path):
    """A second upgrade, from what the first one made."""
    gallery = wholly_native(path)
    gallery.retire("v1")
    gallery.register(cs.EmbeddingVersion("v3", dim=MIRRORED.shape[1], metric="l2", encoder=mirrored))
    gallery.upgrade("v3", backfill=0.5, learn=cs.Learn(first=60))
    return gallery


def derived(path):
    """A version of fewer values, which no encoder makes."""
    gallery = cs.Gallery.create(str(path / "g.lance"), cs.EmbeddingVersion("v1", dim=GOOD.shape[1], metric="l2"))
    gallery.add({"id": IDS[:ITEMS], "vector": GOOD, "digit": LABELS[:ITEMS]})
    gallery.register("v3", of="v1", dim=40)
    gallery.upgrade("v3")
    return gallery


def judged(path):
    """Blind comparisons in place of labels."""
    gallery = better(path)
    asked = {"id": [f"q{n}" for n in range(QUERIES)], "v1": POOR[:QUERIES].tolist(), "v2": GOOD[:QUERIES].tolist()}
    comparison = gallery.judge("v2", asked)
    same = {n: [m for m in range(ITEMS) if LABELS[m] == LABELS[n] and m != n] for n in range(QUERIES)}
    comparison.from_clicks({f"q{n}": {f"digit-{m}": 1 for m in own} for n, own in same.items()})
    comparison.save()
    return gallery


UNKNOWN = "Quality is not measurable without ground truth: "
# Gallery, its target's model, whether labels are given, and how the verdict begins.
CASES = {
    "better": (better, "good", True, "Cut over: mAP "),
    "worse": (worse, "poor", True, "Do not cut over, or roll back: mAP "),
    "level": (level, "mirrored", True, "Look before you cut over: mAP "),
    "broken model": (broken, "random", True, "Do not cut over, or roll back: mAP "),
    "unlabelled": (better, "good", False, UNKNOWN),
    "wholly native": (wholly_native, "good", True, "Keep v2: mAP "),
    "wholly native, unlabelled": (
        wholly_native,
        "good",
        False,
        "Quality is not measurable without ground truth: 100 %",
    ),
    "midway": (midway, "good", True, "Cut over: mAP "),
    "self-training": (learned, "good", True, "Cut over: mAP "),
    "few queries": (better, "good", True, "Cut over: mAP "),
    "chained": (chained, "mirrored", True, "Look before you cut over: mAP "),
    "derived": (derived, "", True, "Do not cut over, or roll back: mAP "),
    "judged": (judged, "good", False, UNKNOWN),
}


def words_of(text):
    """The text without the breaks and the escapes of its format."""
    text = re.sub(r"<[^>]*>", " ", text).replace("&gt;", ">").replace("\\", "")
    return " ".join(text.replace("&#x27;", "'").replace("&#39;", "'").split())


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_every_output_gives_the_same_verdict(tmp_path, name):
    make, model, labelled, beginning = CASES[name]
    gallery = make(tmp_path)
    labels = {"labels": "digit"} if labelled else {}
    sample, target = 50 if name == "few queries" else 300, "v3" if name in ("chained", "derived") else "v2"
    report = gallery.report(target, sample=sample, **labels)
    assert report.advice.startswith(beginning)
    words = [
        "report",
        gallery.status().gallery,
        target,
        "--sample",
        sample,
        *(("--labels", "digit") if labelled else ()),
    ]
    words += ["--encoder", f"{target}=python:{__name__}:{model}", "--trust-code"] if model else []
    shown, document = (CliRunner().invoke(app, [*map(str, words), *more]) for more in ((), ("--json",)))
    assert (shown.exit_code, document.exit_code) == (0, 0)
    assert json.loads(document.stdout)["advice"] == report.advice
    for text in (shown.stdout, str(report), to_markdown(report), to_page(report)):
        assert report.advice in words_of(text)
    assert words_of(shown.stdout).index(report.advice) < 40, "the verdict stands first"
    assert ("blind comparisons" in report.advice) == (name == "judged")
    lines = [line for line in str(report).splitlines() if report.gallery not in line]  # a path is one word
    assert max(map(len, lines)) <= 80 or "next: " in str(report)


@pytest.mark.full
def test_without_labels_no_output_says_that_anything_is_better(tmp_path):
    gallery = better(tmp_path)
    table = gallery.evaluate("v2", sample=300)
    assert table.advice.verdict == "undecided"
    for text in (str(table), str(gallery.report("v2", sample=300))):
        assert not re.search(r"mAP|cmc|gain|significant", text)
        assert "agreement" in text


@pytest.mark.full
def test_without_an_encoder_agreement_is_not_made_up(tmp_path):
    """What is not native would agree with itself."""
    gallery = better(tmp_path)
    reopened = cs.Gallery.open(gallery.status().gallery)
    with pytest.raises(cs.errors.UpgradeError, match="found no encoder, and"):
        reopened.report("v2", sample=300)
    assert reopened.report("v2", sample=300, labels="digit").advice.startswith("Cut over: mAP ")
    known = reopened.evaluate("v2", sample=400).row("hop alone").figures["agreement"].value
    assert known == pytest.approx(
        gallery.evaluate("v2", sample=400).row("hop alone").figures["agreement"].value, abs=0.2
    )
    assert known < 0.9
