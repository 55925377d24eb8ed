r"""Train a place recognition model.

python training/train.py config/kitti_bev.yaml --data ../shared/data --out runs/kitti_bev
python training/train.py config/kitti_bev.yaml --data ../shared/data --out runs/o2p \
        --set model.pooling.kind=o2p
python training/train.py config/kitti_bev.yaml --data ../shared/data --out runs/o2p \
        --set model.pooling.kind=o2p --resume
torchrun --nproc_per_node 4 training/train.py config/oxford_baseline.yaml --data ...
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from lpr_training.command import make_parser, run_command


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = make_parser(__file__, __doc__)
    add = parser.add_argument
    add('config', type=Path, help='training configuration, a YAML file of config/')
    add('--data', type=Path, required=True, help='folder of the dataset')
    add('--out', type=Path, required=True, help='folder of the run')
    add(
        '--init',
        default='',
        metavar='FILE|NAME',
        help='initialize from a checkpoint with the same quantizer and a backbone of the same '
        'shape or fewer layers; the pooling is initialized too if its settings are equal',
    )
    add('--resume', action='store_true', help='continue an interrupted run')
    add('--device', default='auto', choices=('auto', 'cpu', 'cuda'))
    add(
        '--set',
        action='append',
        default=[],
        metavar='KEY=VALUE',
        help='override a configuration value, e.g. model.pooling.channels=32 (repeatable)',
    )
    return parser


def run(args: argparse.Namespace) -> None:
    """Train a model as configured."""
    from lpr_ros.core.config import override, parse_assignments
    from lpr_ros.core.resources import weights_path
    from lpr_training.train.config import TrainConfig
    from lpr_training.train.run import fit  # imports torch

    config = override(TrainConfig.from_yaml(args.config), parse_assignments(args.set))
    init = weights_path(args.init) if args.init else None
    fit(config, args.data, args.out, init=init, resume=args.resume, device=args.device)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(
        build_parser(), run, argv, on_interrupt='Continue with --resume --out {args.out}'
    )


if __name__ == '__main__':
    raise SystemExit(main())
