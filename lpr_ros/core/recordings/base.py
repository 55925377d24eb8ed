"""The common interface of recordings: a table of stamps and poses, and the points of each scan."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry.odometry_jumps import MAX_STEP_M, JumpDetector, OdometrySegment
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.core.types import Scan

OnBad = Callable[[DatasetError], None]
Progress = Callable[[Iterable[Any], int], Iterable[Any]]


def report(error: DatasetError, on_bad: OnBad | None) -> None:
    """Pass an error to on_bad, or raise it."""
    if on_bad is None:
        raise error
    on_bad(error)


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordingOptions:
    """How to read a recording; empty topics and files are looked up in the recording."""

    points: str = ''  # topic of the clouds
    odometry: str = ''  # topic of the odometry
    truth: str = ''  # topic or pose file of the ground truth
    poses: Path | None = None  # pose file instead of an odometry topic
    use_odometry: bool = True  # False looks for no odometry in a bag
    T_base_sensor: NDArray[np.float64] | None = None  # sensor on the base of the odometry
    on_bad: OnBad | None = None  # receives what cannot be read; None raises
    progress: Progress = lambda messages, total: messages  # wraps the pass that indexes a bag
    max_step_m: float = MAX_STEP_M  # of the odometry, see JumpDetector


DEFAULT_OPTIONS = RecordingOptions()


@dataclass(frozen=True, eq=False)
class DriveOdometry:
    """The odometry of N scans."""

    T: NDArray[np.float64]  # (N, 4, 4), NaN where unknown
    segments: Sequence[OdometrySegment]  # N

    def __matmul__(self, T_base_sensor: NDArray[np.float64]) -> 'DriveOdometry':
        """Return the odometry of a sensor on this base."""
        return replace(self, T=self.T @ T_base_sensor)


@dataclass(frozen=True, eq=False)
class DriveTable:
    """Everything about N scans except their points."""

    stamps_ns: NDArray[np.int64]  # (N,)
    T_odom_sensor: NDArray[np.float64]  # (N, 4, 4), NaN without odometry
    T_world_sensor: NDArray[np.float64]  # (N, 4, 4), ground truth, NaN if unknown
    about: dict[str, str] = field(default_factory=dict)  # sources of clouds, odometry, truth
    segments: Sequence[OdometrySegment] = ()  # N, of the odometry; empty if it does not jump


@dataclass(frozen=True, eq=False)
class RecordingScan:
    """One scan of a drive with the ground-truth pose of the sensor, if known."""

    index: int
    scan: Scan
    T_world_sensor: NDArray[np.float64] | None  # (4, 4)
    time_s: NDArray[np.float32] | None = None  # of each point after the stamp, if recorded


class Recording(ABC):
    """N scans in order of recording: the table is read on opening, points on demand.

    A format is a subclass that is built from (path, options), defines `description`, `matches`
    and `points`, and has a line in `open.FORMATS`; a bag is what no other format matches.
    """

    description: ClassVar[str]  # for error messages

    def __init__(self, name: str, table: DriveTable):
        # Names end up in JSON, HTML and file names, which must be valid UTF-8.
        self.name = printable(name)
        self.stamps_ns = table.stamps_ns
        self.T_odom_sensor = table.T_odom_sensor
        self.segments = table.segments or [OdometrySegment()] * len(table.stamps_ns)
        self.T_world_sensor = table.T_world_sensor
        self.about = {key: printable(value) for key, value in table.about.items()}

    @classmethod
    @abstractmethod
    def matches(cls, path: Path) -> bool:
        """Return whether an existing path looks like this format."""

    def __len__(self) -> int:
        return len(self.stamps_ns)

    @property
    def has_odometry(self) -> bool:
        """Whether any scan has an odometry pose."""
        return bool(known(self.T_odom_sensor).any())

    @property
    def has_truth(self) -> bool:
        """Whether any scan has a ground-truth pose."""
        return bool(known(self.T_world_sensor).any())

    @property
    def start_ns(self) -> int:
        """Stamp of the earliest scan."""
        return int(self.stamps_ns.min())

    @property
    def duration_s(self) -> float:
        """Time between the earliest and the latest scan."""
        return int(np.ptp(self.stamps_ns)) / NS_PER_S

    @abstractmethod
    def points(self, index: int) -> NDArray[np.float32]:
        """Read the points of one scan, (n, 3), meters; DatasetError if it cannot be read."""

    def scans(self, on_bad: OnBad | None = None, *, first: int = 0) -> Iterator[RecordingScan]:
        """Yield the scans from index `first` on; unreadable ones go to on_bad, or raise."""
        for index in range(first, len(self)):
            try:
                points = self.points(index)
            except DatasetError as error:
                report(error, on_bad)
                continue
            yield self.scan_of(index, points)

    def __iter__(self) -> Iterator[RecordingScan]:
        return self.scans()

    def scan_of(
        self, index: int, points: NDArray[np.float32], time_s: NDArray[np.float32] | None = None
    ) -> RecordingScan:
        """Combine the points of a scan with its row of the table."""
        T_odom, T_world = self.T_odom_sensor[index], self.T_world_sensor[index]
        segment = self.segments[index]
        scan = Scan(
            points,
            int(self.stamps_ns[index]),
            T_odom if known(T_odom) else None,
            segment.number,
            segment.reason,
        )
        return RecordingScan(index, scan, T_world if known(T_world) else None, time_s)

    def close(self) -> None:  # noqa: B027 - most formats keep no file open
        """Close open files."""


def known(T: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which of (..., 4, 4) poses are known, that is not NaN."""
    is_known: NDArray[np.bool_] = ~np.isnan(T[..., 0, 0])
    return is_known


