"""What can be wrong with a gallery is found, told from the rest, and repaired by the command that is named."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import compatstore as cs
from compatstore.cli.app import app
from compatstore.storage.location import locate
from compatstore.storage.registry import KEY
from compatstore.storage.staging import NativeBatch, Staging
from compatstore.storage.store import Fence
from galleries import SOURCE, artifact, items
from states import open_with_encoder

STATES = ("upgradable", "ready", "cutover", "retired")


def verify(path):
    return cs.Gallery.open(path).maintenance.verify()


def the_finding(path, check):
    """The only finding of a damaged gallery, which must be of this check."""
    (found,) = verify(path).findings
    assert found.check == check, found
    assert found.repair
    return found


def carry_out(path, repair, **known):
    """Make the first calls of a repair; nothing may be raised."""
    exec(repair.partition(": ")[2].split("; or ")[0], {"gallery": cs.Gallery.open(path), **known})


def test_a_repair_of_the_program_is_a_command(at):
    path = at("retired")
    lance.dataset(path).add_columns([pa.field("v1__input_hash", pa.uint64())])
    shown = CliRunner().invoke(app, ["verify", path, "--json"])
    (found,) = json.loads(shown.stdout)["findings"]
    words = shlex.split(found["repair"].removeprefix("Drop them: "))
    assert CliRunner().invoke(app, words[1:]).exit_code == 0
    assert verify(path).clean


def edit_registry(path, change):
    """Change the registry as no verb of ours would."""
    dataset = lance.dataset(path)
    registry = json.loads(dataset.config()[KEY])
    change(registry)
    dataset.update_config({KEY: json.dumps(registry)})


def blob_of(path, part):
    """The file beside the table that holds the artifact's manifest or weights."""
    (record,) = cs.Gallery.open(path).artifacts
    return Path(path, "_compatstore", getattr(record, part))


@pytest.mark.parametrize("state", STATES)
def test_a_sound_gallery_is_clean_in_every_state(at, state):
    result = verify(at(state))
    assert result.clean
    assert result.findings == ()
    assert result.rows == 239
    assert {"rows", "origins", "artifacts", "tags", "history", "indexes"} <= set(result.checks)


def test_an_adopted_table_is_clean(tmp_path):
    path = str(tmp_path / "app.lance")
    vectors = np.random.default_rng(0).normal(size=(300, 24)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 24)
    lance.write_dataset(pa.table({"key": range(300), "embedding": column}), path)
    version = cs.EmbeddingVersion("v1", dim=24, metric="l2")
    gallery = cs.Gallery.adopt(path, version, vector="embedding", id="key")
    target = cs.EmbeddingVersion("v2", dim=24, metric="l2")
    gallery.register(target)
    gallery.artifacts.link(artifact(version, target))
    gallery.upgrade("v2")
    gallery.cutover("v2")
    assert gallery.maintenance.verify().findings == ()


