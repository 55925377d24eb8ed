"""LiDAR odometry from clouds alone; the only file that imports kiss_icp.

kiss_icp registers each scan with a local map of the scans before it. It always returns a pose, so
whether to believe it is decided here: from how much of a scan agrees with the one before, and from
the directions that its surfaces constrain.
"""

from dataclasses import dataclass

from kiss_icp.config import KISSConfig
from kiss_icp.config.config import DataConfig, MappingConfig, RegistrationConfig
from kiss_icp.kiss_icp import KissICP
from kiss_icp.preprocess import Preprocessor
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from lpr_ros.core.errors import ScanError
from lpr_ros.core.geometry.odometry_jumps import OdometrySegment
from lpr_ros.core.geometry.se3 import transform_points
from lpr_ros.core.odometry.config import LidarOdometryConfig
from lpr_ros.core.timing import CLOCK_JUMP_NS, NS_PER_S

VOXELS_PER_RANGE = 100.0  # as in kiss_icp
MIN_POINTS = 50  # in range; fewer determine no pose
MAX_SWEEP_S = 1.0  # no LiDAR takes longer for a scan; longer times are in another unit
MAX_EXTRAPOLATION = 10.0  # scan periods over which a constant velocity is assumed
CHECKED_POINTS = 1000  # of a scan
NORMAL_NEIGHBORS = 10
FIRST_SEGMENT = OdometrySegment()
MAX_FLATNESS = 0.1  # of the two smallest variances around a point on a surface


@dataclass(frozen=True, eq=False)
class OdometryEstimate:
    """The pose of one scan."""

    T_odom_sensor: NDArray[np.float64]  # (4, 4), at the stamp of the scan
    segment: OdometrySegment  # a new one starts whenever the odometry is lost
    degenerate: str = ''  # why the pose is uncertain; '' if it is not


