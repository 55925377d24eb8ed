"""Convert a published MinkLoc3D or MinkLoc3Dv2 .pth file to a checkpoint of this package.

python -m lpr_ros.core.model.import_minkloc minkloc3dv2.pth minkloc3dv2.safetensors
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
import sys
from typing import Any

import torch
from torch import Tensor

from lpr_ros.core.errors import CheckpointError, LprError, error_text
from lpr_ros.core.files import check_regular
from lpr_ros.core.model.checkpoint import Checkpoint, save_checkpoint
from lpr_ros.core.model.config import PRESETS, ModelConfig

IMPORTABLE = ('minkloc3d', 'minkloc3dv2')
RENAMED = {'pooling.pooling.p': 'pooling.p'}


def load_plain(path: Path) -> Any:
    """Load a torch file of tensors and plain values without running code."""
    try:
        check_regular(path)
        return torch.load(path, map_location='cpu', weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f'{path}: no such file; expected a torch file') from error
    except Exception as error:  # torch raises anything on damaged files
        raise CheckpointError(f'{path}: not a plain torch file: {error_text(error)}') from error


def read_foreign_tensors(path: Path) -> dict[str, Tensor]:
    """Read a state dict, or one nested under `model` or `state_dict`."""
    blob = load_plain(path)
    for key in ('model', 'state_dict', 'model_state_dict'):
        if isinstance(blob, Mapping) and isinstance(blob.get(key), Mapping):
            blob = blob[key]
    if not isinstance(blob, Mapping) or not all(isinstance(v, Tensor) for v in blob.values()):
        raise CheckpointError(f'{path}: expected a dict of tensors, got {type(blob).__name__}')
    return {RENAMED.get(str(name), str(name)): tensor for name, tensor in blob.items()}


def import_checkpoint(path: Path, config: ModelConfig) -> Checkpoint:
    """Return a checkpoint of published weights, checked against the configuration."""
    checkpoint = Checkpoint(
        config,
        read_foreign_tensors(path),
        provenance={'imported_from': Path(path).name},
        license='as given by the authors of the imported file',
    )
    try:
        checkpoint.build()
    except CheckpointError as error:
        raise CheckpointError(f'{path}: {error}') from error
    return checkpoint


def main(argv: Sequence[str] | None = None) -> int:
    """Import a .pth file."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('source', type=Path, help='published .pth file')
    parser.add_argument('target', type=Path, help='.safetensors file to write')
    parser.add_argument(
        '--model', choices=IMPORTABLE, default='minkloc3dv2', help='architecture of the weights'
    )
    args = parser.parse_args(argv)
    try:
        save_checkpoint(args.target, import_checkpoint(args.source, PRESETS[args.model]()))
    except LprError as error:
        print(error, file=sys.stderr)
        return 1
    print(f'{args.target}: {args.model}, from {args.source}')
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
