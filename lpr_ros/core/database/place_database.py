"""The database of keyframes: add, query, save, load.

Query a keyframe before adding it, so that it cannot match itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.database.cloud_store import (
    BYTES_PER_POINT,
    OVERHEAD_BYTES,
    CloudStore,
    QuantizedCloud,
    pack,
)
from lpr_ros.core.database.descriptor_index import DescriptorIndex
from lpr_ros.core.database.keyframe_table import (
    BYTES_PER_PLACE,
    PLACE_ROW,
    KeyframeTable,
    place_row,
)
from lpr_ros.core.database.map_file import (
    BATCH_KEYFRAMES,
    KEYFRAME_RECORD,
    Batch,
    Header,
    MapReader,
    write_map,
)
from lpr_ros.core.errors import DatabaseError, MapError
from lpr_ros.core.geometry.se3 import checked_pose
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.core.types import Keyframe, Locations, Match, Place

MIB = 2**20


@dataclass(frozen=True)
class DatabaseConfig(Config):
    """Eligible matches, search, and memory limits."""

    top_k: int = option(10, 'Maximum number of matches per query', low=1, high=1000)
    exclude_s: float = option(
        30.0, 'Ignore keyframes of the same session within this time', unit='s', low=0.0
    )
    exclude_m: float = option(
        50.0,
        'Ignore keyframes of the same session within this traveled distance; needs odometry',
        unit='m',
        low=0.0,
    )
    exclude_keyframes: int = option(
        0, 'Ignore this many of the newest keyframes of the same session', low=0
    )
    brute_force_limit_mib: int = option(
        32,
        'Descriptor memory up to which search is exhaustive; above, an index is built',
        unit='MiB',
        low=0,
        fixed=True,
    )
    nprobe_fraction: float = option(
        0.4,
        'Minimum fraction of the cells of the index that a query visits',
        low=0.0,
        high=1.0,
        fixed=True,
    )
    rerank_k: int = option(
        128, 'Number of index results re-ranked by exact distance', low=1, fixed=True
    )
    cloud_voxel_m: float = option(
        0.3,
        'Voxel size for downsampling stored clouds; 0 disables downsampling',
        unit='m',
        low=0.0,
    )
    max_cloud_points: int = option(
        20_000, 'Maximum number of points per stored cloud, at 6 bytes each', low=1
    )
    cloud_memory_mib: int = option(
        1024,
        'Memory for stored clouds; older clouds beyond it move to disk; 0 disables the limit',
        unit='MiB',
        low=0,
        fixed=True,
    )
    cloud_folder: str = option(
        '',
        'Folder for clouds moved to disk; empty selects the temporary folder of the system',
        fixed=True,
    )


class PlaceDatabase:
    """Keyframes of any number of sessions and robots, numbered from 0.

    Add and query from one thread. Saving may run in another: rows never move, and keyframes added
    after it started are not saved.
    """

    def __init__(
        self,
        config: DatabaseConfig,
        dim: int,
        *,
        fingerprint: str = '',
    ):
        self.config = config  # top_k and exclude_* can change at any time
        self.dim = dim
        self.fingerprint = fingerprint  # of the checkpoint that made the descriptors
        self._index = DescriptorIndex(
            dim,
            brute_force_bytes=config.brute_force_limit_mib * MIB,
            nprobe_fraction=config.nprobe_fraction,
            rerank_k=config.rerank_k,
        )
        folder = Path(config.cloud_folder) if config.cloud_folder else None
        self._clouds = CloudStore(config.cloud_memory_mib * MIB, folder)
        self._places = KeyframeTable()

    def __len__(self) -> int:
        return len(self._index)  # extended last: every counted keyframe is complete

    @property
    def sessions(self) -> tuple[str, ...]:
        """Names of the sessions, in order of their first keyframe."""
        return self._places.sessions

    def make_keyframe(
        self,
        descriptor: NDArray[np.float32],
        points: NDArray[np.float32],
        *,
        session: str,
        stamp_ns: int,
        T_odom_sensor: NDArray[np.float64] | None = None,
    ) -> Keyframe:
        """Return the next keyframe, validated, downsampled and numbered, without adding it."""
        T = None if T_odom_sensor is None else checked_pose(T_odom_sensor)
        timeline = self._places.timeline(session)
        timeline.check_stamps(np.array([stamp_ns], dtype=np.int64))
        return Keyframe(
            id=len(self),
            session=session,
            stamp_ns=stamp_ns,
            descriptor=self._checked_descriptor(descriptor),
            points=pack(points, self.config.cloud_voxel_m, self.config.max_cloud_points).points,
            T_odom_sensor=T,
            traveled_m=timeline.traveled_to(T),
        )

    def query(self, keyframe: Keyframe, count: int | None = None) -> list[Match]:
        """Return the nearest eligible keyframes, by default top_k, nearest first.

        Their probability is NaN; retrieval.MatchProbability knows it.
        """
        descriptor = self._checked_descriptor(keyframe.descriptor)
        eligible = self.eligible(keyframe)
        ids, distances = self._index.search(descriptor, count or self.config.top_k, eligible)
        pairs = zip(ids.tolist(), distances.tolist(), strict=True)
        return [Match(i, distance, math.nan) for i, distance in pairs]

    def distances(
        self, descriptor: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the descriptor distances to these keyframes."""
        return self._index.distances(self._checked_descriptor(descriptor), ids)

    def newest_ids(self, session: str, count: int) -> NDArray[np.int64]:
        """Return the ids of the newest keyframes of a session, in order of time."""
        return np.array(self._places.timeline(session).ids[-count:], dtype=np.int64)

    def locations(self, ids: NDArray[np.int64]) -> Locations:
        """Return where these keyframes are."""
        return self._places.locations(ids)

    def location_of(self, keyframe: Keyframe) -> Locations:
        """Return where a keyframe is that may not have been added yet."""
        T = keyframe.T_odom_sensor
        return Locations(
            np.array([self._places.timeline(keyframe.session).number]),
            np.array([keyframe.traveled_m]),
            np.full((1, 3), np.nan) if T is None else T[None, :3, 3],
        )

    def eligible(self, keyframe: Keyframe | Place) -> NDArray[np.bool_]:
        """Return a mask of what may match: other sessions, and the older part of its own."""
        timeline = self._places.timeline(keyframe.session)
        count = timeline.eligible(
            keyframe.stamp_ns,
            keyframe.traveled_m,
            age_ns=round(self.config.exclude_s * NS_PER_S),
            gap_m=0.0 if keyframe.T_odom_sensor is None else self.config.exclude_m,
            gap_keyframes=self.config.exclude_keyframes,
        )
        eligible = np.ones(len(self), dtype=np.bool_)
        eligible[np.array(timeline.ids[count:], dtype=np.int64)] = False
        return eligible

    def add(self, keyframe: Keyframe) -> None:
        """Add a keyframe returned by `make_keyframe`."""
        if keyframe.id != len(self):
            raise DatabaseError(f'keyframe {keyframe.id}, expected the next id, {len(self)}')
        self._extend(
            self._checked_descriptor(keyframe.descriptor)[None],
            place_row(keyframe.stamp_ns, keyframe.traveled_m, keyframe.T_odom_sensor),
            [pack(keyframe.points, 0.0, self.config.max_cloud_points)],
            [keyframe.session],
        )
        self._index.build_if_due()

    def place(self, keyframe_id: int) -> Place:
        """Return session, time and pose of a keyframe, without reading its cloud."""
        return self._places[keyframe_id]

    def __getitem__(self, keyframe_id: int) -> Keyframe:
        place = self._places[keyframe_id]
        return Keyframe(
            id=place.id,
            session=place.session,
            stamp_ns=place.stamp_ns,
            descriptor=self._index[keyframe_id],
            points=self._clouds[keyframe_id].points,
            T_odom_sensor=place.T_odom_sensor,
            traveled_m=place.traveled_m,
        )

    def save(self, path: Path) -> int:
        """Write all keyframes to a map file atomically; return their number.

        Keyframes can be added meanwhile.
        """
        count = len(self)
        header = Header(
            self.fingerprint, self.dim, count, self.sessions, self._clouds.point_count(count)
        )
        write_map(Path(path), header, self._batches(count))
        return count

    @classmethod
    def load(
        cls,
        path: Path,
        config: DatabaseConfig,
        *,
        fingerprint: str,
        dim: int | None = None,
    ) -> 'PlaceDatabase':
        """Load a map made with the checkpoint of this fingerprint; MapError otherwise."""
        with MapReader(Path(path), fingerprint) as reader:
            header = reader.header
            if dim not in (None, header.dim):
                raise MapError(f'{path}: descriptors of {header.dim} dimensions, expected {dim}')
            database = cls(config, header.dim, fingerprint=fingerprint)
            sessions = list(header.sessions)
            try:
                for batch in reader.batches():
                    rows = _convert(batch.keyframes, PLACE_ROW)
                    database._extend(batch.descriptors, rows, batch.clouds, sessions)
            except DatabaseError as error:
                raise MapError(f'{path}: {error}') from error
        database._index.build_if_due()
        return database

    def memory_bytes(self) -> int:
        """Return the bytes held in memory, without clouds moved to disk."""
        return self._index.nbytes + self._places.nbytes + self._clouds.memory_bytes

    def memory_bytes_per_keyframe(self) -> int:
        """Return the maximum number of bytes that one more keyframe needs."""
        cloud = OVERHEAD_BYTES + BYTES_PER_POINT * self.config.max_cloud_points
        return self._index.max_bytes_per_row + BYTES_PER_PLACE + cloud

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the background index build; return whether it has finished."""
        return self._index.wait(timeout_s)

    def close(self) -> None:
        """Stop the background thread and delete the clouds on disk."""
        self._index.close()
        self._clouds.close()

    def _extend(
        self,
        descriptors: NDArray[np.float32],
        rows: NDArray[np.void],
        clouds: list[QuantizedCloud],
        sessions: list[str],
    ) -> None:
        if not len(self._places) == len(self._clouds) == len(self):
            raise DatabaseError(  # after a MemoryError; a saved copy is consistent
                f'{len(self._places)} places and {len(self._clouds)} clouds, expected '
                f'{len(self)}; save the map and load it again'
            )
        stored = [self._clouds.take(cloud) for cloud in clouds]  # first, because it can fail
        self._places.extend(rows, sessions)
        for cloud in stored:
            self._clouds.append(cloud)
        self._index.extend(descriptors)

    def _batches(self, count: int) -> Iterator[Batch]:
        for start in range(0, count, BATCH_KEYFRAMES):
            stop = min(start + BATCH_KEYFRAMES, count)
            rows = np.concatenate(list(self._places.rows.parts(start, stop)))
            yield Batch(
                np.concatenate(list(self._index.rows.parts(start, stop))),
                _convert(rows, KEYFRAME_RECORD),
                [self._clouds[i] for i in range(start, stop)],
            )

    def _checked_descriptor(self, descriptor: NDArray[np.float32]) -> NDArray[np.float32]:
        if descriptor.shape != (self.dim,):
            raise DatabaseError(f'descriptor of shape {descriptor.shape}, expected ({self.dim},)')
        bad = np.flatnonzero(~np.isfinite(descriptor))
        if len(bad):
            raise DatabaseError(
                f'descriptor[{bad[0]}] is {descriptor[bad[0]]} ({len(bad)} of {self.dim} are '
                'not finite), expected finite numbers'
            )
        return np.ascontiguousarray(descriptor, dtype=np.float32)


def _convert(rows: NDArray[np.void], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Copy structured rows field by field: NumPy's own cast goes by position, not by name."""
    converted = np.empty(len(rows), dtype=dtype)
    for name in dtype.names or ():
        converted[name] = rows[name]
    return converted
