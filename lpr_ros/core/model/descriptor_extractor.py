"""Points in, descriptor out: what the node and the offline commands call."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
import torch

from lpr_ros.core.calibration import Calibration
from lpr_ros.core.errors import BackendError, CheckpointError, ConfigError
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.quantise import quantise
from lpr_ros.core.sparse import collate

DEVICES = ('auto', 'cpu', 'cuda')
PRECISIONS = ('float32', 'bfloat16')


class Describer:
    """Describes clouds with a trained model, in inference mode."""

    def __init__(
        self,
        model: PlaceModel,
        *,
        device: str = 'auto',
        precision: str = 'float32',
        fingerprint: str = '',
        calibration: Calibration | None = None,
    ):
        if precision not in PRECISIONS:
            raise BackendError(f'precision {precision!r} is not one of {list(PRECISIONS)}')
        self.device = choose_device(device)
        self._model = model.to(self.device).eval()
        if precision == 'bfloat16':
            # A copy, as the caller's model keeps its weights; pooling and whitening stay exact.
            self._model = PlaceModel(model.config, model.backend).to(self.device).eval()
            self._model.load_state_dict(model.state_dict())
            self._model.backbone.to(torch.bfloat16)
        self.input = model.config.input
        self.dim = model.out_dim
        self.fingerprint = fingerprint  # of the checkpoint: tells descriptor spaces apart
        self.calibration = calibration  # what a distance means; None where it is not known

    @classmethod
    def load(cls, path: Path, *, backend: str = 'auto', **options: Any) -> 'Describer':
        """Build from a checkpoint file; `options` are those of the constructor."""
        checkpoint = load_checkpoint(path)
        try:
            known = checkpoint.calibration
            calibration = Calibration.from_dict(known) if known else None
            model = checkpoint.build(backend)
        except (ConfigError, CheckpointError) as error:
            raise CheckpointError(f'{path}: {error}') from error
        return cls(
            model,
            fingerprint=checkpoint.fingerprint,
            calibration=calibration,
            **options,
        )

    def describe(self, points: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Return the (D,) descriptor of (N, 3) points."""
        quantised = quantise(points, self.input)
        descriptor: NDArray[np.float32] = self.describe_quantised([quantised])[0]
        return descriptor

    def describe_quantised(self, clouds: Sequence[NDArray[np.generic]]) -> NDArray[np.float32]:
        """Return (B, D) descriptors of clouds already quantised as `input` says."""
        with torch.inference_mode():
            descriptors = self._model(collate(clouds).to(self.device))
        result: NDArray[np.float32] = descriptors.float().cpu().numpy()
        return result


def choose_device(name: str) -> torch.device:
    """Return the device called `auto`, `cpu` or `cuda`; auto takes CUDA where there is one."""
    if name not in DEVICES:
        raise BackendError(f'device {name!r} is not one of {list(DEVICES)}')
    has_cuda = torch.cuda.is_available()
    if name == 'cuda' and not has_cuda:
        raise BackendError('device cuda: torch sees no CUDA device here; use auto or cpu')
    return torch.device('cuda' if has_cuda and name != 'cpu' else 'cpu')
