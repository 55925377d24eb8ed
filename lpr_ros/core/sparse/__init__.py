"""Sparse 3-D convolution in plain torch, with MinkowskiEngine as an optional backend."""

from types import ModuleType

from lpr_ros.core.errors import BackendError
from lpr_ros.core.sparse.batch import CloudBatch, collate

BACKENDS = ('auto', 'torch', 'minkowski')

__all__ = ['BACKENDS', 'CloudBatch', 'collate', 'load_backend']


def load_backend(name: str = 'auto') -> ModuleType:
    """Return the module of sparse layers named `auto`, `torch` or `minkowski`.

    Both backends provide Conv, ConvTranspose, BatchNorm, tensor, relu, add, cloud_mean,
    scale_clouds and cloud_features. `auto` is torch, the faster one in all benchmarks.
    """
    if name in ('auto', 'torch'):
        from lpr_ros.core.sparse import torch_layers

        return torch_layers
    if name == 'minkowski':
        from lpr_ros.core.sparse import minkowski_layers

        return minkowski_layers
    raise BackendError(f'backend {name!r} is not one of {list(BACKENDS)}')