def unknown_poses(count: int) -> NDArray[np.float64]:
    """Return NaN poses (count, 4, 4)."""
    return np.full((count, 4, 4), np.nan)


def no_odometry(count: int) -> DriveOdometry:
    """Return the odometry of scans that have none."""
    return DriveOdometry(unknown_poses(count), [OdometrySegment()] * count)


def odometry_of_scans(
    T: NDArray[np.float64], stamps_ns: NDArray[np.int64], max_step_m: float
) -> DriveOdometry:
    """Return the odometry of scans that were recorded with a pose each (N, 4, 4)."""
    detector, segment = JumpDetector(max_step_m), OdometrySegment()
    segments = []
    for stamp_ns, pose in zip(stamps_ns.tolist(), T, strict=True):
        if known(pose):
            segment = detector.add(stamp_ns, pose) or segment
        segments.append(segment)
    return DriveOdometry(T, segments)


def odometry_at(
    trajectory: Trajectory,
    stamps_ns: NDArray[np.int64],
    max_step_m: float,
    max_gap_ns: int | None = None,
) -> DriveOdometry:
    """Interpolate odometry at stamps, but not across its jumps."""
    own = odometry_of_scans(trajectory.T, trajectory.stamps_ns, max_step_m).segments
    last = len(trajectory) - 1
    before = np.searchsorted(trajectory.stamps_ns, stamps_ns, side='right') - 1
    after = np.searchsorted(trajectory.stamps_ns, stamps_ns, side='left')
    ends = np.clip([before, after], 0, last).T.tolist()
    T = poses_at(trajectory, stamps_ns, max_gap_ns)
    is_jump = [own[i] is not own[j] for i, j in ends]
    T[is_jump] = np.nan
    return DriveOdometry(T, [own[j] for _, j in ends])


def poses_at(
    trajectory: Trajectory, stamps_ns: NDArray[np.int64], max_gap_ns: int | None = None
) -> NDArray[np.float64]:
    """Interpolate poses (N, 4, 4) at stamps, NaN where the trajectory has none."""
    T, covered = trajectory.sample(stamps_ns, max_gap_ns)
    return np.where(covered[:, None, None], T, np.nan)


def printable(text: str) -> str:
    """Replace characters that are not printable: undecodable bytes of file names, line breaks."""
    return ''.join(c if c.isprintable() else '\N{REPLACEMENT CHARACTER}' for c in text)


def refuse_topics(path: Path, options: RecordingOptions) -> None:
    """Raise DatasetError if topics were requested of a recording without topics."""
    requested = options.points or options.odometry
    if requested:
        raise DatasetError(
            f'{path} has no topics, got {requested!r}; give its odometry as a pose file'
        )