class TestRows:
    def test_a_changed_source_leaves_a_stale_vector_until_the_upgrade_goes_on(self, at):
        path = at("ready")
        table = lance.dataset(path).to_table(filter="id = 'item-000010'").to_pydict()
        table["v1"] = [[1.0] * SOURCE.dim]
        schema = lance.dataset(path).schema
        merge = lance.dataset(path).merge_insert("id").when_matched_update_all()
        merge.execute(pa.table(table, schema=schema))
        found = the_finding(path, "rows")
        assert (found.severity, found.what.startswith("1 items (item-000010) have a stale vector")) == ("warning", True)
        carry_out(path, found.repair)
        assert verify(path).clean

    def test_a_vector_without_its_origin(self, at):
        path = at("ready")
        lance.dataset(path).update({"v2__origin": "NULL"}, where="number IN (5, 6)")
        found = the_finding(path, "rows")
        assert found.severity == "error"
        assert found.what.startswith("2 items (item-000005, item-000006) have a vector without its origin")

    def test_an_uncertainty_of_a_native_vector(self, at):
        path = at("ready")
        dataset = lance.dataset(path)
        dataset.update({"v2__uncertainty": "0.5"}, where="v2__origin = 'native'")
        assert "have an uncertainty, but no transformed vector" in the_finding(path, "rows").what

    @pytest.mark.parametrize(
        ("vector", "what"), [([np.nan] * 40, "NaN or infinite"), ([1.0] * 40, "not of unit length")]
    )
    def test_vectors_that_another_writer_put_there(self, at, vector, what):
        path = at("retired")
        row = {"id": ["x"], "v2": [vector], "v2__origin": ["native"]}
        schema = lance.dataset(path).schema
        fields = [schema.field(name) for name in row]
        lance.write_dataset(pa.table(row, schema=pa.schema(fields)), path, mode="append")
        found = the_finding(path, "rows")
        assert found.what.startswith("1 items (x)")
        assert what in found.what
        gallery = cs.Gallery.open(path)
        gallery.add({"id": ["x"], "vector": np.eye(1, 40, dtype=np.float32)}, upsert=True)
        assert gallery.maintenance.verify().clean

    def test_the_first_offenders_are_named_and_the_rest_counted(self, at):
        path = at("ready")
        lance.dataset(path).update({"v2__origin": "NULL"}, where="number < 100")
        assert "item-000005 (and 94 more)" in the_finding(path, "rows").what

    def test_items_that_searches_do_not_find(self, at):
        path = at("retired")
        lance.write_dataset(
            pa.table({"id": ["x"]}, schema=pa.schema([lance.dataset(path).schema.field("id")])), path, mode="append"
        )
        found = the_finding(path, "missing")
        assert (found.severity, found.what) == ("warning", "1 items have no vector in v2: searches do not find them")

    def test_items_that_the_upgrade_transforms_are_not_all_to_be_embedded(self, at):
        path = at("cutover")
        row = lance.dataset(path).to_table(filter="number = 7")
        names = [name for name in row.column_names if not name.startswith("v2")]
        row = row.select(names).set_column(names.index("id"), row.schema.field("id"), pa.array(["x"]))
        lance.write_dataset(row, path, mode="append")
        found = the_finding(path, "missing")
        assert found.repair.startswith('Transform them: gallery.upgrade("v2"); or write them again: ')
        carry_out(path, found.repair, gallery=open_with_encoder(path))
        assert verify(path).clean

    def test_an_id_that_occurs_twice(self, at):
        path = at("cutover")
        lance.write_dataset(lance.dataset(path).to_table(filter="number IN (7, 8)"), path, mode="append")
        found = the_finding(path, "ids")
        assert found.severity == "error"
        assert "2 ids occur more than once: item-000007, item-000008" in found.what


class TestOrigins:
    def test_an_artifact_that_is_not_linked(self, at):
        path = at("ready")
        lance.dataset(path).update({"v2__origin": "'0123456789ab'"}, where="number = 50")
        found = the_finding(path, "origins")
        assert found.what.startswith("1 vectors of v2 say that '0123456789ab' made them: 0 linked artifacts")

    def test_a_chain_that_leads_elsewhere(self, at):
        path = at("ready")
        short = cs.Gallery.open(path).artifacts[0].id[:12]
        lance.dataset(path).update({"v2__origin": f"'{short}+{short}'"}, where="number = 50")
        assert "v1 -> v2, v1 -> v2 does not lead to v2" in the_finding(path, "origins").what


