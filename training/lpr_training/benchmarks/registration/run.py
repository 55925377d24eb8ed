"""Verification of pairs: recall of true pairs, pose errors, covariances, false acceptances.

Real pairs are scans five frames apart, the later one rotated by a random yaw, evaluated against
the recorded odometry. Simulated revisits are evaluated against ground truth, in worlds that
nothing was tuned on. False pairs are the different places most similar by Scan Context. Times are
CPU seconds of one thread.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import time
from typing import Any

import numpy as np
from tqdm import tqdm

from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.geometry.se3 import local_error
from lpr_ros.core.loop_closure.belief import Evidence, log_ratio, odometry_cycle
from lpr_ros.core.loop_closure.verification import VerificationConfig, make_strategy
from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.types import LoopClosure, Match
from lpr_training.benchmarks.options import add_data_option, add_option
from lpr_training.benchmarks.registration.pairs import Pair, real_pairs, simulated_pairs

REAL_RUNS = ('kitti_raw_0005', 'nuscenes_0001')
APART = 5  # frames
REAL_TARGET_M = 0.3
WRONG_M = 1.0  # error from which an accepted pose is wrong
WORLDS = ('city', 'suburb', 'forest', 'car_park', 'identical_houses')
SENSORS = ('hdl64', 'vlp16')
WORLD_M = {'car_park': 120.0}  # side; others 300
NO_MATCH = Match(0, 0.0, 1.0)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_option(parser, '--every', 4, 'Use every n-th real pair')
    add_option(parser, '--pairs', 20, 'Pairs per simulated drive')
    add_data_option(parser, 'scans_*.npz')


def run(
    data: Path,
    *,
    every: int = 4,
    pairs: int = 20,
    seed: int = 77,
    worlds: Sequence[str] = WORLDS,
    sensors: Sequence[str] = SENSORS,
    config: VerificationConfig | None = None,
) -> dict[str, Any]:
    """Verify every n-th real pair, and `pairs` simulated ones per world and sensor."""
    config = config or VerificationConfig()
    runs = [name for name in REAL_RUNS if (data / f'scans_{name}.npz').is_file()]
    real, simulated = {}, {}
    bar = tqdm(total=len(runs) + len(worlds) * len(sensors), unit='set')
    for name in runs:
        bar.set_description(name)
        real[name] = _true_pair_metrics(list(real_pairs(data, name, APART, every, seed)), config)
        bar.update()
    for world in worlds:
        for sensor in sensors:
            bar.set_description(f'{world} {sensor}')
            true, false = simulated_pairs(world, sensor, pairs, seed, WORLD_M.get(world, 300.0))
            simulated[f'{world} {sensor}'] = _true_pair_metrics(
                true, config
            ) | _false_pair_metrics(false, config)
            bar.update()
    bar.close()
    return {'config': config.to_dict(), 'real': real, 'simulated': simulated}


def table(result: dict[str, Any]) -> str:
    """Return real and simulated pairs as markdown tables, with the targets in the headings."""
    real = markdown_table(
        (
            f'real pairs, {APART} frames apart',
            'pairs',
            f'within {REAL_TARGET_M} m (target: all)',
            'median m',
            'max m',
            'median deg',
            'CPU s',
        ),
        [
            (
                name,
                row['pairs'],
                row['within_goal'],
                f'{row["pose_error_median_m"]:.3f}',
                *(f'{row[f"pose_error_{key}"]:.2f}' for key in ('max_m', 'median_deg')),
                f'{row["cpu_s"]:.2f}',
            )
            for name, row in result['real'].items()
        ],
    )
    simulated = markdown_table(
        (
            'simulated',
            'accepted',
            'wrong (0)',
            'median m (< 0.15)',
            'p99 m (< 1)',
            'median deg (< 0.5)',
            'NEES per dimension (0.5 - 2)',
            'false pairs accepted',
            'within odometry (0)',
            'CPU s',
            'CPU s of false pairs',
        ),
        [
            (
                name,
                f'{row["accepted"]} / {row["pairs"]}',
                row['wrong_poses'],
                f'{row["pose_error_median_m"]:.3f}',
                *(f'{row[f"pose_error_{key}"]:.2f}' for key in ('p99_m', 'median_deg')),
                f'{row["nees_per_dim"]:.2f}',
                f'{row["false_accepted"]} / {row["false_pairs"]}',
                row['false_within_odometry'],
                *(f'{row[key]:.2f}' for key in ('cpu_s', 'false_cpu_s')),
            )
            for name, row in result['simulated'].items()
        ],
    )
    return f'{real}\n{simulated}'


def _true_pair_metrics(pairs: Sequence[Pair], config: VerificationConfig) -> dict[str, Any]:
    """Verify true pairs; errors are over the accepted ones."""
    closures, seconds = _verify(pairs, config)
    motions, nees = [], []
    for pair, closure in zip(pairs, closures, strict=True):
        if closure is not None:
            motion = local_error(closure.T_match_query, pair.T_match_query)
            motions.append(motion)
            nees.append(motion @ np.linalg.solve(closure.covariance, motion) / 6.0)
    errors = np.reshape(motions, (-1, 6)) if motions else np.full((1, 6), np.nan)
    meters = np.linalg.norm(errors[:, :3], axis=1)
    degrees = np.degrees(np.linalg.norm(errors[:, 3:], axis=1))
    return {
        'pairs': len(pairs),
        'accepted': len(motions),
        'within_goal': int((meters < REAL_TARGET_M).sum()),
        'pose_error_median_m': float(np.median(meters)),
        'pose_error_p99_m': float(np.percentile(meters, 99)),
        'pose_error_max_m': float(meters.max()),
        'pose_error_median_deg': float(np.median(degrees)),
        'wrong_poses': int((meters > WRONG_M).sum()),
        'nees_per_dim': float(np.mean(nees)) if nees else float('nan'),
        'cpu_s': seconds,
    }


def _false_pair_metrics(pairs: Sequence[Pair], config: VerificationConfig) -> dict[str, Any]:
    """Verify pairs of different places; a correct pose of overlapping scans is not an error."""
    closures, seconds = _verify(pairs, config)
    accepted = [(c, p) for c, p in zip(closures, pairs, strict=True) if c is not None]
    wrong = [(c, p) for c, p in accepted if _error_m(c, p) > WRONG_M]
    return {
        'false_pairs': len(pairs),
        'false_right_pose': len(accepted) - len(wrong),
        'false_accepted': len(wrong),
        'false_within_odometry': sum(
            _agrees_with_odometry(closure, pair) for closure, pair in wrong
        ),
        'false_cpu_s': seconds,
    }


def _error_m(closure: LoopClosure, pair: Pair) -> float:
    motion = local_error(closure.T_match_query, pair.T_match_query)
    return float(np.linalg.norm(motion[:3]))


def _agrees_with_odometry(closure: LoopClosure, pair: Pair) -> bool:
    """Return whether odometry speaks for the loop rather than against it."""
    T_query, T_match = pair.query.T_odom_sensor, pair.match.T_odom_sensor
    if T_query is None or T_match is None:
        return False
    ends_m = pair.query.traveled_m, pair.match.traveled_m
    placed = Evidence(closure, T_query, T_match, *ends_m, closure.log_odds)
    return bool(log_ratio(*odometry_cycle(placed, OdometryNoiseConfig()))[0] > 0.0)


def _verify(
    pairs: Sequence[Pair], config: VerificationConfig
) -> tuple[list[LoopClosure | None], float]:
    """Return the verified loops and the median CPU seconds per pair."""
    verifier = make_strategy(config)
    closures: list[LoopClosure | None] = []
    seconds = []
    for pair in pairs:
        start = time.process_time()
        closures.append(verifier.verify(pair.query, pair.match, NO_MATCH))
        seconds.append(time.process_time() - start)
    return closures, float(np.median(seconds)) if seconds else float('nan')
