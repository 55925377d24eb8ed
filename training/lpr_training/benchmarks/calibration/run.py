"""Are the probabilities of matches honest? Judged online, as in the pipeline, drive by drive.

The nearest match of every keyframe with candidates is a prediction. It is right within 5 m and
wrong beyond 10 m; in between it counts as neither, and a second figure counts it as right.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lpr_ros.core.database.place_database import PlaceDatabase
from lpr_ros.core.errors import CloudError
from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig
from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.model.quantize import quantize
from lpr_ros.core.resources import WEIGHTS_HELP, weights_path
from lpr_ros.core.retrieval.match_probability import RANKED, MatchProbability
from lpr_training.benchmarks.calibration.drives import (
    REPORTED_SEED,
    SETS,
    CalibrationDrive,
    available,
)
from lpr_training.benchmarks.options import add_data_option, add_option
from lpr_training.descriptors.input_check import input_for
from lpr_training.evaluation.reliability import error_of_honest, reliability
from lpr_training.evaluation.retrieval import ground_distance

GOAL = 0.05
RIGHT_M, WRONG_M = 5.0, 10.0
NO_CLOUD = np.zeros((1, 3), np.float32)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        '--weights',
        nargs='+',
        default=['kitti_bev', 'sim'],
        metavar='FILE|NAME',
        help=f'{WEIGHTS_HELP}; default kitti_bev and sim',
    )
    parser.add_argument('--sets', nargs='+', metavar='NAME', help=f'of {list(SETS)} (all)')
    parser.add_argument('--figure', type=Path, metavar='FILE', help='Draw reliability diagrams')
    add_option(parser, '--seed', REPORTED_SEED, 'Seed of worlds and odometry')
    add_data_option(parser, 'the real drives')


def run(
    weights: Sequence[str],
    data: Path,
    *,
    sets: Sequence[str] | None = None,
    figure: Path | None = None,
    seed: int = REPORTED_SEED,
) -> dict[str, Any]:
    """Judge the matches of every set with every checkpoint."""
    extractors = {
        weights_path(name).stem: NetworkDescriptorExtractor.load(weights_path(name))
        for name in weights
    }
    rows = []
    for name in available(sets, data):
        drive = SETS[name](data, seed)
        for stem, (kept, descriptors) in describe_drive(drive, extractors, name).items():
            probabilities, errors_m = judge_drive(drive, kept, descriptors)
            rows.append({'set': name, 'weights': stem, **metrics(probabilities, errors_m)})
    if figure is not None:
        _draw(rows, figure)
    return {'goal': GOAL, 'right_m': RIGHT_M, 'wrong_m': WRONG_M, 'seed': seed, 'rows': rows}


def describe_drive(
    drive: CalibrationDrive, extractors: dict[str, NetworkDescriptorExtractor], name: str
) -> dict[str, tuple[list[int], NDArray[np.float32]]]:
    """Return keyframes and descriptors by checkpoint, without scans that have no structure."""
    kept: dict[str, list[int]] = {stem: [] for stem in extractors}
    found: dict[str, list[NDArray[np.float32]]] = {stem: [] for stem in extractors}
    for i in tqdm(range(len(drive.places)), desc=name, unit='scan'):
        points = drive.places.points(i)
        for stem, extractor in extractors.items():
            try:
                cells = quantize(points, input_for(drive.places, extractor.input))
            except CloudError:
                continue
            kept[stem].append(i)
            found[stem].append(extractor.describe_quantized([cells])[0])
    return {stem: (kept[stem], np.stack(found[stem])) for stem in extractors}


def judge_drive(
    drive: CalibrationDrive, kept: Sequence[int], descriptors: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return probability and true distance in meters of every query's nearest match."""
    database = PlaceDatabase(drive.database, descriptors.shape[1])
    judge = MatchProbability(database, OdometryNoiseConfig())
    probabilities, errors_m = [], []
    for i, descriptor in zip(kept, descriptors, strict=True):
        keyframe = database.make_keyframe(
            descriptor,
            NO_CLOUD,
            session=drive.sessions[i] if drive.sessions else 'drive',
            stamp_ns=int(drive.places.stamps_ns[i]),
            T_odom_sensor=drive.T_odom_sensor[i],
        )
        for match in judge.judge(keyframe, database.query(keyframe, RANKED), 1):
            there = drive.positions[kept[match.keyframe_id]]
            probabilities.append(match.probability)
            errors_m.append(float(ground_distance(drive.positions[i], there)))
        database.add(keyframe)
    database.close()
    return np.array(probabilities), np.array(errors_m)


def metrics(probability: NDArray[np.float64], error_m: NDArray[np.float64]) -> dict[str, Any]:
    """Return the calibration error and the reliability diagram."""
    is_right, is_wrong = error_m <= RIGHT_M, error_m > WRONG_M
    clear = is_right | is_wrong
    diagram = reliability(probability[clear], is_right[clear])
    return {
        'queries': len(probability),
        'right': int(is_right.sum()),
        'gray': int((~clear).sum()),
        'ece': diagram.error,
        'ece_if_honest': error_of_honest(probability[clear]),
        'ece_grey_right': reliability(probability, ~is_wrong).error,
        'median_right': float(np.median(probability[is_right])) if is_right.any() else None,
        'median_wrong': float(np.median(probability[is_wrong])) if is_wrong.any() else None,
        'counts': diagram.counts.tolist(),
        'predicted': np.nan_to_num(diagram.predicted).tolist(),
        'observed': np.nan_to_num(diagram.observed).tolist(),
    }


def _draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    from lpr_training.figures import plot_reliability

    diagrams: dict[str, dict[str, Any]] = {}
    for row in rows:
        label = f'{row["weights"]}, ECE {row["ece"]:.3f}'
        columns = (np.array(row[key]) for key in ('predicted', 'observed', 'counts'))
        diagrams.setdefault(row['set'], {})[label] = tuple(columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    plot_reliability(diagrams).savefig(path)


def table(result: dict[str, Any]) -> str:
    """Return one row per set and checkpoint."""
    head = (
        'set', 'weights', 'queries', 'right', '5 to 10 m', f'ECE (goal < {result["goal"]:g})',
        'ECE if honest', 'ECE, right within 10 m', 'median P right', 'median P wrong',
    )  # fmt: skip
    rows = [
        (
            *(row[key] for key in ('set', 'weights', 'queries', 'right', 'gray')),
            *(f'{row[key]:.3f}' for key in ('ece', 'ece_if_honest', 'ece_grey_right')),
            *('' if row[k] is None else f'{row[k]:.3f}' for k in ('median_right', 'median_wrong')),
        )
        for row in result['rows']
    ]
    return markdown_table(head, rows)
