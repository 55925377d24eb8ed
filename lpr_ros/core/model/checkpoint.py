"""Weights that travel with all that is needed to use them: safetensors with JSON metadata."""

from collections.abc import Mapping
from dataclasses import dataclass, field
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
import torch
from torch import Tensor

from lpr_ros.core.config import changed_settings
from lpr_ros.core.errors import CheckpointError, ConfigError, LprError, shown
from lpr_ros.core.model.config import ModelConfig
from lpr_ros.core.model.place_model import PlaceModel

FORMAT = 'lpr_ros checkpoint'
VERSION = 1


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A trained model as it lies on disk, not yet built."""

    config: ModelConfig
    tensors: Mapping[str, Tensor]
    provenance: Mapping[str, Any] = field(default_factory=dict)  # data, command, commit, metrics
    licence: str = ''  # of the weights, which follows that of the training data
    calibration: Mapping[str, Any] = field(default_factory=dict)  # what a distance means

    def build(self, backend: str = 'auto') -> PlaceModel:
        """Return the model in eval mode; every missing, unknown or misshapen tensor is named."""
        with torch.device('meta'):  # shapes alone: a damaged file may ask for terabytes
            expected = PlaceModel(self.config, backend).state_dict()
        problems = [f'missing {name}' for name in expected if name not in self.tensors]
        problems += [f'unknown {name}' for name in self.tensors if name not in expected]
        problems += [
            f'{name} has shape {tuple(tensor.shape)}, expected {tuple(expected[name].shape)}'
            for name, tensor in self.tensors.items()
            if name in expected and tensor.shape != expected[name].shape
        ]
        if problems:
            raise CheckpointError('weights do not fit their configuration: ' + '; '.join(problems))
        model = PlaceModel(self.config, backend)
        model.load_state_dict(dict(self.tensors), strict=True)
        return model.eval()

    @property
    def fingerprint(self) -> str:
        """Identify the descriptor space: two maps compare only under the same fingerprint."""
        # What is at its default is left out: an option that is added later changes nothing.
        settings = {name: value for name, (value, _) in changed_settings(self.config).items()}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for name in sorted(self.tensors):
            digest.update(name.encode())
            digest.update(self.tensors[name].contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()


def from_model(model: PlaceModel, **about: Any) -> Checkpoint:
    """Return a checkpoint of a model; `about` are the other fields of Checkpoint."""
    # Cloned: on the CPU these are the tensors that training goes on changing.
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    return Checkpoint(model.config, tensors, **about)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint aside and rename it into place, so that a kill leaves the old file."""
    metadata = {
        'format': FORMAT,
        'version': str(VERSION),
        'model': json.dumps(checkpoint.config.to_dict()),
        'provenance': json.dumps(dict(checkpoint.provenance)),
        'licence': checkpoint.licence,
        'calibration': json.dumps(dict(checkpoint.calibration)),
    }
    path = Path(path)
    aside = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
    try:
        tensors = {name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()}
        save_file(tensors, aside, metadata=metadata)
        aside.chmod(0o644)  # safetensors writes 0600, which no other user's node can read
        with open(aside, 'rb') as written:
            os.fsync(written.fileno())
        os.replace(aside, path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f'{path}: cannot be written: {error}') from error
    finally:
        aside.unlink(missing_ok=True)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; CheckpointError says which file and what was expected."""
    path = Path(path)
    try:
        with safe_open(path, framework='pt', device='cpu') as opened:
            metadata = opened.metadata() or {}
            _check_format(metadata)
            return Checkpoint(
                config=ModelConfig.from_dict(_json(metadata, 'model')),
                tensors={name: opened.get_tensor(name) for name in list(opened.keys())},
                provenance=_json(metadata, 'provenance'),
                licence=metadata.get('licence', ''),
                calibration=_json(metadata, 'calibration'),
            )
    except FileNotFoundError as error:
        raise CheckpointError(f'{path}: no such file; expected a .safetensors file') from error
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f'{path}: damaged or not a safetensors file: {error}') from error
    except ConfigError as error:
        raise CheckpointError(f'{path}: model configuration: {error}') from error
    except LprError as error:
        raise CheckpointError(f'{path}: {error}') from error


def _check_format(metadata: Mapping[str, str]) -> None:
    found = metadata.get('format'), metadata.get('version')
    if found != (FORMAT, str(VERSION)):
        raise CheckpointError(
            f'format {found[0]!r} version {found[1]!r}, expected {FORMAT!r} version {VERSION}; '
            'foreign weights go through python -m lpr_ros.core.model.import_checkpoint'
        )


def _json(metadata: Mapping[str, str], key: str) -> dict[str, Any]:
    try:
        value = json.loads(metadata[key])
    except (KeyError, ValueError, RecursionError) as error:
        raise CheckpointError(f'metadata {key!r}: expected JSON, got {error!r}') from error
    if not isinstance(value, dict):
        raise CheckpointError(f'metadata {key!r}: expected a JSON object, got {shown(value)}')
    return value
