"""The place recognition model: a backbone from `BACKBONES` and a pooling from `POOLINGS`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from lpr_ros.core.model.minkfpn import MinkFPN
from lpr_ros.core.model.pointnet import PointNet
from lpr_ros.core.model.pooling import POOLINGS
from lpr_ros.core.sparse import CloudBatch

if TYPE_CHECKING:
    from lpr_ros.core.model.config import BackboneConfig, ModelConfig


def _minkfpn(config: 'BackboneConfig', backend: str) -> MinkFPN:
    return MinkFPN(
        config.planes,
        config.layers,
        config.num_top_down,
        config.conv0_kernel_size,
        config.feature_size,
        config.attention,
        backend,
    )


def _pointnet(config: 'BackboneConfig', backend: str) -> PointNet:
    return PointNet()


@dataclass(frozen=True)
class Backbone:
    """One backbone; `build` takes its configuration and the sparse backend.

    The module has `out_channels` and maps a CloudBatch to features (sum N, out_channels), cloud
    after cloud, and the number of features of each cloud.
    """

    build: Callable[['BackboneConfig', str], Any]
    takes_voxels: bool = True  # False: float points


BACKBONES: dict[str, Backbone] = {
    'minkfpn': Backbone(_minkfpn),
    'pointnet': Backbone(_pointnet, takes_voxels=False),
}


class PlaceModel(nn.Module):
    """Map B clouds to (B, out_dim) descriptors, compared by Euclidean distance."""

    def __init__(self, config: 'ModelConfig', backend: str = 'auto'):
        super().__init__()
        self.config = config
        self.backend = backend
        self.backbone: Any = BACKBONES[config.backbone.kind].build(config.backbone, backend)
        self.pooling = POOLINGS[config.pooling.kind](self.backbone.out_channels, config.pooling)
        self.out_dim = self.pooling.out_dim

    def forward(self, batch: CloudBatch) -> Tensor:
        """Return one descriptor per cloud."""
        features, counts = self.features(batch)
        # Pooling in full precision: descriptor distances differ by a few percent only.
        with torch.autocast(features.device.type, enabled=False):
            descriptors: Tensor = self.pooling(features.float(), counts)
        return descriptors

    def features(self, batch: CloudBatch) -> tuple[Tensor, list[int]]:
        """Return the features (sum N, D) to pool and the number of features of each cloud."""
        if not self.config.backbone.quarter_turns:
            features, counts = self.backbone(batch)
            return features, counts
        features, counts = self.backbone(with_quarter_turns(batch))
        return features, [sum(counts[i : i + 4]) for i in range(0, len(counts), 4)]


def with_quarter_turns(batch: CloudBatch) -> CloudBatch:
    """Return every cloud followed by its rotations by 90, 180 and 270 degrees about z.

    Cells rotate like their centers (y to -1 - y), so a rotated cloud has the same four copies in
    another order.
    """
    copies = []
    for cloud in batch.sites.split(list(batch.counts)):
        for _ in range(4):
            copies.append(cloud)
            x, y, z = cloud.unbind(1)
            cloud = torch.stack([-1 - y, x, z], dim=1)
    return CloudBatch(torch.cat(copies), tuple(n for n in batch.counts for _ in range(4)))
