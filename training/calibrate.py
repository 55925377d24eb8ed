r"""Calibrate the descriptor distances of a checkpoint on held-out places.

python training/calibrate.py --weights weights/kitti_bev.safetensors --data ../shared/data

Training calibrates when it ends; use this command to repeat that, for example after averaging
checkpoints. The held-out places are those of --config, by default of the training configuration
stored in the checkpoint.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lpr_ros.core.resources import WEIGHTS_HELP
from lpr_training.command import make_parser, run_command

if TYPE_CHECKING:  # --help must not import torch
    from lpr_ros.core.model.calibration import Calibration
    from lpr_training.train.config import DataConfig


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = make_parser(__file__, __doc__)
    add = parser.add_argument
    add('--weights', default='', metavar='FILE|NAME', help=f'{WEIGHTS_HELP}; default: kitti_bev')
    add('--data', type=Path, required=True, metavar='DIR', help='folder of the dataset')
    add('--out', type=Path, metavar='FILE', help='output file (default: overwrite --weights)')
    add(
        '--config',
        type=Path,
        metavar='YAML',
        help='training configuration (default: the one stored in the checkpoint)',
    )
    add(
        '--radius',
        type=float,
        default=5.0,
        metavar='M',
        help='matches within this distance are the same place (default: 5)',
    )
    add('--device', default='auto', choices=('auto', 'cpu', 'cuda'))
    add('--batch', type=int, default=16, help='clouds described per batch (default: 16)')
    return parser


def run(args: argparse.Namespace) -> None:
    """Calibrate the checkpoint and print its distance thresholds."""
    from lpr_ros.core.errors import ConfigError, DatasetError
    from lpr_ros.core.resources import weights_path
    from lpr_training.train.calibration import calibrate_weights
    from lpr_training.train.data import open_training_data

    weights = weights_path(args.weights)
    if args.out is None and not Path(args.weights).expanduser().is_file():
        raise ConfigError(
            f'{weights}: shipped weights are not calibrated in place; give --out FILE'
        )
    held_out = open_training_data(_data_config(args, weights), args.data).held_out
    if held_out is None:
        raise DatasetError('the configuration has no held-out places to calibrate on')
    calibration = calibrate_weights(
        weights,
        held_out,
        out=args.out,
        device=args.device,
        batch=args.batch,
        radius_m=args.radius,
        progress=True,
    )
    print(_table(calibration))


def _data_config(args: argparse.Namespace, weights: Path) -> 'DataConfig':
    from lpr_ros.core.errors import CheckpointError
    from lpr_ros.core.model.checkpoint import load_checkpoint
    from lpr_training.train.config import DataConfig, TrainConfig

    if args.config:
        return TrainConfig.from_yaml(args.config).data
    training = load_checkpoint(weights).provenance.get('training', {})
    if 'data' not in training:
        raise CheckpointError(f'{weights}: has no training configuration; give --config YAML')
    return DataConfig.from_dict(training['data'])


def _table(calibration: 'Calibration') -> str:
    lines = [
        f'{calibration.pairs} matches, {calibration.same_pairs} of them within '
        f'{calibration.radius_m:g} m',
        '',
        '| precision | maximum distance |',
        '|---|---|',
        f'| 90 % | {calibration.distance_at_90_percent:.4f} |',
        f'| 99 % | {calibration.distance_at_99_percent:.4f} |',
        f'| 99.9 % | {calibration.distance_at_999_permille:.4f} |',
    ]
    return '\n'.join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(build_parser(), run, argv, on_interrupt='The checkpoint is unchanged')


if __name__ == '__main__':
    raise SystemExit(main())
