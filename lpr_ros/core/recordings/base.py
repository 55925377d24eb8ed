"""A recorded drive as a source of scans, whatever it is stored in."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.bags import OnBad, report
from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import read_text
from lpr_ros.core.geometry import Trajectory
from lpr_ros.core.poses import read_kitti_poses, read_tum
from lpr_ros.core.records import Scan


@dataclass(frozen=True, eq=False)
class DriveTable:
    """Everything about N scans except their points."""

    stamps_ns: NDArray[np.int64]  # (N,)
    T_odom_sensor: NDArray[np.float64]  # (N, 4, 4), NaN where there is no odometry
    T_world_sensor: NDArray[np.float64]  # (N, 4, 4), the truth, NaN where it is not known
    about: dict[str, str] = field(default_factory=dict)  # where clouds, odometry, truth are from


@dataclass(frozen=True, eq=False)
class SourceScan:
    """One scan of a drive and, where it is known, where the sensor truly was."""

    index: int
    scan: Scan
    T_world_sensor: NDArray[np.float64] | None  # (4, 4)


class ScanSource(ABC):
    """N scans in order of recording: a table read on opening, points read when asked for."""

    def __init__(self, name: str, table: DriveTable):
        self.name = name
        self.stamps_ns = table.stamps_ns
        self.T_odom_sensor = table.T_odom_sensor
        self.T_world_sensor = table.T_world_sensor
        self.about = table.about

    def __len__(self) -> int:
        return len(self.stamps_ns)

    @property
    def has_odometry(self) -> bool:
        """Whether any scan has a pose."""
        return bool(known(self.T_odom_sensor).any())

    @property
    def has_truth(self) -> bool:
        """Whether the true pose of any scan is known."""
        return bool(known(self.T_world_sensor).any())

    @property
    def start_ns(self) -> int:
        """Time of the earliest scan."""
        return int(self.stamps_ns.min())

    @property
    def duration_s(self) -> float:
        """From the earliest scan to the latest."""
        return int(np.ptp(self.stamps_ns)) / NS_PER_S

    @property
    def rate_hz(self) -> float:
        """Scans per second, by the median step; 0 where there are no two."""
        steps = np.diff(self.stamps_ns)
        steps = steps[steps > 0]
        return NS_PER_S / float(np.median(steps)) if len(steps) else 0.0

    @abstractmethod
    def points(self, index: int) -> NDArray[np.float32]:
        """Read the points of one scan, (n, 3), metres; DatasetError names what is unreadable."""

    def scans(self, on_bad: OnBad | None = None, *, first: int = 0) -> Iterator[SourceScan]:
        """Yield the scans from number `first` on; an unreadable one goes to on_bad, or raises."""
        for index in range(first, len(self)):
            try:
                points = self.points(index)
            except DatasetError as error:
                report(error, on_bad)
                continue
            yield self.scan_of(index, points)

    def __iter__(self) -> Iterator[SourceScan]:
        return self.scans()

    def scan_of(self, index: int, points: NDArray[np.float32]) -> SourceScan:
        """Put the points of a scan together with its row of the table."""
        T_odom, T_world = self.T_odom_sensor[index], self.T_world_sensor[index]
        scan = Scan(points, int(self.stamps_ns[index]), T_odom if known(T_odom) else None)
        return SourceScan(index, scan, T_world if known(T_world) else None)

    def close(self) -> None:  # noqa: B027 - most sources hold nothing open
        """Close what is open."""


def known(T: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell which of (..., 4, 4) poses are known, not NaN."""
    is_known: NDArray[np.bool_] = ~np.isnan(T[..., 0, 0])
    return is_known


def unknown_poses(count: int) -> NDArray[np.float64]:
    """Return the poses of scans that have none."""
    return np.full((count, 4, 4), np.nan)


def is_kitti_file(path: Path) -> bool:
    """Tell a KITTI pose file (12 numbers a line) from a TUM file (8)."""
    lines = read_text(Path(path), 'a TUM or KITTI pose file').splitlines()
    first = next((line for line in lines if line and line[0] != '#'), '')
    return len(first.replace(',', ' ').split()) == 12


def read_pose_file(path: Path, stamps_ns: NDArray[np.int64]) -> Trajectory:
    """Read a TUM file, or a KITTI file that has one pose for each of these scans."""
    if not is_kitti_file(path):
        return read_tum(path)
    T = read_kitti_poses(path)
    if len(T) != len(stamps_ns):
        raise DatasetError(
            f'{path}: expected one pose for each of the {len(stamps_ns)} clouds, got {len(T)}'
        )
    return Trajectory.from_unordered(stamps_ns, T)


def poses_at(
    trajectory: Trajectory, stamps_ns: NDArray[np.int64], max_gap_ns: int | None = None
) -> NDArray[np.float64]:
    """Interpolate the poses of scans, (N, 4, 4), NaN where the trajectory has none."""
    T, covered = trajectory.sample(stamps_ns, max_gap_ns)
    return np.where(covered[:, None, None], T, np.nan)
