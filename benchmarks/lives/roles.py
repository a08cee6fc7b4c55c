"""The roles of a life, and what one process of it does."""

from __future__ import annotations

import random
import time
import traceback
import warnings
from collections.abc import Mapping

from benchmarks.lives.actor import Actor, Items, Journal, Scene
from benchmarks.lives.managers import Closer, Manager, Operator, SecondManager
from benchmarks.lives.watchers import Janitor, Reader
from benchmarks.lives.writers import OtherWriter, PlainApp, Store, Writer
from compatstore.errors import CompatStoreError

PAUSE = 0.15  # seconds between two operations, at most

WRITERS: dict[str, type[Writer]] = {one.__name__: one for one in (Writer, OtherWriter, PlainApp, Store)}
OTHERS = (Reader, Janitor, Manager, SecondManager, Closer, Operator)
ROLES: dict[str, type[Actor]] = {**WRITERS, **{one.__name__: one for one in OTHERS}}


def perform(role: str, scene: Scene, journal_path: str, seed: str, operations: range, own: Mapping[str, Items]) -> None:
    """Be one process of a life, and do operations of these numbers."""
    warnings.simplefilter("ignore")
    journal, draw = Journal(journal_path), random.Random(seed)
    actor = ROLES[role](scene, journal, draw, own)
    if isinstance(actor, Operator):
        actor.position = operations.start
    try:
        for _ in operations:
            time.sleep(draw.uniform(0, PAUSE))
            actor.step()
            journal.say("step")
    except CompatStoreError as error:
        journal.say("violation", f"{role} was refused: {type(error).__name__}: {error}\n{traceback.format_exc()}")
    except Exception:
        journal.say("violation", f"{role} failed:\n{traceback.format_exc()}")
