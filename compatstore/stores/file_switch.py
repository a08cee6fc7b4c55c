"""A switch of an index and its ids to those of a target, two files that no system replaces in one step.

The app's files are kept under another name by hard links; then the target's take their place, ids first. A file that
an app writes meanwhile is not replaced. The facts `state` and `stamps` beside the target's vectors say how far a switch
came, so that it goes on after any end of the process:

| state | files |
|---|---|
| "" | the app's are in place |
| moving | the app's are in place or kept; the target's take their place |
| switched | the target's are in place, the app's are kept |
| returning | the target's are in place; the app's take their place |
| final | the target's are in place, the app's were dropped |
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compatstore.errors import StorageError, UpgradeError
from compatstore.stores.faiss_index import Stamp, ids_file, stamp, sync_folder
from compatstore.stores.staged import Staged


@dataclass(frozen=True)
class FileSwitch:
    """Files of a switch.

    Attributes:
        staged: Target vectors, with the facts.
        path: Index that the app reads.
        place: Index of the target.
        before: Name that the app's index is kept under.
    """

    staged: Staged
    path: Path
    place: Path
    before: Path

    @property
    def state(self) -> str:
        """How far it came."""
        return self.staged.fact("state")

    @property
    def is_made(self) -> bool:
        """True if the target's files are in place."""
        return self.state in ("switched", "final")

    def forward(self, fold: Callable[[], tuple[Stamp | None, ...]]) -> None:
        """Put the target's files in place, or go on with it.

        Args:
            fold: Makes the target's files, and gives the stamps of the app's index and ids that they were made for.

        Raises:
            StorageError: The app wrote its files meanwhile.
        """
        if self.state == "returning":
            self.back()
        if self.is_made:
            return
        if not self._can_go_on():
            stamps = fold()
            _keep(self.path, self.before)
            if _stamps(self.before) != tuple(stamps):
                operation, expected = f"switch {self.path}", "an app that does not write it meanwhile"
                raise StorageError(operation, expected=expected, found="another file", fix="Try again.")
            self.staged.note(state="moving", stamps=json.dumps(stamps))
        _move(self.place, self.path)
        self.staged.note(state="switched", folded="")

    def back(self) -> None:
        """Put the app's files back in place, or go on with it.

        Raises:
            UpgradeError: They were dropped.
        """
        if self.state == "final":
            operation, expected = f"switch {self.path} back", "the app's files of before the switch"
            raise UpgradeError(operation, expected=expected, found="dropped")
        if self.state == "moving":
            for suffix in _suffixes(self.path):
                if stamp(_named(self.place, suffix)) is None:  # in place: the app's is put back
                    os.replace(_named(self.before, suffix), _named(self.path, suffix))
        elif self.state in ("switched", "returning"):
            self.staged.note(state="returning")
            _move(self.before, self.path)
        self.remove(self.before)
        self.staged.note(state="", folded="")

    def keep(self, place: Path) -> None:
        """Give the files that are in place a second name."""
        _keep(self.path, place)

    def finish(self) -> None:
        """Drop the app's files of before the switch.

        Raises:
            UpgradeError: There was none.
        """
        if not self.is_made:
            operation, expected = f"drop what {self.path.name} was", "a switch of it"
            raise UpgradeError(operation, expected=expected, found="none")
        self.staged.note(state="final")
        self.remove(self.before)
        self.staged.clear()

    def remove(self, place: Path) -> None:
        """Remove the files of an index that is not the app's."""
        for suffix in _suffixes(self.path):
            for name in (_named(place, suffix), _part(_named(place, suffix))):
                name.unlink(missing_ok=True)

    def _can_go_on(self) -> bool:
        """True if a switch ended between its two files, and the app has not written its own since."""
        if self.state != "moving":
            return False
        index, ids = (tuple(one) if one else None for one in json.loads(self.staged.fact("stamps")))
        known = {suffix: ids if suffix else index for suffix in _suffixes(self.path)}
        waiting = [suffix for suffix in known if stamp(_named(self.place, suffix)) is not None]
        return all(stamp(_named(self.path, suffix)) == known[suffix] for suffix in waiting)


def _suffixes(path: Path) -> list[str]:
    """What the names of an index's files end in: of its ids, if they have a file, and "" of the index."""
    named = ids_file(path)
    return [""] if named is None else [named.name.removeprefix(path.name), ""]


def _named(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _part(path: Path) -> Path:
    return _named(path, ".part")


def _stamps(path: Path) -> tuple[Stamp | None, ...]:
    """Stamps of an index and of its ids."""
    named = ids_file(path)
    return stamp(path), None if named is None else stamp(named)


def _keep(path: Path, place: Path) -> None:
    """Give the files of an index a second name."""
    for suffix in _suffixes(path):
        name = _named(place, suffix)
        _part(name).unlink(missing_ok=True)
        os.link(_named(path, suffix), _part(name))
        os.replace(_part(name), name)
        _part(name).unlink(missing_ok=True)  # stays where both names were one file already
    sync_folder(path)


def _move(place: Path, path: Path) -> None:
    """Put the files of an index in the place of the app's; what is there already stays."""
    for suffix in _suffixes(path):
        if stamp(_named(place, suffix)) is not None:
            os.replace(_named(place, suffix), _named(path, suffix))
    sync_folder(path)
