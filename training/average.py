r"""Average checkpoints that were trained on from the same weights.

    python training/average.py runs/a/last.safetensors runs/b/last.safetensors --out c.safetensors
    python training/calibrate.py --weights c.safetensors --data ../shared/data

Where one run went on from the weights of another, or two from those of a third, their mean often
does better on new places than any of them, for the price of one.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lpr_ros.core.model.checkpoint import Checkpoint


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('weights', type=Path, nargs='+', metavar='FILE', help='checkpoints of one configuration')
    add('--out', type=Path, required=True, metavar='FILE', help='write the mean here')
    return parser


def average(checkpoints: Sequence['Checkpoint']) -> 'Checkpoint':
    """Return the mean; what it knows about its training is that of the last, and of all."""
    from dataclasses import replace

    import torch

    from lpr_ros.core.errors import CheckpointError

    last = checkpoints[-1]
    for number, checkpoint in enumerate(checkpoints, 1):
        checkpoint.build()  # every tensor is there and has its shape
        if checkpoint.config != last.config:
            raise CheckpointError(
                f'checkpoint {number} is of another configuration than the last: '
                f'{checkpoint.config}, expected {last.config}'
            )
    tensors = {}
    for name, tensor in last.tensors.items():
        stacked = torch.stack([checkpoint.tensors[name] for checkpoint in checkpoints])
        # Counters are whole numbers: the last one's.
        tensors[name] = stacked.mean(dim=0) if tensor.is_floating_point() else tensor
    return replace(
        last,
        tensors=tensors,
        licence=' '.join(dict.fromkeys(c.licence for c in checkpoints)),  # all bind
        provenance={**last.provenance, 'mean_of': [dict(c.provenance) for c in checkpoints]},
        calibration={},  # distances mean something else now
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Average as the command line says; return 0, or 1 on bad input."""
    args = build_parser().parse_args(argv)
    from lpr_ros.core.errors import LprError  # imported late: --help must be instant
    from lpr_ros.core.model.checkpoint import load_checkpoint, save_checkpoint

    try:
        mean = average([load_checkpoint(path) for path in args.weights])
        save_checkpoint(args.out, mean)
    except LprError as error:
        print(f'average.py: {error}', file=sys.stderr)
        return 1
    print(f'{args.out}: the mean of {len(args.weights)}, not calibrated (training/calibrate.py)')
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
