"""Write test/data/minkowski_reference.npz: results of MinkowskiEngine for machines without it.

PYTHONPATH=. python test/make_minkowski_reference.py

The networks are implemented a second time with the layers and blocks of MinkowskiEngine, after
the published code of MinkLoc3Dv2, so that errors of architecture show as well as of arithmetic.
Weights and clouds come from RandomState, whose stream NumPy guarantees, and are not stored.
"""

import argparse
from collections.abc import Callable, Sequence
import math
from pathlib import Path
from typing import Any
import zlib

import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor, nn

from lpr_ros.core.model.config import PRESETS, BackboneConfig, PoolingConfig
from lpr_ros.core.model.pooling import POOLINGS
from lpr_ros.core.sparse import CloudBatch, collate

REFERENCE = Path(__file__).parent / 'data' / 'minkowski_reference.npz'
BACKBONES = ('minkloc3d', 'minkloc3dv2', 'wild_places')
HEADS = {'gem': PoolingConfig(kind='gem'), 'whitened': PoolingConfig(kind='whitened')}
# Two clouds: with three or more, global pooling of MinkowskiEngine 0.5.4 on the CPU may return the
# mean of another cloud, as its rows follow a hash map.
CLOUD_SIZES = (200, 500)
# Chosen so that no ReLU input is within 1e-5 of 0 in training mode: MinkowskiEngine rounding
# varies between runs and would switch such a unit on and off.
SEED = 10


def stream(name: str) -> np.random.RandomState:
    """Return the random stream of a name."""
    return np.random.RandomState(zlib.crc32(name.encode()))


