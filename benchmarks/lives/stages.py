"""The tables that lives begin with: of an own gallery or an adopted table, with an index or an artifact, or shards."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.crashes.template import ADOPTED, KINDS, OWN, Kind, initial_items, make_template
from benchmarks.crashes.truth import TARGET
from benchmarks.lives.actors import Scene
from benchmarks.lives.frameworks import FRAMEWORKS
from benchmarks.lives.life import Life, Lived

FRAGMENTS, ROWS, ROWS_OF_AN_INDEX = 3, 50, 110
SHARD_FRAGMENTS, SHARD_ROWS, SHARDS = 1, 40, 3
ENDINGS = ("retire", "cutover", "abort")
TARGET_ALONE = replace(TARGET, side_dim=None, side_encoder=None)  # stores of other frameworks have no side-information
# Kind of the tables, whether they are shards, and whether there is an artifact.
SETTINGS: tuple[tuple[Kind, bool, bool], ...] = (
    *((kind, False, True) for kind in KINDS),
    (OWN, True, True),
    (ADOPTED, True, True),
    (OWN, False, False),
    (ADOPTED, False, False),
)


class Stage:
    """Makes the tables once, and a copy for each life.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[int, Path] = {}

    def live(self, seed: int, kills: int, suspensions: int, keep: Path | None = None) -> Lived:
        """One life, whose tables are kept where something did not hold."""
        life = self.life(seed, kills, suspensions)
        lived = life.run()
        if lived.violations and keep is not None:
            shutil.copytree(life.folder, keep / life.folder.name)
        shutil.rmtree(life.folder)
        return lived

    def life(self, seed: int, kills: int, suspensions: int) -> Life:
        """A life in tables of its own, before it begins."""
        number = seed % len(SETTINGS)
        kind, sharded, linked = SETTINGS[number]
        fragments, rows = FRAGMENTS, ROWS_OF_AN_INDEX if kind.indexed else ROWS
        if sharded:
            fragments, rows = SHARD_FRAGMENTS, SHARD_ROWS
        if number not in self._made:
            (self._folder / f"template-{number}").mkdir()
            made = make_template(self._folder / f"template-{number}", kind, fragments, rows, TARGET_ALONE, linked)
            self._made[number] = made
        home = Path(tempfile.mkdtemp(prefix=f"life-{seed}-", dir=self._folder))
        tables = [home / "tables" / f"items_{shard}.lance" for shard in range(SHARDS if sharded else 1)]
        for table in tables:
            shutil.copytree(self._made[number], table)
        # LlamaIndex's store needs columns of its own, which an adopted table gets from its app alone.
        frameworks = [name for name in FRAMEWORKS if not (kind.adopted and name == "LlamaIndex")]
        framework = frameworks[seed // len(SETTINGS) % len(frameworks)]
        ending = ENDINGS[seed // 5 % len(ENDINGS)]
        scene = Scene(tuple(map(str, tables)), kind, framework, linked, ending)
        return Life(scene, initial_items(fragments, rows), seed, kills, suspensions)
