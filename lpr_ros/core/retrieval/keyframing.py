"""Which scans become keyframes, and which earlier scans are merged into them.

The planner sees poses only, so a bag can be planned before a cloud is read; the keyframer adds
the points. The node and the offline commands therefore choose and merge alike.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
import math

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.geometry import invert, rotation_angle_rad, transform_points
from lpr_ros.core.records import Scan


@dataclass(frozen=True)
class KeyframeConfig(Config):
    """When a new keyframe is due (any one suffices; 0 switches one off), and what it holds."""

    distance_m: float = option(2.0, 'travelled since the last keyframe', unit='m', low=0.0)
    angle_deg: float = option(0.0, 'turned since it', unit='deg', low=0.0, high=180.0)
    interval_s: float = option(0.0, 'elapsed since it', unit='s', low=0.0)
    submap_m: float = option(
        0.0, 'trajectory whose scans are merged; 0 takes the single scan', unit='m', low=0.0,
        fixed=True,
    )
    submap_step_m: float = option(
        0.2, 'scans merged are at least this far apart', unit='m', low=0.0, fixed=True,
    )
    submap_scans: int = option(100, 'most scans merged', low=1, fixed=True)
    submap_voxel_m: float = option(
        0.1, 'one point is kept per voxel of a submap; 0 keeps all', unit='m', low=0.0, fixed=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.distance_m or self.angle_deg or self.interval_s):
            raise ConfigError(
                'expected distance_m, angle_deg or interval_s above 0: no keyframe would be made'
            )


@dataclass(frozen=True)
class _Step:
    index: int
    T: NDArray[np.float64]
    travelled_m: float


class KeyframePlanner:
    """Takes poses in order of time and says when a keyframe is due and from which scans."""

    def __init__(self, config: KeyframeConfig):
        self.config = config  # what is not fixed may be replaced at any time
        self._count = 0
        self.reset()

    def reset(self) -> None:
        """Forget the past, as after a jump in time; the numbering of scans goes on."""
        self._window: deque[_Step] = deque(maxlen=self.config.submap_scans)
        self._newest_ns: int | None = None
        self._last_ns: int | None = None
        self._last_T: NDArray[np.float64] | None = None

    @property
    def window(self) -> tuple[int, ...]:
        """Numbers of the scans that a coming keyframe may need."""
        return tuple(step.index for step in self._window)

    def add(self, stamp_ns: int, T: NDArray[np.float64] | None) -> tuple[int, ...] | None:
        """Take the next scan; return the numbers of the scans of a keyframe, itself the last."""
        index = self._count
        self._count += 1
        if self._newest_ns is not None and stamp_ns < self._newest_ns:
            self.reset()
        self._newest_ns = stamp_ns
        if T is not None and self.config.submap_m > 0.0:
            self._extend(index, T)
        if not self._is_due(stamp_ns, T):
            return None
        self._last_ns, self._last_T = stamp_ns, T
        earlier = self.window
        return earlier if earlier and earlier[-1] == index else (*earlier, index)

    def _extend(self, index: int, T: NDArray[np.float64]) -> None:
        """Put the scan into the window, and let fall out what is too far behind."""
        travelled = 0.0
        if self._window:
            newest = self._window[-1]
            step = float(np.linalg.norm(T[:3, 3] - newest.T[:3, 3]))
            if step < self.config.submap_step_m:
                return
            travelled = newest.travelled_m + step
        self._window.append(_Step(index, T, travelled))
        while travelled - self._window[0].travelled_m > self.config.submap_m:
            self._window.popleft()

    def _is_due(self, stamp_ns: int, T: NDArray[np.float64] | None) -> bool:
        c = self.config
        if T is None and c.submap_m > 0.0:
            return False
        if self._last_ns is None:
            return T is not None or c.interval_s > 0.0
        if c.interval_s and stamp_ns - self._last_ns >= c.interval_s * NS_PER_S:
            return True
        if T is None:
            return False
        if self._last_T is None:
            return True
        change = invert(self._last_T) @ T
        moved_m = float(np.linalg.norm(change[:3, 3]))
        if c.distance_m and moved_m >= c.distance_m:
            return True
        return bool(c.angle_deg) and rotation_angle_rad(change) >= np.deg2rad(c.angle_deg)


class Keyframer:
    """Takes scans in order of time and gives keyframes; it holds no more than one window."""

    def __init__(self, config: KeyframeConfig):
        self._planner = KeyframePlanner(config)
        self._scans: dict[int, Scan] = {}
        self._count = 0

    @property
    def config(self) -> KeyframeConfig:
        """What is not fixed in it may be replaced at any time."""
        return self._planner.config

    @config.setter
    def config(self, config: KeyframeConfig) -> None:
        self._planner.config = config

    def add(self, scan: Scan) -> Scan | None:
        """Return the keyframe that this scan completes, in the frame of this scan, or None."""
        self._scans[self._count] = prepare(scan, self.config)
        self._count += 1
        chosen = self._planner.add(scan.stamp_ns, scan.T_odom_sensor)
        keyframe = None
        if chosen is not None:
            keyframe = merge_scans(
                [self._scans[i] for i in chosen], self.config.submap_voxel_m
            )
        kept = set(self._planner.window)
        self._scans = {i: s for i, s in self._scans.items() if i in kept}
        return keyframe


def prepare(scan: Scan, config: KeyframeConfig) -> Scan:
    """Thin a scan on arrival where it will be merged: a window of full scans is gigabytes."""
    if config.submap_m <= 0.0:
        return scan
    return replace(scan, points=thin(scan.points, config.submap_voxel_m))


def merge_scans(scans: Sequence[Scan], voxel_m: float) -> Scan:
    """Bring scans into the frame of the last one; a single scan is returned as it is."""
    last = scans[-1]
    if len(scans) == 1:
        return last
    parts = []
    for scan in reversed(scans):  # newest first: thinning keeps the first point of a voxel
        if scan.T_odom_sensor is None or last.T_odom_sensor is None:
            raise ConfigError('scans without a pose cannot be merged into a submap')
        T_last_scan = invert(last.T_odom_sensor) @ scan.T_odom_sensor
        parts.append(transform_points(T_last_scan, scan.points))
    points = thin(np.concatenate(parts), voxel_m)
    return Scan(points, last.stamp_ns, last.T_odom_sensor)


def thin(points: NDArray[np.float32], voxel_m: float) -> NDArray[np.float32]:
    """Keep the first point of each voxel, in the order of the input; 0 keeps all."""
    if voxel_m <= 0.0 or len(points) == 0:
        return points
    cells = [np.floor(points[:, k] / np.float64(voxel_m)).astype(np.int64) for k in range(3)]
    kept: NDArray[np.float32] = points[_first_of_each([c - c.min() for c in cells])]
    return kept


def _first_of_each(columns: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Mark the first of each kind among N rows of non-negative numbers, given by columns."""
    count = len(columns[0])
    is_first = np.zeros(count, dtype=bool)
    spans = [int(column.max()) + 1 for column in columns]
    if math.prod(spans) * count >= 2**63:  # points astronomically far apart
        is_first[np.unique(np.stack(columns), axis=1, return_index=True)[1]] = True
        return is_first
    # Kind and row in one integer: a plain sort, three times faster than np.unique.
    keys = np.zeros(count, dtype=np.int64)
    for column, span in zip(columns, spans, strict=True):
        keys *= span
        keys += column
    keys *= count
    keys += np.arange(count)
    keys.sort()
    rows = keys % count
    keys //= count
    is_first[rows[np.concatenate([[True], keys[1:] != keys[:-1]])]] = True
    return is_first
