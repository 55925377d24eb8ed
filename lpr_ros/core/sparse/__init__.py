"""Sparse 3-D convolution: plain torch by default, MinkowskiEngine as the other backend."""

from types import ModuleType

from lpr_ros.core.errors import BackendError
from lpr_ros.core.sparse.batch import CloudBatch, collate

BACKENDS = ('auto', 'torch', 'minkowski')

__all__ = ['BACKENDS', 'CloudBatch', 'collate', 'load_backend']


def load_backend(name: str = 'auto') -> ModuleType:
    """Return the module of sparse layers called `auto`, `torch` or `minkowski`.

    Both have Conv, ConvTranspose, BatchNorm, tensor, relu, add, cloud_mean, scale_clouds and
    cloud_features. `auto` is torch, the faster of the two everywhere it was measured.
    """
    if name in ('auto', 'torch'):
        from lpr_ros.core.sparse import torch_backend

        return torch_backend
    if name == 'minkowski':
        from lpr_ros.core.sparse import minkowski_backend

        return minkowski_backend
    raise BackendError(f'backend {name!r} is not one of {list(BACKENDS)}')