class LidarOdometry:
    """Estimates the pose of each scan relative to the first, scan by scan."""

    def __init__(
        self,
        config: LidarOdometryConfig | None = None,
        T_odom_start: NDArray[np.float64] | None = None,
        segment: OdometrySegment = FIRST_SEGMENT,
    ):
        """Start a segment at a pose, by default the first at the origin."""
        self._config = config or LidarOdometryConfig()
        self._voxel_size_m = (
            self._config.voxel_size_m or self._config.max_range_m / VOXELS_PER_RANGE
        )
        # Scans are deskewed here and not inside of KissICP, which takes the motion from scan to
        # scan for the motion during a scan: wrong as soon as a scan is missing.
        self._deskewer = Preprocessor(
            self._config.max_range_m, self._config.min_range_m, True, max_num_threads=1
        )
        self._segment = segment
        self._T_odom_start = np.eye(4) if T_odom_start is None else T_odom_start
        self._stamp_ns: int | None = None
        self._period_s = 0.0  # before the last scan; 0 without one
        self._previous: cKDTree | None = None  # the last scan, in the frame of the segment
        self._start()

    def add(
        self,
        stamp_ns: int,
        points: NDArray[np.float32],
        time_s: NDArray[np.float32] | None = None,
    ) -> OdometryEstimate:
        """Register the next scan; `time_s` (N,) are the times of its points after the stamp.

        Raise ScanError for a scan with too few points to register.
        """
        elapsed_s = self._elapsed_s(stamp_ns)
        # The velocity is constant, not the motion from scan to scan.
        ratio = min(elapsed_s / self._period_s, MAX_EXTRAPOLATION) if self._period_s else 1.0
        motion = scaled(self._kiss.last_delta, ratio)
        frame, end_s = self._deskewed(points, time_s, motion, elapsed_s)
        self._kiss.last_delta = motion
        self._kiss.register_frame(frame, np.zeros(0))
        _, seen = self._kiss.voxelize(frame)
        overlap = self._overlap(seen)
        if overlap < self._config.min_overlap:
            self._restart(
                f'LiDAR odometry lost at {stamp_ns} ns: {overlap:.0%} of the scan agree with the '
                f'scan before, expected {self._config.min_overlap:.0%}'
            )
            self._kiss.register_frame(frame, np.zeros(0))
        self._previous = cKDTree(transform_points(self._kiss.last_pose, seen.astype(np.float32)))
        self._stamp_ns, self._period_s = stamp_ns, elapsed_s
        # The pose is that of the last point; the scan is stamped elsewhere in its sweep.
        backwards = -end_s / elapsed_s if elapsed_s else 0.0
        T_start_sensor = self._kiss.last_pose @ scaled(self._kiss.last_delta, backwards)
        return OdometryEstimate(
            self._T_odom_start @ T_start_sensor, self._segment, self._degeneracy()
        )

    def _elapsed_s(self, stamp_ns: int) -> float:
        """Return the time since the last scan, 0 without one; restart if the clock was reset."""
        if self._stamp_ns is None:
            return 0.0
        elapsed_ns = stamp_ns - self._stamp_ns
        if elapsed_ns <= -CLOCK_JUMP_NS:
            self._restart(f'clock set back from {self._stamp_ns} ns to {stamp_ns} ns')
            return 0.0
        return max(elapsed_ns, 0) / NS_PER_S

    def _deskewed(
        self,
        points: NDArray[np.float32],
        time_s: NDArray[np.float32] | None,
        motion: NDArray[np.float64],
        elapsed_s: float,
    ) -> tuple[NDArray[np.float64], float]:
        """Return the points in range as seen at the end of the sweep, and the time of that."""
        times: NDArray[np.float64] = np.zeros(0)
        end_s = 0.0
        sweep = np.eye(4)
        if time_s is not None and elapsed_s:
            start_s, last_s = float(np.min(time_s)), float(np.max(time_s))
            # kiss_icp aborts the process if all times are equal; NaN fails the comparison.
            if 0.0 < last_s - start_s < MAX_SWEEP_S and abs(last_s) < MAX_SWEEP_S:
                times, end_s = time_s.astype(np.float64), last_s
                sweep = scaled(motion, (last_s - start_s) / elapsed_s)
        frame = self._deskewer.preprocess(points.astype(np.float64), times, sweep)
        if len(frame) < MIN_POINTS:
            raise ScanError(
                'few_points',
                f'LiDAR odometry needs {MIN_POINTS} points between {self._config.min_range_m} '
                f'and {self._config.max_range_m} m, got {len(frame)} of {len(points)}',
            )
        return frame, end_s

    def _overlap(self, seen: NDArray[np.float64]) -> float:
        """Return the fraction of a scan near a point of the scan before; 1 for the first scan."""
        if self._previous is None:
            return 1.0
        distance_m, _ = self._previous.query(
            transform_points(self._kiss.last_pose, _sample(seen).astype(np.float32)),
            distance_upper_bound=self._voxel_size_m,
        )
        return float(np.isfinite(distance_m).mean())

    def _degeneracy(self) -> str:
        """Return in which direction the surfaces of the newest scan constrain no motion, or ''.

        In a tunnel all surfaces are parallel to its axis: each of them looks the same from
        anywhere along it.
        """
        assert self._previous is not None
        seen = self._previous.data
        _, neighbors = self._previous.query(_sample(seen), k=min(NORMAL_NEIGHBORS, len(seen)))
        offsets = seen[neighbors] - seen[neighbors].mean(axis=1, keepdims=True)
        variances, axes = np.linalg.eigh(np.einsum('nki,nkj->nij', offsets, offsets))
        normals = axes[variances[:, 0] < MAX_FLATNESS * variances[:, 1], :, 0]
        if not len(normals):
            return ''  # foliage: no surfaces, but constrained from all sides
        constraint, direction = np.linalg.eigh(normals.T @ normals / len(normals))
        if constraint[0] >= self._config.min_constraint:
            return ''
        x, y, z = self._kiss.last_pose[:3, :3].T @ direction[:, 0]
        return (
            f'LiDAR odometry is degenerate: {constraint[0]:.1%} of the surfaces constrain motion '
            f'along ({x:.2f}, {y:.2f}, {z:.2f}) of the sensor, expected '
            f'{self._config.min_constraint:.1%}'
        )

    def _restart(self, reason: str) -> None:
        """Start a new segment where the last one was lost."""
        self._segment = OdometrySegment(self._segment.number + 1, reason)
        self._T_odom_start = self._T_odom_start @ self._kiss.last_pose
        self._start()

    def _start(self) -> None:
        config = self._config
        self._kiss = KissICP(
            KISSConfig(
                data=DataConfig(
                    max_range=config.max_range_m, min_range=config.min_range_m, deskew=False
                ),
                mapping=MappingConfig(voxel_size=self._voxel_size_m),
                registration=RegistrationConfig(max_num_threads=1),  # results do not vary
            )
        )
        self._period_s, self._previous = 0.0, None


def scaled(T_a_b: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """Return a fraction or multiple of a small motion, at constant velocity."""
    T = np.eye(4)
    rotation = Rotation.from_matrix(T_a_b[:3, :3])
    T[:3, :3] = Rotation.from_rotvec(factor * rotation.as_rotvec()).as_matrix()
    T[:3, 3] = factor * T_a_b[:3, 3]
    return T


def _sample(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return about CHECKED_POINTS of the points."""
    return points[:: max(1, len(points) // CHECKED_POINTS)]