def make_clouds() -> list[NDArray[np.int32]]:
    """Return clouds of several connected walks, spread over both signs of every axis."""
    clouds = []
    for index, size in enumerate(CLOUD_SIZES):
        random = stream(f'cloud {index} of {SEED}')
        steps = random.randint(-1, 2, size=(10, size // 10, 3))
        walks = steps.cumsum(axis=1) + random.randint(-60, 60, size=(10, 1, 3))
        clouds.append(np.unique(walks.reshape(-1, 3), axis=0).astype(np.int32))
    return clouds


def set_weights(module: nn.Module) -> None:
    """Draw every parameter and buffer from the stream of its name, scaled as in trained nets."""
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            random = stream(name)
            if name.endswith('num_batches_tracked') or name.endswith('pooling.p'):
                continue
            if name.endswith('running_var') or (tensor.ndim == 1 and name.endswith('weight')):
                values = random.uniform(0.5, 1.5, tuple(tensor.shape))
            elif tensor.ndim == 1:
                values = random.normal(0.0, 0.2, tuple(tensor.shape))
            else:
                neighbors = 4 if tensor.ndim == 3 else 1  # typical number of occupied cells of 27
                fan = tensor.shape[-2] if name.endswith('kernel') else tensor.shape[-1]
                std = math.sqrt(1.0 / (fan * neighbors))
                values = random.normal(0.0, std, tuple(tensor.shape))
            tensor.copy_(torch.from_numpy(values))


def loss_of(descriptors: Tensor) -> Tensor:
    """Return a random linear combination of all descriptor entries."""
    values = stream('loss').normal(size=tuple(descriptors.shape)).astype(np.float32)
    return (descriptors * torch.from_numpy(values)).sum()


def gradients_of(model: nn.Module, batch: CloudBatch) -> dict[str, Tensor]:
    """Return the training-mode gradient of every parameter."""
    loss_of(model.train()(batch)).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def summary_of(name: str, gradient: Tensor) -> tuple[float, float]:
    """Return the norm of a gradient and its component along a fixed random direction."""
    flat = gradient.detach().double().numpy().ravel()
    direction = stream(f'direction {name}').normal(size=flat.shape)
    return float(np.linalg.norm(flat)), float(flat @ direction / np.linalg.norm(direction))


def published_model(backbone: BackboneConfig, pooling: PoolingConfig) -> nn.Module:
    """Return the network on MinkowskiEngine; importing it needs our alias for Python 3.10."""
    from lpr_ros.core.sparse import minkowski_layers  # noqa: F401

    import MinkowskiEngine as ME  # isort: skip
    from MinkowskiEngine.modules.resnet_block import BasicBlock  # isort: skip

    class ECALayer(nn.Module):
        def __init__(self, channels: int):
            super().__init__()
            t = int(abs((math.log(channels, 2) + 1) / 2))
            size = t if t % 2 else t + 1
            self.conv = nn.Conv1d(1, 1, size, padding=(size - 1) // 2, bias=False)
            self.avg_pool = ME.MinkowskiGlobalPooling()
            self.broadcast_mul = ME.MinkowskiBroadcastMultiplication()

        def forward(self, x: Any) -> Any:
            y = self.avg_pool(x)
            gates = self.conv(y.F.unsqueeze(-1).transpose(-1, -2)).transpose(-1, -2).squeeze(-1)
            gates = ME.SparseTensor(
                gates.sigmoid(),
                coordinate_manager=y.coordinate_manager,
                coordinate_map_key=y.coordinate_map_key,
            )
            return self.broadcast_mul(x, gates)

    class Block(BasicBlock):  # type: ignore[misc]
        def __init__(self, before: int, after: int):
            skip = None
            if before != after:
                skip = nn.Sequential(
                    ME.MinkowskiConvolution(before, after, kernel_size=1, dimension=3),
                    ME.MinkowskiBatchNorm(after),
                )
            super().__init__(before, after, downsample=skip, dimension=3)
            self.eca = ECALayer(after) if backbone.attention else nn.Identity()

        def forward(self, x: Any) -> Any:
            y = self.relu(self.norm1(self.conv1(x)))
            y = self.eca(self.norm2(self.conv2(y)))
            y += self.downsample(x) if self.downsample is not None else x
            return self.relu(y)

    class FPN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            planes, top_down = backbone.planes, backbone.num_top_down
            width = backbone.feature_size
            previous = planes[0]
            size = backbone.conv0_kernel_size
            self.conv0 = ME.MinkowskiConvolution(1, previous, kernel_size=size, dimension=3)
            self.bn0 = ME.MinkowskiBatchNorm(previous)
            self.relu = ME.MinkowskiReLU()
            self.convs, self.bn, self.blocks = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
            for plane in planes:
                self.convs.append(
                    ME.MinkowskiConvolution(
                        previous, previous, kernel_size=2, stride=2, dimension=3
                    )
                )
                self.bn.append(ME.MinkowskiBatchNorm(previous))
                self.blocks.append(nn.Sequential(Block(previous, plane)))
                previous = plane
            self.conv1x1, self.tconvs = nn.ModuleList(), nn.ModuleList()
            for i in range(top_down):
                self.conv1x1.append(
                    ME.MinkowskiConvolution(planes[-1 - i], width, kernel_size=1, dimension=3)
                )
                self.tconvs.append(
                    ME.MinkowskiConvolutionTranspose(
                        width, width, kernel_size=2, stride=2, dimension=3
                    )
                )
            self.conv1x1.append(
                ME.MinkowskiConvolution(planes[-1 - top_down], width, kernel_size=1, dimension=3)
            )

        def forward(self, x: Any) -> Any:
            levels, top_down = len(self.convs), len(self.tconvs)
            saved = []
            x = self.relu(self.bn0(self.conv0(x)))
            for i in range(levels):
                x = self.blocks[i](self.relu(self.bn[i](self.convs[i](x))))
                if levels - 1 - top_down <= i < levels - 1:
                    saved.append(x)
            x = self.conv1x1[0](x)
            for i in range(top_down):
                x = self.tconvs[i](x) + self.conv1x1[i + 1](saved[-1 - i])
            return x

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = FPN()
            self.pooling = POOLINGS[pooling.kind](backbone.feature_size, pooling)

        def forward(self, batch: CloudBatch) -> Tensor:
            clouds = [part.int() for part in batch.sites.split(list(batch.counts))]
            coordinates = ME.utils.batched_coordinates(clouds)
            ones = torch.ones(len(coordinates), 1)
            parts = self.backbone(ME.SparseTensor(ones, coordinates)).decomposed_features
            return self.pooling(torch.cat(parts), [len(part) for part in parts])

    return Model()


def cases() -> list[tuple[str, BackboneConfig, PoolingConfig]]:
    """Return every backbone with every pooling, by name."""
    return [
        (f'{backbone}/{head}', PRESETS[backbone]().backbone, pooling)
        for backbone in BACKBONES
        for head, pooling in HEADS.items()
    ]


def measure(build: Callable[[BackboneConfig, PoolingConfig], nn.Module]) -> dict[str, NDArray]:
    """Return descriptors and gradient summaries of every case."""
    batch = collate(make_clouds())
    arrays = {}
    for case, backbone, pooling in cases():
        model = build(backbone, pooling)
        set_weights(model)
        with torch.no_grad():
            arrays[f'{case}/descriptors'] = model.eval()(batch).numpy()
        gradients = gradients_of(model, batch)
        arrays[f'{case}/names'] = np.array(sorted(gradients))
        arrays[f'{case}/gradients'] = np.array(
            [summary_of(name, gradients[name]) for name in sorted(gradients)]
        )
    return arrays


def main(argv: Sequence[str] | None = None) -> int:
    """Write the reference file."""
    argparse.ArgumentParser(description=__doc__.partition('\n')[0]).parse_args(argv)
    REFERENCE.parent.mkdir(exist_ok=True)
    np.savez_compressed(REFERENCE, **measure(published_model))
    print(f'{REFERENCE}: {REFERENCE.stat().st_size} bytes')
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
