"""metrics: what status tells as numbers for Prometheus, printed or served; and addresses that cannot be listened at."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

import compatstore as cs
from compatstore.integrations.prometheus import GalleryCollector, exposition, listening


def samples(text):
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            found[sample.name, frozenset(sample.labels.items())] = sample.value
    return found


def values(text, name, **labels):
    wanted = set(labels.items())
    return [value for (found, of), value in samples(text).items() if found == name and wanted <= of]


@pytest.fixture
def half(tmp_path, linear, vectors):
    """Ten of forty items native in v2, hopped, waiting for its cutover."""
    ids, native = [f"item-{n}" for n in range(40)], vectors(40, 6)
    encoder = cs.encoders.Precomputed(dict(zip(ids, native, strict=True)))
    source, target = cs.EmbeddingVersion("v1", dim=4), cs.EmbeddingVersion("v2", dim=6, encoder=encoder)
    gallery = cs.Gallery.create(str(tmp_path / "a.lance"), source)
    gallery.add({"id": ids, "vector": vectors(40)})
    gallery.register(target)
    gallery.artifacts.link(linear(source, target), "v1", "v2")
    gallery.upgrade("v2", backfill=0.25)
    return gallery


@pytest.mark.full
def test_the_numbers_are_those_of_status(run, half):
    address = half.status().gallery
    text = run("metrics", address).out
    assert text.rstrip("\n") == exposition(half).rstrip("\n")
    assert values(text, "compatstore_up") == [1]
    assert values(text, "compatstore_items", gallery=address) == [40]
    assert values(text, "compatstore_version_active", version="v1") == [1]
    kinds = {
        kind: values(text, "compatstore_version_items", version="v2", kind=kind) for kind in ("native", "transformed")
    }
    assert kinds == {"native": [10], "transformed": [30]}
    assert values(text, "compatstore_upgrade_info", target="v2", state="ready", doing="waiting") == [1]
    assert values(text, "compatstore_upgrade_spent_rows", target="v2") == [10]
    assert values(text, "compatstore_upgrade_failed", target="v2") == [0]


def test_as_json(run, half):
    found = run("metrics", half.status().gallery, "--json").json
    assert {"name": "compatstore_items", "labels": {"gallery": half.status().gallery}, "value": 40} in found


def test_labels_may_hold_any_text(tmp_path, vectors):
    path = tmp_path / 'a "quoted" name, {1} größer.lance'
    gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=4))
    gallery.add({"id": ["1", "2"], "vector": vectors(2)})
    assert values(exposition(gallery), "compatstore_items", gallery=gallery.status().gallery) == [2]


def test_a_gallery_that_is_gone_is_down_and_the_others_are_told_of(half, tmp_path, vectors):
    other = cs.Gallery.create(str(tmp_path / "b.lance"), cs.EmbeddingVersion("v1", dim=4))
    other.add({"id": ["1"], "vector": vectors(1)})
    collector = GalleryCollector(half, other)
    address = half.status().gallery
    (tmp_path / "a.lance").rename(tmp_path / "elsewhere.lance")
    found = {(s.name, s.labels["gallery"]): s.value for family in collector.collect() for s in family.samples}
    assert found["compatstore_up", address] == 0
    assert found["compatstore_up", other.status().gallery] == 1
    assert ("compatstore_items", address) not in found


@pytest.mark.full
def test_it_is_served_until_stopped(half):
    # A shell has its background jobs ignore Ctrl-C, and with them whatever these start.
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program = f"{hears}from compatstore.cli.app import main; main()"
    words = [sys.executable, "-c", program, "metrics", half.status().gallery, "--listen", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        line = process.stderr.readline()
        address = re.search(r"http://\S+/metrics", line)[0]
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address) as answer:
            text = answer.read().decode()
        half.cutover("v2")
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address) as answer:
            later = answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert values(text, "compatstore_version_active", version="v2") == [0]
    assert values(later, "compatstore_version_active", version="v2") == [1]


@pytest.mark.full
def test_an_address_that_is_taken_is_refused(run, half):
    with listening(half) as port:
        told = run("metrics", half.status().gallery, "--listen", str(port))
    assert told.code == 2
    assert "Name another port" in told.err


@pytest.mark.parametrize("listen", ["port", "70000", "localhost:", "-1", ""])
def test_what_is_no_address_is_refused(run, half, listen):
    told = run("metrics", half.status().gallery, f"--listen={listen}")
    assert told.code == 2
    assert "[HOST:]PORT" in json.dumps(told.err)
