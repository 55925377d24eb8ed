"""Descriptor extraction with a trained network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
import torch

from lpr_ros.core.errors import BackendError, CheckpointError, ConfigError
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.quantize import quantize
from lpr_ros.core.sparse import collate

DEVICES = ('auto', 'cpu', 'cuda')
PRECISIONS = ('float32', 'bfloat16')


class NetworkDescriptorExtractor:
    """Compute descriptors of clouds with a trained model in inference mode."""

    def __init__(
        self,
        model: PlaceModel,
        *,
        device: str = 'auto',
        precision: str = 'float32',
        fingerprint: str = '',
    ):
        if precision not in PRECISIONS:
            raise BackendError(f'precision {precision!r} is not one of {list(PRECISIONS)}')
        self.device = choose_device(device)
        self._model = model.to(self.device).eval()
        if precision == 'bfloat16':
            # A copy: the model of the caller keeps its precision. Pooling stays in float32.
            self._model = PlaceModel(model.config, model.backend).to(self.device).eval()
            self._model.load_state_dict(model.state_dict())
            self._model.backbone.to(torch.bfloat16)
        self.input = model.config.input
        self.dim = model.out_dim
        self.fingerprint = fingerprint  # identifies the descriptor space of a checkpoint

    @classmethod
    def load(
        cls, path: Path, *, backend: str = 'auto', **options: Any
    ) -> 'NetworkDescriptorExtractor':
        """Build from a checkpoint file; `options` are those of the constructor."""
        checkpoint = load_checkpoint(path)
        try:
            model = checkpoint.build(backend)
        except (ConfigError, CheckpointError) as error:
            raise CheckpointError(f'{path}: {error}') from error
        return cls(model, fingerprint=checkpoint.fingerprint, **options)

    def describe(self, points: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Return the (D,) descriptor of (N, 3) points."""
        quantized = quantize(points, self.input)
        descriptor: NDArray[np.float32] = self.describe_quantized([quantized])[0]
        return descriptor

    def describe_quantized(self, clouds: Sequence[NDArray[np.generic]]) -> NDArray[np.float32]:
        """Return (B, D) descriptors of clouds that are already quantized."""
        with torch.inference_mode():
            descriptors = self._model(collate(clouds).to(self.device))
        result: NDArray[np.float32] = descriptors.float().cpu().numpy()
        return result


def choose_device(name: str) -> torch.device:
    """Return the device named `auto`, `cpu` or `cuda`; auto prefers CUDA."""
    if name not in DEVICES:
        raise BackendError(f'device {name!r} is not one of {list(DEVICES)}')
    has_cuda = torch.cuda.is_available()
    if name == 'cuda' and not has_cuda:
        raise BackendError('device cuda: torch finds no CUDA device; use auto or cpu')
    return torch.device('cuda' if has_cuda and name != 'cpu' else 'cpu')
