"""Backbone and pooling as one model: a batch of clouds in, descriptors out."""

import torch
from torch import Tensor, nn

from lpr_ros.core.model.config import BackboneConfig, ModelConfig
from lpr_ros.core.model.minkfpn import MinkFPN
from lpr_ros.core.model.pointnet import PointNet
from lpr_ros.core.model.pooling import POOLINGS
from lpr_ros.core.sparse import CloudBatch


class PlaceModel(nn.Module):
    """Maps B clouds to (B, out_dim) descriptors, compared by Euclidean distance."""

    def __init__(self, config: ModelConfig, backend: str = 'auto'):
        super().__init__()
        self.config = config
        self.backend = backend
        self.backbone = _build_backbone(config.backbone, backend)
        self.pooling = POOLINGS[config.pooling.kind](self.backbone.out_channels, config.pooling)
        self.out_dim = self.pooling.out_dim

    def forward(self, batch: CloudBatch) -> Tensor:
        """Return one descriptor per cloud."""
        features, counts = self.features(batch)
        # Mixed precision ends here: descriptors are compared by distances of a few percent.
        with torch.autocast(features.device.type, enabled=False):
            descriptors: Tensor = self.pooling(features.float(), counts)
        return descriptors

    def features(self, batch: CloudBatch) -> tuple[Tensor, list[int]]:
        """Return the features (sum N, D) that are pooled, and how many each cloud has."""
        if not self.config.backbone.quarter_turns:
            features, counts = self.backbone(batch)
            return features, counts
        features, counts = self.backbone(with_quarter_turns(batch))
        return features, [sum(counts[i : i + 4]) for i in range(0, len(counts), 4)]


def with_quarter_turns(batch: CloudBatch) -> CloudBatch:
    """Return every cloud followed by its turns by 90, 180 and 270 degrees about z.

    Turning points about the origin takes cell y to -1 - y, so the four copies of a cloud are, in
    another order, the four copies of the turned cloud.
    """
    copies = []
    for cloud in batch.sites.split(list(batch.counts)):
        for _ in range(4):
            copies.append(cloud)
            x, y, z = cloud.unbind(1)
            cloud = torch.stack([-1 - y, x, z], dim=1)
    return CloudBatch(torch.cat(copies), tuple(n for n in batch.counts for _ in range(4)))


def _build_backbone(config: BackboneConfig, backend: str) -> MinkFPN | PointNet:
    if config.kind == 'pointnet':
        return PointNet()
    return MinkFPN(
        config.planes,
        config.layers,
        config.num_top_down,
        config.conv0_kernel_size,
        config.feature_size,
        config.attention,
        backend,
    )
