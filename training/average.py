r"""Average the weights of checkpoints that were fine-tuned from the same weights.

    python training/average.py runs/a/last.safetensors runs/b/last.safetensors --out c.safetensors
    python training/calibrate.py --weights c.safetensors --data ../shared/data

The mean of a run and its continuation, or of two runs with a common ancestor, often generalizes
better than either, at the inference cost of one network.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lpr_ros.core.resources import WEIGHTS_HELP
from lpr_training.command import make_parser, run_command

if TYPE_CHECKING:  # --help must not import torch
    from lpr_ros.core.model.checkpoint import Checkpoint


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = make_parser(__file__, __doc__)
    add = parser.add_argument
    add('weights', nargs='+', metavar='FILE|NAME', help=f'{WEIGHTS_HELP}, of one configuration')
    add('--out', type=Path, required=True, metavar='FILE', help='file for the averaged checkpoint')
    return parser


def average(checkpoints: Sequence['Checkpoint']) -> 'Checkpoint':
    """Return the mean, with the provenance and licenses of all and no calibration."""
    from dataclasses import replace

    import torch

    from lpr_ros.core.errors import CheckpointError

    last = checkpoints[-1]
    for number, checkpoint in enumerate(checkpoints, 1):
        checkpoint.build()  # raises if a tensor is missing or has the wrong shape
        if checkpoint.config != last.config:
            raise CheckpointError(
                f'checkpoint {number} has the configuration {checkpoint.config}, expected that '
                f'of the last one, {last.config}'
            )
    tensors = {}
    for name, tensor in last.tensors.items():
        stacked = torch.stack([checkpoint.tensors[name] for checkpoint in checkpoints])
        # Batch counters are integers and have no mean.
        tensors[name] = stacked.mean(dim=0) if tensor.is_floating_point() else tensor
    return replace(
        last,
        tensors=tensors,
        license=' '.join(dict.fromkeys(c.license for c in checkpoints)),
        provenance={**last.provenance, 'mean_of': [dict(c.provenance) for c in checkpoints]},
        calibration={},  # descriptor distances differ from those of every input
    )


def run(args: argparse.Namespace) -> None:
    """Average the checkpoints and write the result."""
    from lpr_ros.core.model.checkpoint import load_checkpoint, save_checkpoint
    from lpr_ros.core.resources import weights_path

    mean = average([load_checkpoint(weights_path(weights)) for weights in args.weights])
    save_checkpoint(args.out, mean)
    print(
        f'{args.out}: mean of {len(args.weights)} checkpoints, not calibrated '
        '(run training/calibrate.py)'
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return run_command(build_parser(), run, argv)


if __name__ == '__main__':
    raise SystemExit(main())
