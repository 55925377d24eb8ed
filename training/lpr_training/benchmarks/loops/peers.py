"""Peers on the same drives: Scan Context, ours without verification, and MapClosures.

Both find places rather than exact poses, so a loop of theirs is right already when the place is:
Scan Context's when the two keyframes truly lie within 5 m of each other; MapClosures' when the
pose between its two local maps is within 5 m of the truth, and then every keyframe of the newer
map counts as found that is near one of the older. Its maps span 50 m, not the 100 m of its
authors: in worlds of 300 m those are too few to match at all, and maps of 25 m find half as much.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.drive_truth import RADIUS_M
from lpr_ros.core.errors import BackendError
from lpr_ros.core.geometry import invert, transform_points
from lpr_ros.core.keyframes import thin
from lpr_training.benchmarks.loop_drives import RecordedDrive
from lpr_training.benchmarks.loop_figures import may_match, recall_figures, revisits
from lpr_training.scan_context import ScanContextConfig, compare, describe, ring_keys

SCAN_CONTEXT_GATE = 0.13  # its authors' threshold on this distance for KITTI
MAP_RANGE_M = 50.0  # MapClosures: a local map ends here,
MAP_VOXEL_M = 0.5  # its points are as far apart,
MAPS_APART = 3  # and the newest maps do not match: kiss-slam's settings
LEAST_INLIERS = 5


def available_peers() -> tuple[str, ...]:
    """Return the peers that can run here; MapClosures comes with the extra `peers`."""
    return tuple(name for name in PEERS if name != 'map_closures' or find_spec('map_closures'))


def peer_figures(peer: str, drive: RecordedDrive) -> dict[str, Any]:
    """Return precision, recall and time of a peer on a drive."""
    if peer not in available_peers():
        raise BackendError(f'peer {peer!r} is not one of {list(available_peers())} here')
    started = time.perf_counter()
    right, found = PEERS[peer](drive)
    seconds = time.perf_counter() - started
    return {
        'name': drive.name,
        'method': peer,
        'loops': len(right),
        'precision': float(np.mean(right)) if len(right) else float('nan'),
        **recall_figures(drive, found),
        'ms_per_keyframe': 1e3 * seconds / len(drive.scans),
    }


def run_scan_context(drive: RecordedDrive) -> tuple[list[bool], NDArray[np.bool_]]:
    """Take the nearest context below the gate; say of each loop whether it is right, and where."""
    config = ScanContextConfig()
    near = revisits(drive)
    found = np.zeros(len(near), dtype=bool)
    right = []
    allowed = may_match(drive)
    contexts = np.zeros((len(near), config.rings, config.sectors), np.float32)
    for i, scan in enumerate(drive.scans):
        contexts[i] = describe(scan.points, config)
        older = np.flatnonzero(allowed[i])
        if len(older) == 0:
            continue
        keys = ring_keys(contexts[older])
        gaps = np.square(keys - ring_keys(contexts[i])).sum(axis=1)
        nearest = older[np.argsort(gaps, kind='stable')[: config.candidates]]
        distances, _ = compare(contexts[i], contexts[nearest])
        if distances.min() < SCAN_CONTEXT_GATE:
            right.append(bool(near[i, nearest[distances.argmin()]]))
            found[i] |= right[-1]
    return right, found


def run_map_closures(drive: RecordedDrive) -> tuple[list[bool], NDArray[np.bool_]]:
    """Build local maps along odometry, as its own pipeline does, and ask for closures."""
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
            if closure.number_of_inliers <= LEAST_INLIERS or ends[1] - ends[0] < MAPS_APART:
                continue
            source, target = parts[closure.source_id], parts[closure.target_id]
            T_true = invert(T[target[0]]) @ T[source[0]]
            gap = np.linalg.norm((np.asarray(closure.pose) - T_true)[:3, 3])
            right.append(bool(gap <= RADIUS_M))
            if right[-1]:
                older, newer = parts[ends[0]], parts[ends[1]]
                found[newer] |= near[np.ix_(newer, older)].any(axis=1)
    return right, found


def local_maps(drive: RecordedDrive) -> list[list[int]]:
    """Cut the drive where odometry is a map's range from where the map began."""
    xyz = drive.T_odom_sensor[:, :3, 3]
    parts: list[list[int]] = [[]]
    for i in range(len(xyz)):
        parts[-1].append(i)
        is_full = np.linalg.norm(xyz[i] - xyz[parts[-1][0]]) > MAP_RANGE_M
        if is_full and i + 1 < len(xyz):
            parts.append([i])
    return parts


def merged(drive: RecordedDrive, part: Sequence[int]) -> NDArray[np.float32]:
    """Merge scans in the frame of the first."""
    T_first_scan = invert(drive.T_odom_sensor[part[0]]) @ drive.T_odom_sensor[list(part)]
    clouds = [
        transform_points(T, thin(drive.scans[i].points, MAP_VOXEL_M))
        for i, T in zip(part, T_first_scan, strict=True)
    ]
    return thin(np.concatenate(clouds), MAP_VOXEL_M)


PEERS: dict[str, Callable[[RecordedDrive], tuple[list[bool], NDArray[np.bool_]]]] = {
    'scan_context': run_scan_context,
    'map_closures': run_map_closures,
}
