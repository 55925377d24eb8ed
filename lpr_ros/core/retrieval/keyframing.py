"""Select keyframes among scans, and merge earlier scans into them.

The planner needs poses only, so a recording can be planned before any cloud is read. The node and
the offline commands share it, and therefore select and merge the same scans.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.geometry.points import voxel_downsample
from lpr_ros.core.geometry.se3 import invert, rotation_angle_rad, transform_points
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.core.types import Scan


@dataclass(frozen=True)
class KeyframeConfig(Config):
    """When a new keyframe is taken (any criterion suffices), and which scans it merges."""

    distance_m: float = option(
        2.0,
        'Minimum distance of travel before a new keyframe; 0 disables the criterion',
        unit='m',
        low=0.0,
    )
    angle_deg: float = option(
        0.0,
        'Rotation since the last keyframe that triggers a new one; 0 disables the criterion',
        unit='deg',
        low=0.0,
        high=180.0,
    )
    interval_s: float = option(
        0.0,
        'Time since the last keyframe that triggers a new one; 0 disables the criterion',
        unit='s',
        low=0.0,
    )
    submap_m: float = option(
        0.0,
        'Length of trajectory whose scans are merged into a keyframe; 0 uses single scans',
        unit='m',
        low=0.0,
        fixed=True,
    )
    submap_step_m: float = option(
        0.2, 'Minimum distance between scans merged into a submap', unit='m', low=0.0, fixed=True
    )
    submap_scans: int = option(
        100, 'Maximum number of scans merged into a submap', low=1, fixed=True
    )
    submap_voxel_m: float = option(
        0.1, 'Voxel size of a submap; 0 keeps all points', unit='m', low=0.0, fixed=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.distance_m or self.angle_deg or self.interval_s):
            raise ConfigError(
                'expected distance_m, angle_deg or interval_s above 0: no keyframe would ever '
                'be taken'
            )


@dataclass(frozen=True)
class _Step:
    index: int
    T: NDArray[np.float64]
    traveled_m: float


class KeyframePlanner:
    """Decides from poses, in order of time, which scans become keyframes and what they merge."""

    def __init__(self, config: KeyframeConfig):
        self.config = config  # fields that are not fixed may be replaced at any time
        self._count = 0
        self.reset()

    def reset(self) -> None:
        """Forget the past, as after a jump in time; scan numbers continue."""
        self._window: deque[_Step] = deque(maxlen=self.config.submap_scans)
        self._newest_ns: int | None = None
        self._last_ns: int | None = None
        self._last_T: NDArray[np.float64] | None = None

    @property
    def window(self) -> tuple[int, ...]:
        """Numbers of the scans that the next keyframe may merge."""
        return tuple(step.index for step in self._window)

    def add(self, stamp_ns: int, T: NDArray[np.float64] | None) -> tuple[int, ...] | None:
        """Process the next scan; if it is a keyframe, return the scans to merge, itself last."""
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
        """Add the scan to the window, and remove those too far behind."""
        traveled = 0.0
        if self._window:
            newest = self._window[-1]
            step = float(np.linalg.norm(T[:3, 3] - newest.T[:3, 3]))
            if step < self.config.submap_step_m:
                return
            traveled = newest.traveled_m + step
        self._window.append(_Step(index, T, traveled))
        while traveled - self._window[0].traveled_m > self.config.submap_m:
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
    """Turns scans, in order of time, into keyframes; holds at most one window of scans."""

    def __init__(self, config: KeyframeConfig):
        self._planner = KeyframePlanner(config)
        self._scans: dict[int, Scan] = {}
        self._count = 0

    @property
    def config(self) -> KeyframeConfig:
        """Fields that are not fixed may be replaced at any time."""
        return self._planner.config

    @config.setter
    def config(self, config: KeyframeConfig) -> None:
        self._planner.config = config

    def add(self, scan: Scan) -> Scan | None:
        """Return the merged keyframe in the frame of this scan if it is one, else None."""
        self._scans[self._count] = prepare(scan, self.config)
        self._count += 1
        chosen = self._planner.add(scan.stamp_ns, scan.T_odom_sensor)
        keyframe = None
        if chosen is not None:
            keyframe = merge_scans([self._scans[i] for i in chosen], self.config.submap_voxel_m)
        kept = set(self._planner.window)
        self._scans = {i: s for i, s in self._scans.items() if i in kept}
        return keyframe


def prepare(scan: Scan, config: KeyframeConfig) -> Scan:
    """Downsample a scan that will be merged: a window of full scans would be gigabytes."""
    if config.submap_m <= 0.0:
        return scan
    return replace(scan, points=voxel_downsample(scan.points, config.submap_voxel_m))


def merge_scans(scans: Sequence[Scan], voxel_m: float) -> Scan:
    """Merge scans in the frame of the last one; a single scan is returned unchanged."""
    last = scans[-1]
    if len(scans) == 1:
        return last
    parts = []
    for scan in reversed(scans):  # newest first: downsampling keeps the first point of a voxel
        if scan.T_odom_sensor is None or last.T_odom_sensor is None:
            raise ConfigError('a scan without a pose cannot be merged into a submap')
        T_last_scan = invert(last.T_odom_sensor) @ scan.T_odom_sensor
        parts.append(transform_points(T_last_scan, scan.points))
    points = voxel_downsample(np.concatenate(parts), voxel_m)
    return Scan(points, last.stamp_ns, last.T_odom_sensor)
