"""Real drives: a walk (BALM) and lifted KITTI drives, with drift added to their odometry."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.types import Scan
from lpr_training.benchmarks.loops.recorded_drive import (
    ODOMETRY,
    SPACING_M,
    Exclusion,
    RecordedDrive,
)
from lpr_training.datasets.kitti_bev import PREFIX as KITTI_PREFIX
from lpr_training.datasets.lifted_kitti import LiftedKittiDataset
from lpr_training.datasets.registry import make_dataset
from lpr_training.evaluation.reference_poses import scan_to_map_poses
from lpr_training.simulator import OdometryConfig
from lpr_training.simulator.drive.odometry import drifting

BALM = 'balm'
BALM_EXCLUDE_M = 25.0
KITTI_DRIVES = {'kitti 00': '00', 'kitti 05': '05'}
# KITTI's ground truth disagrees with itself by meters at some revisits.
KITTI_MAX_PLACE_ERROR_M = 10.0
KITTI_ODOMETRY = OdometryConfig(
    scale_sigma=0.0,
    heading_bias_deg=0.0,
    heading_walk_deg=0.0,
    tilt_walk_deg=0.0,
    position_walk_m=0.0,
    slow_drift_fraction=0.01,
    slow_heading_deg=0.5,
)
REAL_FILES = {BALM: f'scans_{BALM}.npz'} | {
    name: f'{KITTI_PREFIX}{run}.npz' for name, run in KITTI_DRIVES.items()
}


def balm_drive(data: Path) -> RecordedDrive:
    """Load a 75 m walk within 18 x 20 m and add drift to its odometry.

    Its stamps are scan numbers times 0.1 s, so only the traveled distance tells what is recent.
    The recorded poses slip by up to 3 m at 36 of 176 steps, so the reference poses are computed
    from the scans.
    """
    recording = make_dataset('scans', data, runs=[BALM])
    clouds = [recording.points(i) for i in range(len(recording))]
    T_world_sensor = scan_to_map_poses(clouds)
    T_odom_sensor = drifting(T_world_sensor, ODOMETRY, np.random.default_rng(0))
    scans = [
        Scan(cloud, int(stamp_ns), T_odom)
        for cloud, stamp_ns, T_odom in zip(clouds, recording.stamps_ns, T_odom_sensor, strict=True)
    ]
    return RecordedDrive(BALM, scans, T_world_sensor, Exclusion(0.0, BALM_EXCLUDE_M))


def kitti_drive(name: str, data: Path, draw: int = 1) -> RecordedDrive:
    """Load a lifted KITTI drive, a keyframe every 2 m, and draw its odometry."""
    recording = LiftedKittiDataset(data, sequences=[KITTI_DRIVES[name]])
    keyframes = every(SPACING_M, recording.T_world_sensor[:, :3, 3])
    T_world_sensor = recording.T_world_sensor[keyframes]
    T_odom_sensor = drifting(T_world_sensor, KITTI_ODOMETRY, np.random.default_rng(draw))
    scans = [
        Scan(recording.points(i), int(recording.stamps_ns[i]), T_odom)
        for i, T_odom in zip(keyframes, T_odom_sensor, strict=True)
    ]
    return RecordedDrive(
        f'{name} #{draw}',
        scans,
        T_world_sensor,
        odometry=KITTI_ODOMETRY,
        max_place_error_m=KITTI_MAX_PLACE_ERROR_M,
        trajectory_draws=1,  # every draw is a drive of its own
    )


def every(spacing_m: float, positions: NDArray[np.float64]) -> list[int]:
    """Return the first position and each that is at least the spacing from the one before."""
    kept = [0]
    for i in range(1, len(positions)):
        if np.linalg.norm(positions[i] - positions[kept[-1]]) >= spacing_m:
            kept.append(i)
    return kept