class TestFiles:
    @pytest.mark.parametrize("part", ["manifest", "weights"])
    @pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-1])])
    def test_a_lost_or_cut_artifact_is_linked_again(self, at, tmp_path, part, damage):
        path = at("ready")
        cs.Gallery.open(path)._catalog.artifact(cs.Gallery.open(path).artifacts[0].id).save(tmp_path / "h.compat")
        damage(blob_of(path, part))
        found = the_finding(path, "artifacts")
        assert (found.severity, "v1 -> v2" in found.what) == ("error", True)
        carry_out(path, found.repair, artifact=cs.Artifact.load(tmp_path / "h.compat"))
        assert verify(path).clean

    def test_an_artifact_of_another_model(self, at):
        path = at("ready")
        edit_registry(path, lambda registry: registry["versions"]["v1"].update(model="another"))
        assert "artifact" in the_finding(path, "artifacts").what

    def test_a_head_that_is_gone(self, at):
        path = at("ready")
        head = json.loads(lance.dataset(path).config()[KEY])["versions"]["v2"]["head"]
        Path(path, "_compatstore", head).unlink()
        found = the_finding(path, "models")
        assert "the head of v2" in found.what
        assert head in found.repair

    def test_a_blob_that_nothing_uses_is_harmless(self, at):
        path = at("cutover")
        for name in ("0" * 64, "tmpabc123"):
            Path(path, "_compatstore", name).write_bytes(b"left by a kill")
        result = verify(path)
        assert [finding.severity for finding in result.findings] == ["note", "note"]
        assert result.clean

    @pytest.mark.parametrize("lost", [1, 5000])
    def test_a_data_file_that_a_full_disk_cut_short(self, at, lost):
        path = at("ready")
        fragment = lance.dataset(str(path)).get_fragments()[0]  # an earlier version's files lie there as well
        file = Path(path, "data", fragment.data_files()[0].path)
        file.write_bytes(file.read_bytes()[:-lost])
        (found,) = [finding for finding in verify(path).findings if finding.check == "data files"]
        assert (found.severity, found.what) == ("error", f"1 data files are cut short: {file.name}")

    @pytest.mark.parametrize(("name", "check"), [("ledger-v2-*.arrow", "accounts"), ("leases.lance", "leases")])
    def test_what_an_upgrade_keeps_that_cannot_be_read(self, at, name, check):
        path = at("ready")
        (place,) = Path(path, "_compatstore").glob(name)
        for file in [place] if place.is_file() else (place / "_versions").iterdir():
            file.write_bytes(b"damaged")
        found = the_finding(path, check)
        assert found.severity == "error"
        assert str(place) in found.repair

    @pytest.mark.full
    def test_natives_that_are_staged(self, at, tmp_path):
        path = at("ready")
        staged = Path(path, "_compatstore", "staged-v2-9.lance")
        stage = Staging(locate(path), "v2", 40, pa.string(), fence=Fence("v2", 9, lambda: None))
        stage.store(NativeBatch.of(["item-000001"], np.zeros((1, 40), np.float32), np.array([1], np.uint64)))
        assert (the_finding(path, "staged natives").severity, verify(path).clean) == ("note", True)
        shutil.copytree(staged, tmp_path / "kept")
        cs.Gallery.open(path).retire("v2")
        shutil.copytree(tmp_path / "kept", staged)
        found = the_finding(path, "staged natives")
        assert (found.severity, found.what) == ("warning", "1 natives of v2 wait for an upgrade that is not open")
        carry_out(path, found.repair.partition("; or ")[2])
        assert verify(path).clean

    def test_what_a_manager_staged_after_its_lease_was_lost(self, at):
        """Its successor had removed its data files by then: the table cannot be read, and nobody wants to."""
        path = at("ready")
        staged = Path(path, "_compatstore", "staged-v2-3.lance")
        lance.write_dataset(pa.table({"id": ["item-000001"]}), staged)
        shutil.rmtree(staged / "data")
        assert the_finding(path, "staged natives").severity == "error", "it may be what an upgrade paid for"
        edit_registry(path, lambda registry: registry["runs"]["v2"].update(lease=4))
        found = the_finding(path, "staged natives")
        assert (found.severity, verify(path).clean) == ("note", True)
        subprocess.run(shlex.split(found.repair.partition("Remove it: ")[2]), check=True)
        assert verify(path).findings == ()

    def test_a_data_file_that_is_gone(self, at):
        path = at("cutover")
        for file in Path(path, "data").glob("*.lance"):
            file.unlink()
        result = verify(path)
        assert not result.clean
        assert "data files are gone" in next(finding.what for finding in result.findings)
        assert any("could not be carried out" in finding.what for finding in result.findings)
        assert "tags" not in {finding.check for finding in result.findings}, "what can be checked still is"


