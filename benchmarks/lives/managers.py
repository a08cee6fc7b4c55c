"""Processes that upgrade: one in any order, one that brings all to an end, and one that follows a script."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import compatstore as cs
from benchmarks.lives.actor import LEASE_TERM, Actor
from compatstore.errors import CompatStoreError, Incompatible, InvalidInput, LeaseHeld, NotFound, UpgradeError
from compatstore.trainers.pairs.learn import CLOSED_FORMS
from compatstore.trainers.pairs.trainer import PairTrainer
from tests.known.vectors import ENCODED, ENCODERS

CLOSING_SECONDS = 60.0
PATIENCE_SECONDS = 60.0  # for the lease of a process that was killed or suspended
MOST_ROWS = 20  # that the limited upgrade of the script may embed: less than its share
REFUSALS = (UpgradeError, InvalidInput)  # the latter of an order by sigma, once a transform without it is learned
GRACE = 0.5  # seconds in which a search ends

Command = Callable[["Operator", cs.Gallery], object]


@dataclass(frozen=True, kw_only=True)
class Improve(cs.Learn):
    """Improves a transform in a blink, and embeds the whole budget."""

    first: int | None = 40
    candidates: tuple[PairTrainer, ...] | None = CLOSED_FORMS[:2]
    improve: bool = True
    least_gain = None


class Manager(Actor):
    """Upgrades, cuts over, rolls back, aborts and plans, in any order."""

    def step(self) -> None:
        """Do one thing with one upgrade, or with that of all shards."""
        gallery = self.gallery(self.draw.choice(self.scene.tables))
        sharded = len(self.scene.tables) > 1 and self.draw.random() < 0.7
        holder: Any = cs.Shards.open(self.scene.pattern, encoders=ENCODERS) if sharded else gallery
        verbs: list[Callable[[], object]] = [
            *[lambda: self._upgrade(holder)] * 5,
            *[lambda: holder.cutover("v2")] * 3,
            *[lambda: holder.rollback("v2")] * 2,
            lambda: gallery.abort("v2", wait=1.0),
            lambda: gallery.upgrade("v2", backfill=0.3, dry_run=True),
            lambda: gallery.report("v2", measure=False),
        ]
        self.unless(self.draw.choice(verbs), *REFUSALS, NotFound, Incompatible)

    def _upgrade(self, holder: Any) -> None:
        order = self.draw.choice(("random", "spread", *(["sigma"] if self.scene.linked else [])))
        backfill = cs.Backfill(
            share=self.draw.choice((0.1, 0.3, 0.6)), max_rows=self.draw.choice((None, None, 20)), order=order
        )
        done = holder.upgrade("v2", backfill=backfill, learn=self._learn(), run=cs.RunSettings(batch_rows=16))
        for shard in getattr(done, "shards", ()):
            if shard.error:
                self.journal.say("refused", f"{type(shard.error).__name__} of a shard")

    def _learn(self) -> Any:
        if not self.scene.linked:
            return cs.Learn(first=40, candidates=CLOSED_FORMS[:3])
        return self.draw.choice((None, None, Improve()))


class SecondManager(Manager):
    """Takes the place of one that is suspended."""


class Closer(Manager):
    """Brings every upgrade to an end: however it was left, it goes on, or is aborted."""

    def step(self) -> None:
        """Bring all tables to the end."""
        for table in self.scene.tables:
            ends = time.monotonic() + CLOSING_SECONDS
            while not self.unless(lambda table=table: self._close(self.gallery(table)), *REFUSALS):  # type: ignore[misc]
                if time.monotonic() > ends:
                    raise RuntimeError(f"{table} could not be brought to an end: {self.scene.ending}")
                time.sleep(LEASE_TERM / 5)

    def _close(self, gallery: cs.Gallery) -> None:
        states = {version.name: version.state for version in gallery.status().versions}
        if self.scene.ending == "abort":
            if gallery.active == "v2":
                gallery.rollback("v2")
            if gallery.status().upgrades:
                gallery.abort("v2")
            gallery.maintenance.optimize()  # an upgrade that was killed before it began has left columns
        elif states["v1"] in ("active", "live"):
            self._upgrade(gallery)
            gallery.cutover("v2")
            if self.scene.ending == "retire":
                gallery.retire("v1")
        elif self.scene.ending == "retire":
            gallery.retire("v1")


class Operator(Actor):
    """Follows the script: each command is given again to the next process if the one before it was killed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.position = 0

    @property
    def superseded(self) -> bool:
        """True once another process goes on with the script."""
        return self.journal.path.with_suffix(".over").exists()

    def step(self) -> None:
        """Run the next command once no other process holds the lease; nothing if another process goes on."""
        os.environ[ENCODED] = str(self.journal.path.with_name("encoded"))
        ends = time.monotonic() + PATIENCE_SECONDS
        while not self.superseded:
            try:
                SCRIPT[self.position](self, self.gallery(self.scene.tables[0]))
            except CompatStoreError as error:
                if self.superseded:
                    self.journal.say("refused", type(error).__name__)
                elif isinstance(error, LeaseHeld) and time.monotonic() < ends:
                    time.sleep(LEASE_TERM / 10)
                else:
                    raise
            else:
                break
        self.position += 1

    def upgrade(self, gallery: cs.Gallery, share: float, most: int | None = None, improve: bool = False) -> None:
        """Upgrade with a backfill of a share; by Ray two times of three where there is a cluster."""
        run = cs.RunSettings(batch_rows=16)
        if self.scene.ray and self.draw.random() < 2 / 3:
            run = cs.RunSettings(engine="ray", encoders=2, batch_rows=16, address=self.scene.ray)
        learn = Improve() if self.scene.linked and improve else None
        if not self.scene.linked:
            learn = cs.Learn(first=40, candidates=CLOSED_FORMS[:3])
        order = "sigma" if self.scene.linked else "spread"
        gallery.upgrade("v2", backfill=cs.Backfill(share=share, max_rows=most, order=order), learn=learn, run=run)


def _roll_back(_: Operator, gallery: cs.Gallery) -> None:
    if gallery.active == "v2":
        gallery.rollback("v2")


def _abort(_: Operator, gallery: cs.Gallery) -> None:
    if gallery.status().upgrades:
        gallery.abort("v2")


def _optimize(operator: Operator, gallery: cs.Gallery) -> None:
    gallery.maintenance.optimize(adopted=True, grace=None if operator.scene.kind.adopted else GRACE)


SCRIPT: tuple[Command, ...] = (
    lambda operator, gallery: operator.upgrade(gallery, 0.2),
    _abort,
    lambda operator, gallery: operator.upgrade(gallery, 0.3, MOST_ROWS),
    _abort,
    lambda operator, gallery: operator.upgrade(gallery, 0.1),
    lambda operator, gallery: operator.upgrade(gallery, 0.3, improve=True),
    lambda _, gallery: gallery.cutover("v2"),
    _roll_back,
    _optimize,
    lambda operator, gallery: operator.upgrade(gallery, 0.3),
    lambda _, gallery: gallery.cutover("v2"),
    lambda operator, gallery: operator.upgrade(gallery, 0.5, improve=True),
    lambda _, gallery: gallery.retire("v1"),
)
LIMITED = 2  # number of the command whose budget is `MOST_ROWS`
BEFORE_CUTOVER = 5  # number of the last command until whose end all natives come from a backfill
