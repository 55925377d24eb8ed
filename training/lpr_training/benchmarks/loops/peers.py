"""Other methods on the same drives: Scan Context without verification, and MapClosures.

Both recognize places rather than precise poses, so their loops are judged by place. A Scan Context
loop is correct if the two keyframes are within 5 m. A MapClosures loop is correct if the pose
between its two local maps is within 5 m of the truth; it then counts for every keyframe of the
newer map that is near one of the older. Local maps span 50 m instead of its authors' 100 m, which
gives too few maps in worlds of 300 m; with 25 m it finds half as many loops.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import BackendError
from lpr_ros.core.geometry.points import voxel_downsample
from lpr_ros.core.geometry.se3 import invert, transform_points
from lpr_training.benchmarks.loops.metrics import may_match, recall_metrics, revisits
from lpr_training.benchmarks.loops.recorded_drive import RecordedDrive
from lpr_training.descriptors.scan_context import ScanContextConfig, compare, describe, ring_keys

SCAN_CONTEXT_MAX_DISTANCE = 0.13  # its authors' threshold for KITTI
# MapClosures; voxel size, map gap and inliers as in kiss-slam.
MAP_RANGE_M = 50.0
MAP_VOXEL_M = 0.5
MIN_MAP_GAP = 3
MIN_INLIERS = 5


def available_peers() -> tuple[str, ...]:
    """Return the installed methods; MapClosures comes with the extra `peers`."""
    return tuple(name for name in PEERS if name != 'map_closures' or find_spec('map_closures'))


def peer_metrics(peer: str, drive: RecordedDrive) -> dict[str, Any]:
    """Return precision, recall and time of a method on a drive."""
    if peer not in available_peers():
        raise BackendError(
            f'--peers {peer}: not installed or unknown, expected one of {list(available_peers())}'
        )
    started = time.perf_counter()
    right, found = PEERS[peer](drive)
    seconds = time.perf_counter() - started
    return {
        'name': drive.name,
        'method': peer,
        'loops': len(right),
        'precision': float(np.mean(right)) if len(right) else float('nan'),
        **recall_metrics(drive, found),
        'ms_per_keyframe': 1e3 * seconds / len(drive.scans),
    }


def run_scan_context(drive: RecordedDrive) -> tuple[list[bool], NDArray[np.bool_]]:
    """Match the nearest context; return correctness per loop and a mask of recalled keyframes."""
    config = ScanContextConfig()
    near = revisits(drive)
    found = np.zeros(len(near), dtype=bool)
    right = []
    eligible = may_match(drive)
    contexts = np.zeros((len(near), config.rings, config.sectors), np.float32)
    for i, scan in enumerate(drive.scans):
        contexts[i] = describe(scan.points, config)
        older = np.flatnonzero(eligible[i])
        if len(older) == 0:
            continue
        keys = ring_keys(contexts[older])
        gaps = np.square(keys - ring_keys(contexts[i])).sum(axis=1)
        nearest = older[np.argsort(gaps, kind='stable')[: config.candidates]]
        distances, _ = compare(contexts[i], contexts[nearest])
        if distances.min() < SCAN_CONTEXT_MAX_DISTANCE:
            right.append(bool(near[i, nearest[distances.argmin()]]))
            found[i] |= right[-1]
    return right, found


def run_map_closures(drive: RecordedDrive) -> tuple[list[bool], NDArray[np.bool_]]:
    """Build local maps along the odometry, as its own pipeline does, and match them."""
    from map_closures.map_closures import MapClosures

    closer = MapClosures()
    T = drive.T_world_sensor
    near = revisits(drive)
    found = np.zeros(len(T), dtype=bool)
    right: list[bool] = []
    parts = local_maps(drive)
    for number, part in enumerate(parts):
        points = merged(drive, part)
        for closure in closer.get_closures(number, points.astype(np.float64)):
            ends = sorted((closure.source_id, closure.target_id))
            if closure.number_of_inliers <= MIN_INLIERS or ends[1] - ends[0] < MIN_MAP_GAP:
                continue
            source, target = parts[closure.source_id], parts[closure.target_id]
            T_true = invert(T[target[0]]) @ T[source[0]]
            gap = np.linalg.norm((np.asarray(closure.pose) - T_true)[:3, 3])
            right.append(bool(gap <= drive.revisit_radius_m))
            if right[-1]:
                older, newer = parts[ends[0]], parts[ends[1]]
                found[newer] |= near[np.ix_(newer, older)].any(axis=1)
    return right, found


def local_maps(drive: RecordedDrive) -> list[list[int]]:
    """Split the drive where odometry leaves the range of the current local map or restarts."""
    xyz = drive.T_odom_sensor[:, :3, 3]
    parts: list[list[int]] = [[]]
    for i in range(len(xyz)):
        if i in drive.session_starts[1:]:  # its odometry has another frame
            parts.append([])
        parts[-1].append(i)
        is_full = np.linalg.norm(xyz[i] - xyz[parts[-1][0]]) > MAP_RANGE_M
        if is_full and i + 1 < len(xyz):
            parts.append([i])
    return parts


def merged(drive: RecordedDrive, part: Sequence[int]) -> NDArray[np.float32]:
    """Return the scans merged in the frame of the first."""
    T_first_scan = invert(drive.T_odom_sensor[part[0]]) @ drive.T_odom_sensor[list(part)]
    clouds = [
        transform_points(T, voxel_downsample(drive.scans[i].points, MAP_VOXEL_M))
        for i, T in zip(part, T_first_scan, strict=True)
    ]
    return voxel_downsample(np.concatenate(clouds), MAP_VOXEL_M)


PEERS: dict[str, Callable[[RecordedDrive], tuple[list[bool], NDArray[np.bool_]]]] = {
    'scan_context': run_scan_context,
    'map_closures': run_map_closures,
}
