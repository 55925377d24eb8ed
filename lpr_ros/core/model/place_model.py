"""Backbone and pooling as one model: a batch of clouds in, descriptors out."""

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
        self.backbone = _build_backbone(config.backbone, backend)
        self.pooling = POOLINGS[config.pooling.kind](self.backbone.out_channels, config.pooling)
        self.out_dim = self.pooling.out_dim

    def forward(self, batch: CloudBatch) -> Tensor:
        """Return one descriptor per cloud."""
        features, counts = self.backbone(batch)
        descriptors: Tensor = self.pooling(features.float(), counts)
        return descriptors


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
