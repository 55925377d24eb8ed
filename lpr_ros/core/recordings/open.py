"""Open whatever a user points at: a bag, a KITTI folder, packed scans."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.bag_scans import Progress
from lpr_ros.core.bag_source import BagSource
from lpr_ros.core.bags import OnBad
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.kitti_source import KittiSource, scan_files
from lpr_ros.core.packed_source import PackedSource
from lpr_ros.core.scan_source import ScanSource


@dataclass(frozen=True, eq=False)
class SourceOptions:
    """What may have to be said about a recording; '' and None look it up."""

    points: str = ''  # topic of the clouds
    odometry: str = ''  # topic of the odometry
    truth: str = ''  # topic or pose file of the true poses
    poses: Path | None = None  # pose file in place of the odometry
    T_base_sensor: NDArray[np.float64] | None = None  # sensor on the body of the odometry


DEFAULT_OPTIONS = SourceOptions()


def open_source(
    path: Path,
    options: SourceOptions = DEFAULT_OPTIONS,
    *,
    on_bad: OnBad | None = None,
    progress: Progress = lambda messages, total: messages,
) -> ScanSource:
    """Open a rosbag2 folder, .mcap, .db3, ROS 1 .bag, KITTI folder or scans_*.npz.

    What cannot be read on the way goes to on_bad, or raises; progress follows a bag being indexed.
    """
    path = Path(path)
    if not path.exists():
        raise DatasetError(f'{path}: no such file or folder; expected a bag, a KITTI folder '
                           'with velodyne/*.bin, or a scans_*.npz file')  # fmt: skip
    is_kitti = path.is_dir() and bool(scan_files(path))
    if is_kitti or path.suffix == '.npz':
        _refuse_topics(path, options)
        kind = KittiSource if is_kitti else PackedSource
        truth = Path(options.truth) if options.truth else None
        source: ScanSource = kind(path, poses=options.poses, truth=truth)
        if options.T_base_sensor is not None:
            source.T_odom_sensor = source.T_odom_sensor @ options.T_base_sensor
        return source
    return BagSource(
        [path],
        points=options.points,
        odometry=options.odometry,
        truth=options.truth,
        poses=options.poses,
        T_base_sensor=options.T_base_sensor,
        on_bad=on_bad,
        progress=progress,
    )


def _refuse_topics(path: Path, options: SourceOptions) -> None:
    """Only a bag has topics; said here rather than silently not done."""
    if options.points or options.odometry:
        raise DatasetError(
            f'{path} has no topics: expected no {options.points or options.odometry!r}; its '
            'odometry comes from a pose file'
        )
