r"""Train a place model.

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
import sys


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', type=Path, help='a YAML file of config/')
    parser.add_argument('--data', type=Path, required=True, help='folder of the dataset')
    parser.add_argument('--out', type=Path, required=True, help='folder of the run')
    parser.add_argument(
        '--init', type=Path, metavar='WEIGHTS',
        help='begin with the weights of a checkpoint of the same quantizer and backbone, or of '
        'one with fewer layers (its pooling too where that is the same)',
    )  # fmt: skip
    parser.add_argument('--resume', action='store_true', help='go on where the run stopped')
    parser.add_argument('--device', default='auto', choices=('auto', 'cpu', 'cuda'))
    parser.add_argument(
        '--set',
        action='append',
        default=[],
        metavar='KEY=VALUE',
        help='change a value of the configuration, e.g. model.pooling.channels=32 (repeatable)',
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Train as the command line says."""
    args = build_parser().parse_args(argv)
    # Imported late: --help must not wait for torch.
    from lpr_ros.core.config import override, parse_assignments
    from lpr_ros.core.errors import LprError
    from lpr_training.config import TrainConfig
    from lpr_training.fit import fit

    try:
        config = override(TrainConfig.from_yaml(args.config), parse_assignments(args.set))
        fit(config, args.data, args.out, init=args.init, resume=args.resume, device=args.device)
    except (LprError, OSError) as error:  # OSError: no space, no permission
        print(f'train.py: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f'\ninterrupted; go on with --resume --out {args.out}', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
