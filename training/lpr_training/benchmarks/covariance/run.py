"""Normalized errors (NEES) of verified pairs, on every real and simulated set.

NEES per dimension is 1 if covariances are right, and larger if they are overconfident. Real sets
should have 0.5 to 2 and simulated ones at most 2: the simulator has none of the systematic errors
of real sensors.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lpr_ros.core.geometry.se3 import local_error
from lpr_ros.core.loop_closure.verification import VerificationConfig, make_strategy
from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.offline.evaluation import MAX_LOOP_ERROR_M
from lpr_ros.core.offline.statistics import mean_of, median_of
from lpr_ros.core.types import Match
from lpr_training.benchmarks.covariance.sets import CovariancePair, pair_sets
from lpr_training.benchmarks.options import add_data_option, add_option

AXES = ('x', 'y', 'z', 'roll', 'pitch', 'yaw')
BANDS_M = ((0.0, 5.0), (5.0, 10.0), (10.0, 20.0))
NO_MATCH = Match(0, 0.0, 1.0)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_option(parser, '--pairs', 40, 'Pairs per set')
    parser.add_argument('--sets', nargs='+', metavar='NAME', help="Sets such as 'balm' (all)")
    add_data_option(parser, 'scans_*.npz and kitti_bev_*.npz')


def run(
    data: Path,
    *,
    pairs: int = 40,
    sets: Sequence[str] | None = None,
    config: VerificationConfig | None = None,
) -> dict[str, Any]:
    """Verify the pairs of every set and compare errors with covariances."""
    config = config or VerificationConfig()
    loaders = pair_sets(data)
    rows = {}
    bar = tqdm(sets or list(loaders), unit='set')
    for name in bar:
        bar.set_description(name)
        rows[name] = metrics(loaders[name](pairs), config)
    return {'config': config.to_dict(), 'sets': rows}


def metrics(pairs: Sequence[CovariancePair], config: VerificationConfig) -> dict[str, Any]:
    """Return the NEES of correct loops: mean, median, by axis and by distance."""
    verifier = make_strategy(config)
    errors, covariances, distances, seconds = [], [], [], []
    for pair in pairs:
        start = time.process_time()
        closure = verifier.verify(pair.query, pair.match, NO_MATCH)
        seconds.append(time.process_time() - start)
        if closure is None:
            continue
        error = local_error(closure.T_match_query, pair.T_match_query)
        if np.linalg.norm(error[:3]) <= MAX_LOOP_ERROR_M:
            errors.append(error)
            covariances.append(closure.covariance)
            distances.append(np.linalg.norm(pair.T_match_query[:3, 3]))
    error, covariance = np.reshape(errors, (-1, 6)), np.reshape(covariances, (-1, 6, 6))
    nees = _nees(error, covariance)
    by_axis = np.square(error) / np.diagonal(covariance, axis1=1, axis2=2)
    distance_m = np.array(distances)
    return {
        'pairs': len(pairs),
        'correct': len(errors),
        'error_median_m': median_of(np.linalg.norm(error[:, :3], axis=1)),
        'error_median_deg': median_of(np.degrees(np.linalg.norm(error[:, 3:], axis=1))),
        'nees_mean': mean_of(nees),
        'nees_median': median_of(nees),
        'nees_by_axis': {axis: mean_of(by_axis[:, k]) for k, axis in enumerate(AXES)},
        'nees_by_distance': {
            f'{low:.0f}-{high:.0f} m': mean_of(nees[(distance_m >= low) & (distance_m < high)])
            for low, high in BANDS_M
        },
        'cpu_ms': 1e3 * median_of(np.array(seconds)),
    }


def table(result: dict[str, Any]) -> str:
    """Return one row per set."""
    head = (
        'set',
        'correct / pairs',
        'median m',
        'median deg',
        'NEES mean (real 0.5 - 2, simulated at most 2)',
        'median',
        'by axis: ' + ' '.join(AXES),
        'by distance: ' + ', '.join(f'{low:.0f}-{high:.0f} m' for low, high in BANDS_M),
        'CPU ms',
    )
    rows = [
        (
            name,
            f'{row["correct"]} / {row["pairs"]}',
            f'{row["error_median_m"]:.3f}',
            f'{row["error_median_deg"]:.2f}',
            f'{row["nees_mean"]:.2f}',
            f'{row["nees_median"]:.2f}',
            ' '.join(f'{value:.1f}' for value in row['nees_by_axis'].values()),
            ', '.join(f'{value:.1f}' for value in row['nees_by_distance'].values()),
            f'{row["cpu_ms"]:.0f}',
        )
        for name, row in result['sets'].items()
    ]
    return markdown_table(head, rows)


def _nees(error: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the normalized squared error per dimension of (N, 6) errors."""
    normalized = np.linalg.solve(covariance, error[:, :, None])[:, :, 0]
    nees: NDArray[np.float64] = (error * normalized).sum(axis=1) / 6.0
    return nees
