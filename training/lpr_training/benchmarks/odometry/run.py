"""Drift of LiDAR odometry on real scans, compared with what `odometry_noise` expects.

Only KITTI 00 has independent ground truth (GNSS/INS). The other two runs have poses of KISS-ICP on
the full clouds, which tell what is lost by the smaller clouds here, not the drift.
"""

import argparse
from pathlib import Path
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig, drift_covariance
from lpr_ros.core.geometry.se3 import invert, local_error
from lpr_ros.core.geometry.trajectory import position_errors_m, root_mean_square
from lpr_ros.core.io.npz_reader import Expected, NpzFile
from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.odometry.lidar_odometry import LidarOdometry
from lpr_ros.core.recordings.open import open_recording
from lpr_training.benchmarks.options import add_data_option

RUNS = {  # name -> reference poses
    'kitti_00_3d': 'T_world_sensor',
    'kitti_raw_0005': 'T_odom_sensor',
    'nuscenes_0001': 'T_odom_sensor',
}
DISTANCES_M = (10.0, 50.0, 100.0, 400.0)
AXES = (('horizontal', 'm'), ('vertical', 'm'), ('heading', 'deg'), ('tilt', 'deg'))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_data_option(parser, 'scans_*.npz')


def run(data: Path) -> dict[str, Any]:
    """Follow every run that is there; return its drift by traveled distance."""
    result = {}
    for name, key in RUNS.items():
        path = data / f'scans_{name}.npz'
        if path.is_file():
            true = NpzFile(path, {key: Expected('f', (None, 4, 4))})[key]
            result[name] = {'reference': key, **_follow(path, true)}
    return {'noise': OdometryNoiseConfig().to_dict(), 'runs': result}


def _follow(path: Path, true: NDArray[np.float64]) -> dict[str, Any]:
    source, odometry = open_recording(path), LidarOdometry()
    estimates, seconds = [], []
    for index in tqdm(range(len(source)), desc=path.stem, unit='scan'):
        points = source.points(index)
        start = time.process_time()
        estimates.append(odometry.add(int(source.stamps_ns[index]), points))
        seconds.append(time.process_time() - start)
    T = np.stack([estimate.T_odom_sensor for estimate in estimates])
    return {
        'scans': len(T),
        'length_m': float(traveled_m(true)[-1]),
        'lost': estimates[-1].segment.number,
        'degenerate': sum(bool(estimate.degenerate) for estimate in estimates),
        'cpu_ms': 1e3 * float(np.median(seconds)),
        'ate_m': root_mean_square(position_errors_m(T[:, :3, 3], true[:, :3, 3])),
        'drift': [row for d in DISTANCES_M if (row := drift(T, true, d))],
    }


def traveled_m(T: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance traveled to each pose."""
    steps = np.linalg.norm(np.diff(T[:, :3, 3], axis=0), axis=1)
    return np.concatenate([[0.0], np.cumsum(steps)])


def drift(
    T: NDArray[np.float64], true: NDArray[np.float64], distance_m: float
) -> dict[str, float]:
    """Return RMS errors over all stretches of this length, and their ratio to the noise model.

    A ratio of 1 means that the odometry drifts as `odometry_noise` expects. Empty if the drive is
    shorter.
    """
    along = traveled_m(true)
    starts = np.flatnonzero(along + distance_m <= along[-1])
    ends = np.searchsorted(along, along[starts] + distance_m)
    pairs = [
        local_error(invert(T[i]) @ T[j], invert(true[i]) @ true[j])
        for i, j in zip(starts, ends, strict=True)
    ]
    if not pairs:
        return {}
    error = np.array(pairs)  # x y z roll pitch yaw
    sigma = np.sqrt(np.diagonal(drift_covariance(distance_m, OdometryNoiseConfig())))
    ratio = np.sqrt(np.mean(np.square(error / sigma), axis=0))
    rms = np.sqrt(np.mean(np.square(error), axis=0))
    return {
        'distance_m': distance_m,
        'stretches': len(pairs),
        'horizontal_m': float(np.hypot(*rms[:2])),
        'vertical_m': float(rms[2]),
        'heading_deg': float(np.degrees(rms[5])),
        'tilt_deg': float(np.degrees(np.hypot(*rms[3:5]))),
        'horizontal_ratio': float(np.sqrt(np.mean(ratio[:2] ** 2))),
        'vertical_ratio': float(ratio[2]),
        'heading_ratio': float(ratio[5]),
        'tilt_ratio': float(np.sqrt(np.mean(ratio[3:5] ** 2))),
    }


def table(result: dict[str, Any]) -> str:
    """Return one row per run and distance."""
    rows = [
        (
            name,
            f'{d["distance_m"]:.0f} m',
            *(f'{d[f"{axis}_{unit}"]:.2f} ({d[f"{axis}_ratio"]:.1f})' for axis, unit in AXES),
            f'{run["lost"]}, {run["degenerate"]}',
            f'{run["cpu_ms"]:.0f}',
        )
        for name, run in result['runs'].items()
        for d in run['drift']
    ]
    return markdown_table(
        ('run', 'over', 'horizontal m (ratio)', 'vertical m', 'heading °', 'tilt °',
         'lost, degenerate', 'CPU ms per scan'),
        rows,
    )  # fmt: skip
