"""Everything beside and in a table is damaged in turn: `verify` reports it and never raises, nor any verb as others do.

What is not covered is said here too, as in docs/verification.md: a bit within a file of Lance's own.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import lance
import numpy as np
import pytest
from crafted import HOSTILE, exchanged, places

import compatstore as cs
from compatstore.encoders import Precomputed
from compatstore.errors import CompatStoreError, Interrupted
from compatstore.storage.location import locate
from compatstore.storage.registry import KEY
from compatstore.upgrade.leases.lease import pause
from compatstore.upgrade.requests.run_settings import RunSettings
from compatstore.verification import verify_at
from galleries import SOURCE, artifact, items
from tiers import few

ROWS = 300
IDS = items(0, ROWS)["id"]
NATIVES = np.random.default_rng(1).normal(size=(ROWS, 40)).astype(np.float32)
QUERY = np.ones(24, np.float32)
ENCODER = Precomputed(dict(zip(IDS, NATIVES, strict=True)))


def target():
    return cs.EmbeddingVersion("v2", dim=40, metric="cosine", encoder=ENCODER, head=np.eye(3, 40, dtype=np.float32))


def opened(path):
    return cs.Gallery.open(str(path), encoders={"v2": ENCODER})


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A gallery with an index, whose upgrade was stopped in the middle of its backfill: it has every kind of file."""
    path = tmp_path_factory.mktemp("damage") / "g.lance"
    gallery = cs.Gallery.create(str(path), SOURCE)
    gallery.add(items(0, ROWS))
    gallery.delete(IDS[:2])
    gallery.maintenance.index("v1").create(kind="IVF_FLAT", num_partitions=2)
    version = target()
    gallery.register(version)
    gallery.artifacts.link(artifact(SOURCE, version))
    # Of a short lease: where the record of its end is damaged, the next upgrade waits for it.
    gallery = cs.Gallery.open(str(path), encoders={"v2": ENCODER}, lease_term=2.0)
    stopped = []
    with pytest.raises(Interrupted):
        gallery.upgrade(
            "v2",
            backfill=cs.Backfill(share=0.5, write_mode="rewrite_columns"),
            run=RunSettings(batch_rows=16),
            progress=lambda done: stopped.append(done) if done.step == "backfill" else None,
            should_stop=lambda: len(stopped) >= 3,
        )
    return path


@pytest.fixture
def path(template, tmp_path):
    return Path(shutil.copytree(template, tmp_path / "g.lance"))


def found(path):
    """What `verify` finds but for what it finds in the undamaged gallery: natives that wait."""
    return [finding for finding in verify_at(locate(path)).findings if "are stored, but not in" not in finding.what]


def verbs(path, *, and_writes=True):
    """Call every verb; each must answer, or end in an error of ours. Gives the errors by verb."""
    calls = {
        "open": lambda: opened(path),
        "search": lambda: opened(path).search(QUERY, k=3, version="v1"),
        "explain": lambda: opened(path).explain(version="v1"),
        "get": lambda: opened(path).get(IDS[5:9]),
        "vectors": lambda: opened(path).vectors(IDS[5:9]),
        "status": lambda: opened(path).status(),
        "history": lambda: opened(path).maintenance.history(),
        "version": lambda: opened(path).version("v2"),
        "plan": lambda: opened(path).upgrade("v2", dry_run=True),
        "unbackfillable": lambda: opened(path).maintenance.unbackfillable("v2"),
        "report": lambda: opened(path).report("v2", measure=False),
        "verify": lambda: opened(path).maintenance.verify(),
    }
    writes = {
        "pause": lambda: pause(opened(path)._catalog, "v2", wait=0),
        "add": lambda: opened(path).add({"id": ["new"], "vector": QUERY[None], "side": QUERY[None, :8]}),
        "upgrade": lambda: opened(path).upgrade("v2"),
        "cutover": lambda: opened(path).cutover("v2"),
        "rollback": lambda: opened(path).rollback(),
        "delete": lambda: opened(path).delete(IDS[7:8]),
        "abort": lambda: opened(path).abort("v2", wait=0),
        "retire": lambda: opened(path).retire("v2"),
    }
    errors = {}
    for name, call in {**calls, **(writes if and_writes else {})}.items():
        try:
            call()
        except CompatStoreError as error:
            errors[name] = error
    return errors


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def garbage(file):
    file.write_bytes(np.random.default_rng(2).bytes(file.stat().st_size))


