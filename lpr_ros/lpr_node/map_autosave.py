"""Saving and loading of the map at map_path, on request and automatically."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
import os
from pathlib import Path
import threading
import time
import weakref

from lpr_ros.core.database.place_database import PlaceDatabase
from lpr_ros.core.errors import LprError, MapError, error_text
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.lpr_node.diagnostics import MapStatus
from lpr_ros.lpr_node.map_lock import MapFolder, MapLock, MapLockedError

MIN_PAUSE_FACTOR = 20  # pause between saves per duration of a save: large maps wear out the disk
# A restarted node may find its predecessor still saving the map that it is going to load. If the
# predecessor keeps the map for longer, two nodes were started by mistake.
PREDECESSOR_TIMEOUT_S, POLL_S = 10.0, 0.05
SAVE_TIMEOUT_S = 60.0  # longer than any healthy disk needs; services must answer


@dataclass(frozen=True, eq=False)
class SavedMap:
    """A map file that holds the first keyframes of a database."""

    path: Path
    database: 'weakref.ref[PlaceDatabase]'
    keyframes: int
    time_s: float
    version: tuple[int, ...] | None  # of the file, to detect that it was replaced

    @staticmethod
    def of(path: Path, database: PlaceDatabase, keyframes: int) -> 'SavedMap':
        """Describe the file as it is now."""
        now_s = time.monotonic()
        return SavedMap(path, weakref.ref(database), keyframes, now_s, _file_version(path))


class MapAutosave:
    """Saves and loads the map at map_path.

    Saving runs concurrently with the workers, on rows that never move. Automatic saves only
    extend a map: a map that was not loaded, or whose keyframes were forgotten by a reset, is left
    alone until `save` is called. If another node holds the lock, every save tries again.
    """

    def __init__(
        self,
        config: NodeConfig,
        warn: Callable[[str], None],
        tell: Callable[[str], None] = lambda text: None,
    ):
        self._config = config
        self._warn, self._tell = warn, tell
        self._folder = MapFolder(config.map_path)
        self._files = threading.Lock()  # one save or load at a time
        self._lock: MapLock | None = None
        self._saved: SavedMap | None = None
        self._saver: threading.Thread | None = None
        self._due_s = time.monotonic() + config.autosave_s
        self.error = ''  # why the map is not saved
        if config.map_path:
            with self._one_at_a_time():
                extends = config.load_map and config.autosave_s > 0.0
                self._try_lock(PREDECESSOR_TIMEOUT_S if extends else 0.0)

    def configure(self, config: NodeConfig) -> None:
        """Use changed settings; ConfigError if map_path is outside the folder."""
        if config.map_path:
            self._folder.file(config.map_path)
        self._config = config
        if not (config.map_path and config.autosave_s):
            self.error = ''
        self._due_s = min(self._due_s, time.monotonic() + config.autosave_s)

    @property
    def exists(self) -> bool:
        """Whether there is a map to load."""
        map_path = self._config.map_path
        return bool(map_path) and os.path.exists(self._folder.file(map_path))

    def load(self, read: Callable[[Path], PlaceDatabase]) -> tuple[PlaceDatabase, SavedMap]:
        """Read the map; pass the second value to `adopt` once the node uses its keyframes."""
        self.wait()
        path = self._folder.file(self._config.map_path)
        with self._one_at_a_time():
            self._try_lock()
            # Taken before reading: a file replaced meanwhile is not the one that was read.
            version = _file_version(path)
            database = read(path)
        now_s = time.monotonic()
        saved = SavedMap(path, weakref.ref(database), len(database), now_s, version)
        return database, saved

    def adopt(self, saved: SavedMap) -> None:
        """Extend this map with the next saves, even if another node holds its lock now."""
        self._saved = saved

    def save(self, database: PlaceDatabase) -> str:
        """Write all keyframes, replacing any map; return a summary."""
        with self._one_at_a_time():
            return self._save(database, self._locked_file())

    def save_if_due(self, database: PlaceDatabase) -> None:
        """Start a save in the background when the interval is over. One thread."""
        c = self._config
        is_enabled = bool(c.map_path) and c.autosave_s > 0.0
        is_saving = self._saver is not None and self._saver.is_alive()
        if is_enabled and not is_saving and time.monotonic() >= self._due_s:
            self._start_save(database)

    def wait(self) -> None:
        """Wait for a background save; MapError if it hangs."""
        if self._saver is not None:
            self._saver.join(SAVE_TIMEOUT_S)
            if self._saver.is_alive():
                raise MapError(f'the map is still being saved after {SAVE_TIMEOUT_S} s')

    def close(self, database: PlaceDatabase) -> None:
        """Save new keyframes and let another node have the map."""
        try:
            self.wait()
            if self._config.map_path and self._config.autosave_s:
                self._start_save(database)
                self.wait()
        except MapError as error:  # the disk hangs, but the node has to end
            self._report(error)
            return
        self.release()

    def release(self) -> None:
        """Let another node have the map."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def status(self) -> MapStatus:
        """Return the status for the diagnostics."""
        saved = self._saved
        if saved is None:
            return MapStatus(self.error)
        return MapStatus(self.error, saved.keyframes, time.monotonic() - saved.time_s)

    def _start_save(self, database: PlaceDatabase) -> None:
        self._saver = threading.Thread(target=self._extend, args=(database,), daemon=True)
        self._saver.start()

    def _extend(self, database: PlaceDatabase) -> None:
        """Save new keyframes if the file on disk is the beginning of this database."""
        start_s = time.monotonic()
        try:
            with self._one_at_a_time():
                self._save_new_keyframes(database)
                self.error = ''
        except Exception as error:  # in a thread of its own nobody else would report it
            self._report(error)
        now_s = time.monotonic()
        pause_s = max(self._config.autosave_s, MIN_PAUSE_FACTOR * (now_s - start_s))
        self._due_s = now_s + pause_s

    def _save_new_keyframes(self, database: PlaceDatabase) -> None:
        lock_before = self._lock
        path = self._locked_file()
        saved = self._saved
        is_ours = (
            saved is not None
            and saved.path == path
            and saved.database() is database
            and saved.version == _file_version(path)
        )
        if not is_ours and os.path.exists(path):
            if self._lock is not lock_before:  # leave it to a node that loads this map
                self.release()
            raise MapError(
                f'{path}: has keyframes that this node did not load or has deleted in a reset; '
                'call ~/save_map to replace it'
            )
        if len(database) > (saved.keyframes if saved and is_ours else 0):
            self._tell(self._save(database, path))

    def _save(self, database: PlaceDatabase, path: Path) -> str:
        count = database.save(path)
        self._saved = SavedMap.of(path, database, count)
        self.error = ''
        return f'{count} keyframes saved to {path}'

    def _locked_file(self) -> Path:
        """Return the file to write, locked by this node; MapError if it cannot be locked."""
        path = self._folder.file_to_write(self._config.map_path)
        if self._lock is None or self._lock.path != path or not self._lock.is_held:
            self.release()
            self._lock = MapLock(path)
        return path

    def _try_lock(self, timeout_s: float = 0.0) -> None:
        """Report now, not after the drive, that the map cannot be written."""
        try:
            self._locked_file()
        except LprError as error:
            if self._config.autosave_s:
                self._report(error)
            if isinstance(error, MapLockedError):
                self._lock_within(timeout_s)

    def _lock_within(self, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            time.sleep(POLL_S)
            try:
                self._locked_file()
            except MapLockedError:
                continue
            except LprError as error:  # unlocked, but not writable
                self._report(error)
            else:
                self.error = ''
            return

    def _report(self, error: Exception) -> None:
        self.error = error_text(error)
        self._warn(f'map not saved: {self.error}')

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if not self._files.acquire(timeout=SAVE_TIMEOUT_S):
            raise MapError(f'another save or load is still running after {SAVE_TIMEOUT_S} s')
        try:
            yield
        finally:
            self._files.release()


def _file_version(path: Path) -> tuple[int, ...] | None:
    """Identify a file and its contents; None without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
