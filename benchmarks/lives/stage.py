"""The scenes of lives: own galleries and adopted tables, indexes, shards, with and without an artifact, scripts."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.lives.actor import Scene
from benchmarks.lives.life import AT_THE_END, BESIDE_A_SCRIPT, OPERATIONS, SCRIPTED, Life, Lived, content, encoded
from tests.known.frameworks import FRAMEWORKS
from tests.known.galleries import ADOPTED, KINDS, OWN, Kind, initial_items, make_template
from tests.known.vectors import TARGET

ENDINGS = ("retire", "cutover", "abort")
TARGET_ALONE = replace(TARGET, side_dim=None, side_encoder=None)  # stores of other frameworks have no side-information
BLOWS_OF_A_SCRIPT = 3  # times as many as in a life in any order


@dataclass(frozen=True)
class Setting:
    """How tables begin, and which processes work on them.

    Attributes:
        kind: Of the tables.
        linked: True if there is an artifact; an upgrade trains its own otherwise.
        shards: Number of tables.
        fragments: Of each table. Natives of a gallery of more than 64 are staged, and their rows move in waves.
        rows: Of each fragment.
        script: True if an operator follows the script; in any order otherwise.
        quiet: True if no other process writes, so that the end is that of a life without blows.
        side: True if the target has side-information.
        ray: True if the operator uses a Ray cluster.
    """

    kind: Kind
    linked: bool = True
    shards: int = 1
    fragments: int = 3
    rows: int = 50
    script: bool = False
    quiet: bool = False
    side: bool = False
    ray: bool = False


INDEXED = [replace(Setting(kind), rows=110 if kind.indexed else 50) for kind in KINDS]
SETTINGS = (
    *INDEXED,
    Setting(OWN, shards=3, fragments=1, rows=40),
    Setting(ADOPTED, shards=3, fragments=1, rows=40),
    Setting(OWN, linked=False),
    Setting(ADOPTED, linked=False),
    Setting(OWN, rows=110, script=True, side=True),
    Setting(OWN, rows=110, script=True, quiet=True, side=True),
    Setting(ADOPTED, rows=110, script=True, quiet=True),
    Setting(OWN, rows=110, script=True, quiet=True, linked=False),
    Setting(OWN, fragments=66, rows=5, script=True, quiet=True),
)
BY_RAY = Setting(OWN, fragments=6, rows=55, script=True, quiet=True, ray=True)


class Stage:
    """Makes the tables once, and a copy for each life; in an object store for each life.

    Args:
        folder: An empty folder.
        bucket: Address of a bucket for the tables, or "" for the folder.
        ray: Address of a Ray cluster; each life is then an upgrade by Ray.
    """

    def __init__(self, folder: Path, bucket: str = "", ray: str = "") -> None:
        self._folder, self._bucket, self._ray = folder, bucket, ray
        self._made: dict[Setting, Path] = {}
        self._twins: dict[Setting, tuple[Any, Counter[str]]] = {}

    def live(self, seed: int, kills: int, suspensions: int, keep: Path | None = None) -> Lived:
        """One life; its tables are kept if something did not hold."""
        life = self.life(seed, kills, suspensions)
        lived = life.run()
        if lived.violations and keep is not None:
            shutil.copytree(life.folder, keep / life.folder.name)
        shutil.rmtree(life.folder)
        return lived

    def life(self, seed: int, kills: int, suspensions: int) -> Life:
        """A life in tables of its own, before it begins."""
        # Shards are tables of one folder, which a bucket of addresses is not.
        settings = [one for one in SETTINGS if one.shards == 1] if self._bucket else SETTINGS
        setting = BY_RAY if self._ray else settings[seed % len(settings)]
        twin = self._twin(setting) if setting.quiet else None
        times = BLOWS_OF_A_SCRIPT if setting.script else 1
        return self._life(setting, seed, (times * kills, times * suspensions), twin)

    def _life(self, setting: Setting, seed: int, blows: tuple[int, int], twin: Any = None) -> Life:
        home = Path(tempfile.mkdtemp(prefix=f"life-{seed}-", dir=self._folder))
        tables = [self._table(setting, home, f"items_{number}") for number in range(setting.shards)]
        # LlamaIndex's store needs columns of its own, which an adopted table gets from its app alone.
        frameworks = [name for name in FRAMEWORKS if not (setting.kind.adopted and name == "LlamaIndex")]
        framework = frameworks[seed // len(SETTINGS) % len(frameworks)]
        ending = ENDINGS[seed // 5 % len(ENDINGS)]
        ray = self._ray if setting.ray else ""
        scene = Scene(tuple(tables), setting.kind, framework, setting.linked, ending, setting.side, ray)
        phases = (
            (SCRIPTED | ({} if setting.quiet else BESIDE_A_SCRIPT),) if setting.script else (OPERATIONS, AT_THE_END)
        )
        return Life(scene, initial_items(setting.fragments, setting.rows), home, seed, blows, phases, twin)

    def _table(self, setting: Setting, home: Path, name: str) -> str:
        if self._bucket:
            return str(self._make(f"{self._bucket}/{home.name}-{name}", setting))
        if setting not in self._made:
            folder = self._folder / f"template-{len(self._made)}"
            folder.mkdir()
            self._made[setting] = self._make(folder, setting)
        return str(shutil.copytree(self._made[setting], home / "tables" / f"{name}.lance"))

    def _make(self, folder: str | Path, setting: Setting) -> Path:
        target = TARGET if setting.side else TARGET_ALONE
        return make_template(folder, setting.kind, setting.fragments, setting.rows, target, setting.linked)

    def _twin(self, setting: Setting) -> tuple[Any, Counter[str]]:
        """The end of a life of that setting without a blow, by the local engine."""
        if setting not in self._twins:
            life = self._life(replace(setting, ray=False), 0, (0, 0))
            if violations := life.run().violations:
                raise RuntimeError(f"a life without a blow: {violations}")
            self._twins[setting] = content(life.scene.tables[0]), encoded(life.folder)
        return self._twins[setting]
