"""Checkpoints: weights with configuration, calibration and provenance in a safetensors file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
import torch
from torch import Tensor

from lpr_ros.core.config import changed_settings
from lpr_ros.core.errors import CheckpointError, ConfigError, LprError, short_repr
from lpr_ros.core.files import atomic_file, check_regular
from lpr_ros.core.model.config import ModelConfig
from lpr_ros.core.model.place_model import PlaceModel

FORMAT = 'lpr_ros checkpoint'
VERSION = 1


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The contents of a checkpoint file; the model is not built yet."""

    config: ModelConfig
    tensors: Mapping[str, Tensor]
    provenance: Mapping[str, Any] = field(default_factory=dict)  # data, command, commit, metrics
    license: str = ''  # of the weights, derived from that of the training data
    calibration: Mapping[str, Any] = field(default_factory=dict)  # see calibration.Calibration

    def build(self, backend: str = 'auto') -> PlaceModel:
        """Return the model in eval mode; CheckpointError lists tensors that do not fit."""
        with torch.device('meta'):  # shapes only: a damaged file may request terabytes
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
        """Hash of configuration and weights; descriptors compare only if it is equal."""
        # Defaults are left out, so that a new option does not change existing fingerprints.
        settings = {name: value for name, (value, _) in changed_settings(self.config).items()}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
        for name in sorted(self.tensors):
            digest.update(name.encode())
            digest.update(self.tensors[name].contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()


def from_model(model: PlaceModel, **fields: Any) -> Checkpoint:
    """Return a checkpoint of a model; `fields` are the other fields of Checkpoint."""
    # Cloned: on the CPU, training would keep changing these tensors.
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    return Checkpoint(model.config, tensors, **fields)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically."""
    metadata = {
        'format': FORMAT,
        'version': str(VERSION),
        'model': json.dumps(checkpoint.config.to_dict()),
        'provenance': json.dumps(dict(checkpoint.provenance)),
        'license': checkpoint.license,
        'calibration': json.dumps(dict(checkpoint.calibration)),
    }
    path = Path(path)
    tensors = {name: tensor.contiguous() for name, tensor in checkpoint.tensors.items()}
    try:
        with atomic_file(path) as partial:
            # Into memory first: save_file would replace the locked file and make it 0600.
            partial.write_bytes(save(tensors, metadata=metadata))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f'{path}: cannot be written: {error}') from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; CheckpointError names the file and what was expected."""
    path = Path(path)
    try:
        check_regular(path)
        with safe_open(path, framework='pt', device='cpu') as opened:
            metadata = opened.metadata() or {}
            _check_format(metadata)
            return Checkpoint(
                config=ModelConfig.from_dict(_json(metadata, 'model')),
                tensors={name: opened.get_tensor(name) for name in list(opened.keys())},
                provenance=_json(metadata, 'provenance'),
                license=metadata.get('license', ''),
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
            'convert MinkLoc3D weights with python -m lpr_ros.core.model.import_minkloc'
        )


def _json(metadata: Mapping[str, str], key: str) -> dict[str, Any]:
    try:
        value = json.loads(metadata[key])
    except (KeyError, ValueError, RecursionError) as error:
        raise CheckpointError(f'metadata {key!r}: expected JSON, got {error!r}') from error
    if not isinstance(value, dict):
        raise CheckpointError(f'metadata {key!r}: expected a JSON object, got {short_repr(value)}')
    return value
