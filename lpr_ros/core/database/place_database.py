"""The places seen so far: add, query, save, load. Query before add: no scan matches itself."""

from collections.abc import Iterator
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.calibration import Calibration
from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.cloud_store import BYTES_PER_POINT, OVERHEAD_BYTES, CloudStore, pack
from lpr_ros.core.database_config import DatabaseConfig
from lpr_ros.core.descriptor_index import DescriptorIndex
from lpr_ros.core.errors import DatabaseError, MapError
from lpr_ros.core.map_file import BATCH_KEYFRAMES, Batch, Header, MapReader, write_map
from lpr_ros.core.place_table import BYTES_PER_PLACE, PlaceTable, checked_pose, place_row
from lpr_ros.core.records import Keyframe, Match, Place

MIB = 2**20


class PlaceDatabase:
    """Keyframes of any number of sessions and robots under one numbering.

    Adding and querying are for one thread. Saving may run in another: rows never move, and it
    takes those that were there when it began.
    """

    def __init__(
        self,
        config: DatabaseConfig,
        dim: int,
        *,
        fingerprint: str = '',
        calibration: Calibration | None = None,
    ):
        self.config = config  # top_k and exclude_* may be replaced at any time
        self.dim = dim
        self.fingerprint = fingerprint  # of the checkpoint that made the descriptors
        self._calibration = calibration
        self._index = DescriptorIndex(
            dim,
            exact_bytes=config.exact_mib * MIB,
            probe_share=config.index_probe_share,
            refined=config.index_refined,
        )
        folder = Path(config.cloud_folder) if config.cloud_folder else None
        self._clouds = CloudStore(config.cloud_memory_mib * MIB, folder)
        self._places = PlaceTable()

    def __len__(self) -> int:
        return len(self._index)  # extended last, so that what is counted is complete

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
        """Return the next keyframe, checked, thinned and numbered, but not yet added."""
        T = None if T_odom_sensor is None else checked_pose(T_odom_sensor)
        timeline = self._places.timeline(session)
        timeline.check_stamps(np.array([stamp_ns], dtype=np.int64))
        return Keyframe(
            id=len(self),
            session=session,
            stamp_ns=stamp_ns,
            descriptor=self._checked_descriptor(descriptor),
            points=pack(points, self.config.cloud_voxel_m, self.config.cloud_points).points,
            T_odom_sensor=T,
            travelled_m=timeline.travelled_to(T),
        )

    def query(self, keyframe: Keyframe) -> list[Match]:
        """Return the nearest keyframes that are not recent in its own session, nearest first."""
        descriptor = self._checked_descriptor(keyframe.descriptor)
        eligible = self.eligible(keyframe)
        ids, distances = self._index.search(descriptor, self.config.top_k, eligible)
        return [
            Match(i, d, self._probability(d))
            for i, d in zip(ids.tolist(), distances.tolist(), strict=True)
        ]

    def eligible(self, keyframe: Keyframe | Place) -> NDArray[np.bool_]:
        """Mark what the keyframe may match: other sessions, and its own past but the recent."""
        timeline = self._places.timeline(keyframe.session)
        count = timeline.eligible(
            keyframe.stamp_ns,
            keyframe.travelled_m,
            age_ns=round(self.config.exclude_s * NS_PER_S),
            gap_m=0.0 if keyframe.T_odom_sensor is None else self.config.exclude_m,
            gap_keyframes=self.config.exclude_keyframes,
        )
        eligible = np.ones(len(self), dtype=np.bool_)
        eligible[np.array(timeline.ids[count:], dtype=np.int64)] = False
        return eligible

    def add(self, keyframe: Keyframe) -> None:
        """Remember a keyframe that `make_keyframe` returned."""
        if keyframe.id != len(self):
            raise DatabaseError(f'keyframe {keyframe.id}, expected the next id, {len(self)}')
        self._extend(
            Batch(
                self._checked_descriptor(keyframe.descriptor)[None],
                place_row(keyframe.stamp_ns, keyframe.travelled_m, keyframe.T_odom_sensor),
                [pack(keyframe.points, 0.0, self.config.cloud_points)],
            ),
            [keyframe.session],
        )
        self._index.build_if_due()

    def place(self, keyframe_id: int) -> Place:
        """Return where a keyframe stands in its drive, without unpacking its cloud."""
        return self._places[keyframe_id]

    def __getitem__(self, keyframe_id: int) -> Keyframe:
        place = self._places[keyframe_id]
        return Keyframe(
            id=place.id,
            session=place.session,
            stamp_ns=place.stamp_ns,
            descriptor=self._index.rows[keyframe_id],
            points=self._clouds[keyframe_id].points,
            T_odom_sensor=place.T_odom_sensor,
            travelled_m=place.travelled_m,
        )

    def save(self, path: Path) -> int:
        """Write all keyframes to a map file, which a kill or a full disk leaves as it was.

        Return how many they were: others may be added meanwhile.
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
        calibration: Calibration | None = None,
    ) -> 'PlaceDatabase':
        """Read a map file made with the checkpoint of this fingerprint; MapError otherwise."""
        with MapReader(Path(path), fingerprint) as reader:
            header = reader.header
            database = cls(config, header.dim, fingerprint=fingerprint, calibration=calibration)
            try:
                for batch in reader.batches():
                    database._extend(batch, list(header.sessions))
            except DatabaseError as error:
                raise MapError(f'{path}: {error}') from error
        database._index.build_if_due()
        return database

    def merge(self, other: 'PlaceDatabase') -> int:
        """Add all keyframes of another map; return what their ids grew by.

        Sessions stay apart: one whose name is taken here becomes `name (2)`, `name (3)`, ...
        """
        if (other.fingerprint, other.dim) != (self.fingerprint, self.dim):
            raise MapError(
                f'map of checkpoint {other.fingerprint!r}, {other.dim} dimensions, expected '
                f'{self.fingerprint!r}, {self.dim}: descriptors are not comparable'
            )
        offset = len(self)
        taken = set(self.sessions)
        names = [free_name(name, taken) for name in other.sessions]
        for batch in other._batches(len(other)):
            self._extend(batch, names)
        self._index.build_if_due()
        return offset

    def memory_bytes(self) -> int:
        """Return the bytes of all that is held in memory; spilled clouds are on disk."""
        return self._index.nbytes + self._places.nbytes + self._clouds.memory_bytes

    def memory_bytes_per_keyframe(self) -> int:
        """Return the most that one more keyframe can cost, by the configuration."""
        cloud = OVERHEAD_BYTES + BYTES_PER_POINT * self.config.cloud_points
        return self._index.most_bytes_per_row + BYTES_PER_PLACE + cloud

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for an index being built in the background; return whether none is left."""
        return self._index.wait(timeout_s)

    def close(self) -> None:
        """End the background thread and drop the clouds on disk."""
        self._index.close()
        self._clouds.close()

    def _extend(self, batch: Batch, sessions: list[str]) -> None:
        if not len(self._places) == len(self._clouds) == len(self):
            raise DatabaseError(  # saved and loaded it is whole, as what is counted is
                f'{len(self._places)} places and {len(self._clouds)} clouds, expected {len(self)}'
            )
        clouds = [self._clouds.take(cloud) for cloud in batch.clouds]  # first: it may fail
        self._places.extend(batch.places, sessions)
        for cloud in clouds:
            self._clouds.append(cloud)
        self._index.extend(batch.descriptors)

    def _batches(self, count: int) -> Iterator[Batch]:
        for start in range(0, count, BATCH_KEYFRAMES):
            stop = min(start + BATCH_KEYFRAMES, count)
            yield Batch(
                np.concatenate(list(self._index.rows.parts(start, stop))),
                np.concatenate(list(self._places.rows.parts(start, stop))),
                [self._clouds[i] for i in range(start, stop)],
            )

    def _probability(self, distance: float) -> float:
        return math.nan if self._calibration is None else self._calibration.probability(distance)

    def _checked_descriptor(self, descriptor: NDArray[np.float32]) -> NDArray[np.float32]:
        if descriptor.shape != (self.dim,):
            raise DatabaseError(
                f'descriptor of shape {descriptor.shape}, expected ({self.dim},)'
            )
        bad = np.flatnonzero(~np.isfinite(descriptor))
        if len(bad):
            raise DatabaseError(
                f'descriptor[{bad[0]}] is {descriptor[bad[0]]} ({len(bad)} of {self.dim} are '
                'not finite), expected finite numbers'
            )
        return np.ascontiguousarray(descriptor, dtype=np.float32)


def free_name(name: str, taken: set[str]) -> str:
    """Return the name, or the first of `name (2)`, `name (3)`, ... that is free; take it."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f'{name} ({number})'
    taken.add(free)
    return free
