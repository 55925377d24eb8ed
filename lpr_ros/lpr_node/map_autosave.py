"""The map on disk: written by one node only, by itself every so often, never over other places."""

from collections.abc import Callable
from dataclasses import dataclass
import os
from pathlib import Path
import threading
import time
import weakref

from lpr_ros.core.database import PlaceDatabase
from lpr_ros.core.errors import LprError, MapError, reason
from lpr_ros.map_claim import MapClaim, MapKeptError
from lpr_ros.map_folder import MapFolder
from lpr_ros.node_config import NodeConfig

REST = 20  # times as long as a save took nothing is saved: a large map must not wear out the disk
# A node started again may come while the one before it still saves: what that one saves is the map
# to load. Where it does not end, two were started by mistake.
PREDECESSOR_S, LOOK_EVERY_S = 10.0, 0.05


@dataclass(frozen=True, eq=False)
class _OnDisk:
    """A file whose places are the first of these."""

    path: Path
    database: 'weakref.ref[PlaceDatabase]'
    keyframes: int
    at_s: float
    version: tuple[int, ...] | None  # of the file: another in its place is not ours


class MapKeeper:
    """Saves and loads the map of the parameter `map_path`.

    A save runs beside the workers, on rows that never move: it holds back neither description nor
    callbacks. On its own it only extends a map: one that was not loaded, or whose places were
    forgotten by a reset, is left alone until `save` is called for. A map that another node has is
    asked for again with every save.
    """

    def __init__(self, config: NodeConfig, warn: Callable[[str], None]):
        self._config = config
        self._warn = warn
        self._folder = MapFolder(config.map_path)
        self._files = threading.Lock()  # one save or load at a time
        self._claim: MapClaim | None = None
        self._on_disk: _OnDisk | None = None
        self._saver: threading.Thread | None = None
        self._due_s = time.monotonic() + config.autosave_s
        self.error = ''  # why the map is not saved; empty where it is
        if config.map_path:
            with self._files:
                writes = config.load_map and config.autosave_s > 0.0
                self._claim_early(PREDECESSOR_S if writes else 0.0)

    def configure(self, config: NodeConfig) -> None:
        """Take changed settings; ConfigError where the file would be outside of the folder."""
        if config.map_path:
            self._folder.file(config.map_path)
        self._config = config
        if not (config.map_path and config.autosave_s):
            self.error = ''  # nothing is to be saved
        self._due_s = min(self._due_s, time.monotonic() + config.autosave_s)

    @property
    def is_there(self) -> bool:
        """Tell whether there is a map to load."""
        map_path = self._config.map_path
        return bool(map_path) and os.path.exists(self._folder.file(map_path))

    def load(self, read: Callable[[Path], PlaceDatabase]) -> PlaceDatabase:
        """Return the places of the map, by a function that reads them."""
        self.wait()
        path = self._folder.file(self._config.map_path)
        with self._files:
            self._claim_early()
            # Noted also where another node has the map: it may end and leave the file as it was.
            version = _version(path)
            database = read(path)
            self._note(path, database, len(database), version)
        return database

    def save(self, database: PlaceDatabase) -> str:
        """Write all places, over whatever map was there; return what was done."""
        with self._files:
            return self._save(database, self._claimed())

    def save_if_due(self, database: PlaceDatabase) -> None:
        """Save in the background, where it is time to; for one thread."""
        c = self._config
        is_on = bool(c.map_path) and c.autosave_s > 0.0
        is_saving = self._saver is not None and self._saver.is_alive()
        if is_on and not is_saving and time.monotonic() >= self._due_s:
            self._saver = threading.Thread(target=self._extend, args=(database,), daemon=True)
            self._saver.start()

    def wait(self) -> None:
        """Wait for a save under way."""
        if self._saver is not None:
            self._saver.join()

    def close(self, database: PlaceDatabase) -> None:
        """Save what is new since the last time, and let another node have the map."""
        self.wait()
        if self._config.map_path and self._config.autosave_s:
            self._extend(database)
        self.release()

    def release(self) -> None:
        """Let another node have the map, as it is."""
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def facts(self) -> dict[str, object]:
        """Return how it goes, for the diagnostics."""
        saved, facts = self._on_disk, {'map_error': self.error}
        if saved is not None:
            facts['map_keyframes'] = str(saved.keyframes)
            facts['map_age_s'] = f'{time.monotonic() - saved.at_s:.0f}'
        return facts

    def _extend(self, database: PlaceDatabase) -> None:
        """Save what is new, if what is on disk is the beginning of it; tell where that fails."""
        began_s = time.monotonic()
        with self._files:
            try:
                before = self._claim
                path = self._claimed()
                known = self._on_disk
                is_ours = (
                    known
                    and known.path == path
                    and known.database() is database
                    and known.version == _version(path)
                )
                if not is_ours and os.path.exists(path):
                    if self._claim is not before:  # free again, for one who has its places
                        self.release()
                    raise MapError(
                        f'{path}: holds places that this node has not loaded, or has forgotten; '
                        'only ~/save_map writes over it'
                    )
                if len(database) > (known.keyframes if known and is_ours else 0):
                    self._save(database, path)
                self.error = ''
            except Exception as error:  # in a thread nobody else would hear of it
                self._tell(error)
        now_s = time.monotonic()
        self._due_s = now_s + max(self._config.autosave_s, REST * (now_s - began_s))

    def _save(self, database: PlaceDatabase, path: Path) -> str:
        count = database.save(path)
        self._note(path, database, count, _version(path))
        self.error = ''
        return f'{count} keyframes saved to {path}'

    def _note(
        self, path: Path, database: PlaceDatabase, count: int, version: tuple[int, ...] | None
    ) -> None:
        now_s = time.monotonic()
        self._on_disk = _OnDisk(path, weakref.ref(database), count, now_s, version)

    def _claimed(self) -> Path:
        """Return the file to write, now this node's alone; MapError where it cannot be."""
        path = self._folder.file_to_write(self._config.map_path)
        if self._claim is None or self._claim.path != path:
            self.release()
            self._claim = MapClaim(path)
        return path

    def _claim_early(self, patience_s: float = 0.0) -> None:
        """Say at once, not after the drive, where the map cannot be written."""
        try:
            self._claimed()
        except LprError as error:
            if self._config.autosave_s:
                self._tell(error)
            if isinstance(error, MapKeptError):
                self._claim_within(patience_s)

    def _claim_within(self, patience_s: float) -> None:
        """Wait for who has the map to end."""
        until_s = time.monotonic() + patience_s
        while time.monotonic() < until_s:
            time.sleep(LOOK_EVERY_S)
            try:
                self._claimed()
            except MapKeptError:
                continue
            except LprError as error:  # free, but not to be written
                self._tell(error)
            else:
                self.error = ''
            return

    def _tell(self, error: Exception) -> None:
        self.error = reason(error)
        self._warn(f'the map is not saved: {self.error}')


def _version(path: Path) -> tuple[int, ...] | None:
    """Tell this file from others that may take its place; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