def flip(file, at=0.5):
    content = bytearray(file.read_bytes())
    content[int(at * len(content))] ^= 16
    file.write_bytes(bytes(content))


BESIDE = (
    "ledger-v2*.arrow",
    "?" * 64,
    "staged-v2*.lance/data/*",
    "staged-v2*.lance/_versions/*",
    "leases.lance/_versions/*",
)


def latest(files):
    """Of a folder of manifests the one that counts: Lance names them so that the last comes first."""
    files = sorted(files)
    return files[:1] if files and files[0].suffix == ".manifest" else files


@pytest.mark.full
@pytest.mark.parametrize("damage", [cut, garbage, Path.unlink, flip], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("pattern", BESIDE)
def test_files_beside_the_table(template, tmp_path, pattern, damage):
    files = latest((template / "_compatstore").glob(pattern))
    assert files
    for number, file in enumerate(files):
        path = Path(shutil.copytree(template, tmp_path / f"{number}.lance"))
        damage(path / file.relative_to(template))
        findings = found(path)
        # A manifest that is deleted leaves the one before it, and one bit of it may be of a time or a name.
        silent = file.suffix == ".manifest" and damage in (Path.unlink, flip)
        ledger_gone = file.suffix == ".arrow" and damage is Path.unlink
        assert findings or silent or ledger_gone, file
        assert all(finding.repair for finding in findings)
        repairs = [finding.repair for finding in findings if "rm " in finding.repair]
        verbs(path, and_writes=not repairs)
        for repair in repairs:
            named = repair.rpartition(" ")[2].strip("'")
            assert Path(named).exists(), "the repair names what is there"
            shutil.rmtree(named) if Path(named).is_dir() else Path(named).unlink()
            assert opened(path).upgrade("v2").state == "ready"
            assert opened(path).maintenance.verify().clean


@pytest.mark.full
@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000])
def test_counts_that_are_damaged_are_counted_again(path, content):
    (path / "_compatstore" / "counts-v2.json").write_bytes(content)
    assert found(path) == []
    assert opened(path).upgrade("v2").state == "ready"


@pytest.mark.full
@pytest.mark.parametrize("at", [0.1, 0.3, 0.6, 0.9])
def test_any_bit_of_a_staged_vector_is_seen(path, at):
    for file in (path / "_compatstore").glob("staged-v2*.lance/data/*"):
        vectors = NATIVES.tobytes()
        content = file.read_bytes()
        start = next(content.index(row.tobytes()) for row in NATIVES if row.tobytes() in content)
        assert len(vectors) > start
        changed = bytearray(content)
        changed[start + int(at * 160)] ^= 1
        file.write_bytes(bytes(changed))
    (finding,) = found(path)
    assert "rows of other content" in finding.what
    with pytest.raises(CompatStoreError, match="other content"):
        opened(path).upgrade("v2")


OURS_OF_LANCE = ("data/*", "_versions/*", "_indices/*/*", "_deletions/*", "_refs/tags/*")