class TestColumns:
    @pytest.mark.full
    def test_a_column_that_is_gone(self, at):
        path = at("ready")
        lance.dataset(path).drop_columns(["v2__origin"])
        found = the_finding(path, "columns")
        assert found.what == "column v2__origin of v2 is gone"
        carry_out(path, found.repair)
        assert verify(path).clean

    def test_a_column_of_another_type(self, at):
        path = at("cutover")
        dataset = lance.dataset(path)
        dataset.drop_columns(["v1__side"])
        dataset.add_columns({"v1__side": "'text'"})
        assert "v1__side of v1 is string, expected fixed_size_list" in the_finding(path, "columns").what

    def test_what_a_killed_retire_leaves(self, at):
        path = at("retired")
        lance.dataset(path).add_columns([pa.field("v1__input_hash", pa.uint64())])
        lance.dataset(path).tags.create("compatstore-v1", 1)
        columns, tag = verify(path).findings
        assert (columns.check, columns.what) == ("unused columns", "v1__input_hash: no version uses them")
        assert (tag.check, tag.what) == ("tags", "tag compatstore-v1 pins a version without vectors")
        assert columns.repair.partition(": ")[2] == tag.repair.partition(": ")[2]
        carry_out(path, columns.repair)
        assert verify(path).clean


class TestRecords:
    def test_an_active_version_that_is_nowhere(self, at):
        path = at("ready")
        edit_registry(path, lambda registry: registry.update(active="v9"))
        checks = {finding.check: finding for finding in verify(path).findings}
        assert checks["versions"].what == "the active version v9 is not registered"

    def test_an_upgrade_in_an_unknown_state(self, at):
        path = at("ready")
        edit_registry(path, lambda registry: registry["runs"]["v2"].update(state="asleep", source="v0"))
        whats = [finding.what for finding in verify(path).findings if finding.check == "upgrades"]
        assert "the upgrade to v2 is in the unknown state 'asleep'" in whats
        assert "the upgrade to v2 names versions that are not registered: v0" in whats

    def test_a_step_of_the_history_that_is_gone(self, at):
        path = at("cutover")
        lance.dataset(path).delete_config_keys(["compatstore.history.000002"])
        assert the_finding(path, "history").what.startswith("steps 2 are gone")

    def test_a_tag_that_a_killed_cutover_did_not_set(self, at):
        path = at("cutover")
        lance.dataset(path).tags.delete("compatstore-v2")
        found = the_finding(path, "tags")
        assert "the active version v2 has no tag" in found.what
        carry_out(path, found.repair)
        assert verify(path).clean


@pytest.mark.full
def test_a_target_in_use_without_the_index_of_its_source(tmp_path):
    path = str(tmp_path / "g.lance")
    gallery = cs.Gallery.create(path, SOURCE)
    gallery.add(items(0, 600))
    target = cs.EmbeddingVersion("v2", dim=40, metric="cosine")
    gallery.register(target)
    gallery.artifacts.link(artifact(SOURCE, target))
    gallery.maintenance.index("v1").create(kind="IVF_FLAT", num_partitions=2)
    gallery.upgrade("v2")
    gallery.cutover("v2")
    assert gallery.maintenance.verify().clean
    gallery.add({"id": [f"new-{number}" for number in range(300)], "vector": np.ones((300, 40), np.float32)})
    notes = [finding for finding in gallery.maintenance.verify().findings if finding.check == "indexes"]
    assert notes[0].what.startswith("300 of 900 vectors of v2 are not in its index")
    dataset = lance.dataset(path)
    dataset.drop_index(next(i.name for i in dataset.describe_indices() if list(i.field_names) == ["v2"]))
    found = next(finding for finding in gallery.maintenance.verify().findings if finding.check == "indexes")
    assert (found.severity, found.what) == ("warning", "v2 has no index, its source has one")
    carry_out(path, found.repair)
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_the_command_line_shows_findings_and_exits_by_them(at):
    path = at("ready")
    clean = CliRunner().invoke(app, ["verify", path])
    assert clean.exit_code == 0
    assert clean.stdout.splitlines()[1].startswith("nothing wrong: versions, columns")
    lance.dataset(path).update({"v2__origin": "NULL"}, where="number = 5")
    wrong = CliRunner().invoke(app, ["verify", path, "--json"])
    assert wrong.exit_code == 9
    (finding,) = json.loads(wrong.stdout)["findings"]
    assert (finding["check"], finding["severity"]) == ("rows", "error")
