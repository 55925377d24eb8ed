r"""Store in a checkpoint what its descriptor distances mean, from held-out places.

python training/calibrate.py --weights weights/kitti_bev.safetensors --data ../shared/data

Training does this at its end. The held-out places are those of the training configuration that
the checkpoint carries, or of --config; every match of theirs is a pair to calibrate on.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lpr_ros.core.calibration import Calibration
    from lpr_training.config import DataConfig


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('--weights', type=Path, required=True, metavar='FILE', help='checkpoint to calibrate')
    add('--data', type=Path, required=True, metavar='DIR', help='folder of the dataset')
    add('--out', type=Path, metavar='FILE', help='write here instead of into the checkpoint')
    add('--config', type=Path, metavar='YAML', help='training configuration, if it has none')
    add('--radius', type=float, default=5.0, metavar='M', help='nearer is the same place (5)')
    add('--device', default='auto', choices=('auto', 'cpu', 'cuda'))
    add('--batch', type=int, default=16, help='clouds described at once (16)')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Calibrate as the command line says; return 0, 1 on bad input, 130 when interrupted."""
    args = build_parser().parse_args(argv)
    from lpr_ros.core.errors import LprError  # imported late: --help must be instant

    try:
        print(_table(_run(args)))
    except (LprError, OSError) as error:
        print(f'calibrate.py: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\ninterrupted; the checkpoint is as it was', file=sys.stderr)
        return 130
    return 0


def _run(args: argparse.Namespace) -> 'Calibration':
    from lpr_ros.core.errors import DatasetError
    from lpr_training.calibration_step import calibrate_weights
    from lpr_training.training_data import open_training_data

    held_out = open_training_data(_data_config(args), args.data).held_out
    if held_out is None:
        raise DatasetError('this configuration holds out no places to calibrate on')
    return calibrate_weights(
        args.weights,
        held_out,
        out=args.out,
        device=args.device,
        batch=args.batch,
        radius_m=args.radius,
        progress=True,
    )


def _data_config(args: argparse.Namespace) -> 'DataConfig':
    from lpr_ros.core.errors import CheckpointError
    from lpr_ros.core.model.checkpoint import load_checkpoint
    from lpr_training.config import DataConfig, TrainConfig

    if args.config:
        return TrainConfig.from_yaml(args.config).data
    training = load_checkpoint(args.weights).provenance.get('training', {})
    if 'data' not in training:
        raise CheckpointError(f'{args.weights}: knows no training data; give --config YAML')
    return DataConfig.from_dict(training['data'])


def _table(fitted: 'Calibration') -> str:
    lines = [
        f'{fitted.pairs} matches, {fitted.same_pairs} of them within {fitted.radius_m:g} m',
        '',
        '| precision | distance |',
        '|---|---|',
        f'| 90 % | {fitted.distance_at_90_percent:.4f} |',
        f'| 99 % | {fitted.distance_at_99_percent:.4f} |',
        f'| 99.9 % | {fitted.distance_at_999_permille:.4f} |',
    ]
    return '\n'.join(lines)


if __name__ == '__main__':
    raise SystemExit(main())