@pytest.mark.parametrize("damage", few(1, [cut, garbage, Path.unlink]), ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("pattern", few(1, OURS_OF_LANCE))
def test_files_of_the_table(template, tmp_path, pattern, damage):
    kinds = {file.name if "_indices" in pattern else file: file for file in latest(template.glob(pattern))}
    assert kinds
    for number, file in enumerate(kinds.values()):
        path = Path(shutil.copytree(template, tmp_path / f"{number}.lance"))
        damage(path / file.relative_to(template))
        findings = found(path)
        silent = file.suffix == ".manifest" and damage is Path.unlink  # the table is as it was before that commit
        assert findings or silent, file
        assert all(finding.repair for finding in findings)
        verbs(path, and_writes=number == 0)


def registry_of(path):
    return json.loads(lance.dataset(path).config()[KEY])


def tamper(path, registry):
    lance.dataset(path).update_config({KEY: registry if isinstance(registry, str) else json.dumps(registry)})


TAMPERED = {
    "no JSON": "{",
    "deep": "[" * 100_000,
    "a list": "[]",
    "a dimension of 2^31": (("versions", "v1", "dim"), 2**31),
    "columns of 2^31 values": (("versions", "v1", "columns", "width"), 2**31),
    "an unknown metric": (("versions", "v1", "metric"), "hamming"),
    "an unknown type": (("versions", "v2", "dtype"), "int8"),
    "a dimension as text": (("versions", "v2", "dim"), "40"),
    "a path as name": (("runs", "v2", "target"), "../../x"),
    "a field too many": (("versions", "v1", "colour"), "red"),
    "an unknown input version": (("versions", "v2", "input_version"), "v9"),
    "an unknown state": (("runs", "v2", "state"), "asleep"),
    "an unknown source": (("runs", "v2", "source"), "v9"),
    "an unlinked artifact": (("runs", "v2", "path"), ["0" * 64]),
    "an unknown active version": (("active",), "v9"),
    "a history of 2^62 steps": (("history",), 2**62),
    "a page of the history elsewhere": (("history_page",), "../../../etc/passwd"),
    "an unknown column": (("versions", "v2", "columns", "origin"), "nowhere"),
    "an unknown id column": (("id_column",), "nowhere"),
    "another type of ids": (("id_type",), "int64"),
    "an unknown kind": (("id_type",), "uuid"),
    "a blob elsewhere": (("versions", "v2", "head"), "/dev/zero"),
}


@pytest.mark.full
@pytest.mark.parametrize("tampering", TAMPERED)
def test_a_tampered_registry_is_found_and_can_be_put_back(path, tampering):
    change = TAMPERED[tampering]
    tamper(path, change if isinstance(change, str) else exchanged(registry_of(path), *change))
    findings = found(path)
    assert findings, tampering
    assert all(finding.repair for finding in findings)
    errors = verbs(path)
    if findings[0].check == "registry":
        assert errors["open"].fix.endswith(f"compatstore verify {path} (in a shell)")
        eval(findings[0].repair.partition(": ")[2], {"lance": lance})
        assert found(path) == []


def test_a_registry_that_is_tampered_with_under_an_open_handle(path):
    gallery = opened(path)
    tamper(path, "{")
    (finding,) = gallery.maintenance.verify().findings
    assert finding.check == "registry"
    with pytest.raises(cs.errors.CorruptArtifact, match="compatstore verify"):
        gallery.search(QUERY)


def well_typed(value):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    return {str: "x", int: 3, float: 0.125, list: [], dict: {}, type(None): None}[type(value)]


@pytest.mark.full
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", ["rest", "versions", "artifacts", "runs"])
def test_any_other_value_in_the_registry_is_answered_by_every_verb(template, tmp_path, part, every):
    registry = registry_of(template)
    chosen = [p for p in places(registry) if p and (p[0] == part or (part == "rest" and len(p) == 1))]
    for number, place in enumerate(chosen[::every]):
        value = registry
        for key in place:
            value = value[key]
        both = (well_typed(value), ...)
        for changed in both if every == 1 else both[number % 2 :][:1]:
            path = shutil.copytree(template, tmp_path / f"{number}-{changed is ...}.lance")
            tamper(path, exchanged(registry, place, changed))
            found(path)
            verbs(path, and_writes=changed is not ...)
            shutil.rmtree(path)


@pytest.mark.full
def test_hostile_values_in_the_registry_are_refused_or_found(template):
    registry = registry_of(template)
    for number, place in enumerate(places(registry)):
        for value in HOSTILE[number % 4 :: 4]:  # each value at a quarter of the places
            text = json.dumps(exchanged(registry, place, value))
            try:
                cs.storage.registry.Registry.loads(text, "g")
            except cs.errors.CorruptArtifact:
                continue


@pytest.mark.full
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("lease.v2", "{"),
        ("lease.v2", "[" * 100_000),
        ("lease.v2", '{"token": "x"}'),
        ("stop.v2", "[]"),
        ("stop.v2", '{"target": 3}'),
    ],
)
def test_lease_records_that_cannot_be_read(path, key, text):
    lance.dataset(path / "_compatstore" / "leases.lance").update_config({key: text})
    (finding,) = found(path)
    assert finding.check == "leases"
    errors = verbs(path)
    if key.startswith("lease"):
        assert {"status", "upgrade"} <= set(errors)
    shutil.rmtree(finding.repair.rpartition("rm -r ")[2])
    assert "leases" not in {finding.check for finding in found(path)}


@pytest.mark.full
def test_steps_of_the_history_that_cannot_be_read(path):
    (key,) = [key for key in lance.dataset(path).config() if key.endswith("000003")]
    for text in ("{", "[]", '{"step": 3}', "[" * 100_000):
        lance.dataset(path).update_config({key: text})
        (finding,) = found(path)
        assert finding.check == "history"
        with pytest.raises(cs.errors.CorruptArtifact):
            opened(path).maintenance.history()
