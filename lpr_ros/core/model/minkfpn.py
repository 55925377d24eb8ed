"""MinkFPN: the sparse residual feature pyramid of MinkLoc3D and MinkLoc3Dv2.

Module names are those of the published code, so that its checkpoints load unchanged.
"""

import math
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from lpr_ros.core.sparse import CloudBatch, load_backend


class EfficientChannelAttention(nn.Module):
    """Gate every channel of a cloud by a 1-D convolution over its mean channels."""

    def __init__(self, ops: ModuleType, channels: int):
        super().__init__()
        self._ops = ops
        taps = int(abs((math.log2(channels) + 1) / 2))
        taps += 1 - taps % 2
        self.conv = nn.Conv1d(1, 1, taps, padding=(taps - 1) // 2, bias=False)

    def forward(self, x: Any) -> Any:
        """Return the gated features."""
        gates = self.conv(self._ops.cloud_mean(x)[:, None]).sigmoid()
        return self._ops.scale_clouds(x, gates[:, 0])


class ResidualBlock(nn.Module):
    """conv3 - BN - ReLU - conv3 - BN - (channel attention) - add skip - ReLU."""

    def __init__(self, ops: ModuleType, channels_in: int, channels_out: int, attention: bool):
        super().__init__()
        self._ops = ops
        self.conv1 = ops.Conv(channels_in, channels_out, 3)
        self.norm1 = ops.BatchNorm(channels_out)
        self.conv2 = ops.Conv(channels_out, channels_out, 3)
        self.norm2 = ops.BatchNorm(channels_out)
        self.eca = EfficientChannelAttention(ops, channels_out) if attention else nn.Identity()
        self.downsample = (
            nn.Identity()
            if channels_in == channels_out
            else nn.Sequential(ops.Conv(channels_in, channels_out, 1), ops.BatchNorm(channels_out))
        )

    def forward(self, x: Any) -> Any:
        """Return the block's output on the same cells."""
        y = self._ops.relu(self.norm1(self.conv1(x)))
        y = self.eca(self.norm2(self.conv2(y)))
        return self._ops.relu(self._ops.add(y, self.downsample(x)))


class MinkFPN(nn.Module):
    """Feature pyramid: halve the resolution per level, then upsample `num_top_down` times."""

    def __init__(
        self,
        planes: tuple[int, ...],
        layers: tuple[int, ...],
        num_top_down: int,
        conv0_kernel_size: int,
        feature_size: int,
        attention: bool,
        backend: str = 'auto',
    ):
        super().__init__()
        self._ops = ops = load_backend(backend)
        self.out_channels = feature_size
        inputs = (planes[0], *planes[:-1])  # strided convolutions keep the number of channels
        self.conv0 = ops.Conv(1, planes[0], conv0_kernel_size)
        self.bn0 = ops.BatchNorm(planes[0])
        self.convs = nn.ModuleList(ops.Conv(c, c, 2, stride=2) for c in inputs)
        self.bn = nn.ModuleList(ops.BatchNorm(c) for c in inputs)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(ResidualBlock(ops, c if i == 0 else p, p, attention) for i in range(depth))
            )
            for c, p, depth in zip(inputs, planes, layers, strict=True)
        )
        laterals = planes[::-1][: num_top_down + 1]
        self.conv1x1 = nn.ModuleList(ops.Conv(p, feature_size, 1) for p in laterals)
        self.tconvs = nn.ModuleList(
            ops.ConvTranspose(feature_size, feature_size) for _ in range(num_top_down)
        )
        self._initialize()

    def forward(self, batch: CloudBatch) -> tuple[Tensor, list[int]]:
        """Return (N, feature_size) features, cloud after cloud, and their number per cloud."""
        ops = self._ops
        x = ops.relu(self.bn0(self.conv0(ops.tensor(batch, self.conv0.kernel.dtype))))
        maps = []
        for conv, norm, block in zip(self.convs, self.bn, self.blocks, strict=True):
            x = block(ops.relu(norm(conv(x))))
            maps.append(x)
        x = self.conv1x1[0](x)
        for i, up in enumerate(self.tconvs, start=1):
            x = ops.add(up(x), self.conv1x1[i](maps[-1 - i]))
        features, counts = ops.cloud_features(x)
        return features, counts

    def _initialize(self) -> None:
        """Initialize convolutions as the published code does: normal, fan-out.

        For 1x1 kernels it uses the input width as the fan; transposed convolutions keep their
        default.
        """
        for module in self.modules():
            if isinstance(module, self._ops.Conv):
                shape = module.kernel.shape
                fan = shape[0] * shape[2] if len(shape) == 3 else shape[0]
                nn.init.normal_(module.kernel, std=math.sqrt(2.0 / fan))
