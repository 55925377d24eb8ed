"""Poolings: independent of other clouds and of point order, equal to simple loops."""

import numpy as np
import pytest
import torch
from torch import Tensor

from lpr_ros.core.model.config import PoolingConfig
from lpr_ros.core.model.pooling import POOLINGS, pointwise_mlp
from lpr_ros.core.model.whitening import whiten

WIDTH = 24
COUNTS = [40, 1, 7, 130]
KINDS = pytest.mark.parametrize('kind', sorted(POOLINGS))
OUT_DIMS = {'whitened': 30, 'gem': WIDTH, 'netvlad': 10, 'o2p': 36}


def build(kind: str, **options: object) -> torch.nn.Module:
    config = PoolingConfig(
        kind=kind, **{'channels': 6, 'clusters': 5, 'hidden': 12, 'output_dim': 10, **options}
    )
    pooling = POOLINGS[kind](WIDTH, config)
    for module in pooling.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            torch.nn.init.uniform_(module.running_mean, -0.5, 0.5)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
    return pooling.eval()


@pytest.fixture
def features() -> Tensor:
    return torch.randn(sum(COUNTS), WIDTH) * 2.0 + 0.3


@KINDS
def test_descriptor_has_the_declared_shape(kind, features):
    pooling = build(kind)
    descriptors = pooling(features, COUNTS)
    assert descriptors.shape == (len(COUNTS), pooling.out_dim) == (len(COUNTS), OUT_DIMS[kind])
    assert descriptors.dtype == torch.float32
    assert pooling(features[:1], [1]).shape == (1, OUT_DIMS[kind])


@KINDS
def test_descriptor_is_independent_of_other_clouds(kind, features):
    pooling = build(kind)
    together = pooling(features, COUNTS)
    alone = torch.cat([pooling(part, [len(part)]) for part in features.split(COUNTS)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)


@KINDS
def test_order_of_points_does_not_matter(kind, features):
    pooling = build(kind)
    shuffled = torch.cat([part[torch.randperm(len(part))] for part in features.split(COUNTS)])
    torch.testing.assert_close(
        pooling(shuffled, COUNTS), pooling(features, COUNTS), rtol=1e-4, atol=1e-5
    )


@KINDS
def test_duplicating_every_point_changes_nothing(kind, features):
    """All poolings are means over the cloud; padding or sums would fail."""
    pooling = build(kind)
    twice = torch.cat([part.repeat(2, 1) for part in features.split(COUNTS)])
    torch.testing.assert_close(
        pooling(twice, [2 * count for count in COUNTS]),
        pooling(features, COUNTS),
        rtol=1e-4,
        atol=1e-5,
    )


@KINDS
def test_gradients_are_finite_for_clouds_of_any_size(kind, features):
    pooling = build(kind).train()
    features.requires_grad_()
    pooling(features, COUNTS).pow(3).sum().backward()
    assert features.grad.isfinite().all()
    assert features.grad.abs().max() > 0.0
    for name, parameter in pooling.named_parameters():
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize(
    ('hidden', 'channels', 'clusters', 'expected'),
    [
        (256, 16, 16, 140_832),
        (256, 32, 32, 149_056),
        (256, 128, 64, 181_952),
        (512, 16, 16, 281_632),
        (512, 32, 32, 298_048),
        (512, 128, 64, 363_712),
    ],
)
def test_whitened_head_has_the_published_number_of_parameters(
    hidden, channels, clusters, expected
):
    config = PoolingConfig(hidden=hidden, channels=channels, clusters=clusters)
    head = POOLINGS['whitened'](256, config)
    assert sum(p.numel() for p in head.parameters()) == expected
    assert head.out_dim == channels * clusters


def test_clusters_are_convex_combinations_of_the_projected_points(features):
    """Softmax runs over the points of one cloud, so the weights of each cluster sum to one."""
    head = build('whitened')
    second_order = head.second_order(features, COUNTS)
    start = 0
    for index, count in enumerate(COUNTS):
        part = features[start : start + count]
        start += count
        with torch.no_grad():
            projected, scores = head.project(part), head.score(part).double()
        weights = (scores - scores.max(dim=0).values).exp()
        weights /= weights.sum(dim=0)
        expected = sum(p[:, None].double() * w for p, w in zip(projected, weights, strict=True))
        torch.testing.assert_close(second_order[index].double(), expected, rtol=1e-4, atol=1e-5)
    torch.nn.init.zeros_(head.project[3].weight)
    torch.nn.init.constant_(head.project[3].bias, 2.5)
    torch.testing.assert_close(
        head.second_order(features, COUNTS), torch.full((len(COUNTS), 6, 5), 2.5)
    )


def test_large_scores_do_not_overflow(features):
    head = build('whitened')
    with torch.no_grad():
        head.score[3].weight.mul_(1e6)
    assert head(features, COUNTS).isfinite().all()


@pytest.mark.parametrize('gradient', ['svdpi', 'exact'])
@pytest.mark.parametrize('shrinkage', [True, False])
@pytest.mark.parametrize('training', [True, False])
def test_whitened_head_stays_finite_under_extreme_features(gradient, shrinkage, training):
    """One voxel, equal voxels, all zeros, huge and tiny values, half precision."""
    clouds = {
        'one voxel each': (torch.randn(2, WIDTH), [1, 1]),
        'equal voxels': (torch.randn(1, WIDTH).expand(9, WIDTH).clone(), [5, 4]),
        'zero': (torch.zeros(9, WIDTH), [5, 4]),
        'usual': (torch.randn(9, WIDTH), [5, 4]),
        'half precision': (torch.randn(9, WIDTH).half().float(), [5, 4]),
    }
    for name, (cloud, counts) in clouds.items():
        for scale in (1e-44, 1e-30, 1.0, 1e18, 1e30):
            head = build('whitened', gradient=gradient, shrinkage=shrinkage).train(training)
            features = (cloud * scale).requires_grad_()
            descriptors = head(features, counts)
            assert descriptors.isfinite().all(), (name, scale)
            descriptors.sum().backward()
            assert features.grad.isfinite().all(), (name, scale)
            for parameter in head.parameters():
                assert parameter.grad.isfinite().all(), (name, scale)


@pytest.mark.parametrize(('exponent', 'sigma'), [(0.5, 5**0.5), (1.0, 5.0)])
def test_whitened_descriptor_is_row_major_z_over_sigma(exponent, sigma, features):
    head = build('whitened', sigma_exponent=exponent)
    z = whiten(head.second_order(features, COUNTS))
    expected = torch.stack([z[:, c, m] for c in range(6) for m in range(5)], dim=1) / sigma
    torch.testing.assert_close(head(features, COUNTS), expected)


def test_whitened_head_is_two_mlps_of_linear_norm_gelu_linear():
    mlp = pointwise_mlp(8, 4, 2).eval()
    x = torch.randn(5, 8)
    hidden = (x @ mlp[0].weight.T + mlp[0].bias) / (1 + 1e-5) ** 0.5
    gelu = hidden * 0.5 * (1.0 + torch.erf(hidden / 2**0.5))
    torch.testing.assert_close(mlp(x), gelu @ mlp[3].weight.T + mlp[3].bias)


def test_gem_equals_a_slow_loop(features):
    gem = build('gem')
    with torch.no_grad():
        gem.p.fill_(2.6)
    ours = gem(features, COUNTS).detach().numpy()
    for descriptor, part in zip(ours, features.split(COUNTS), strict=True):
        clamped = np.maximum(part.double().numpy(), 1e-6)
        expected = [np.mean(channel**2.6) ** (1 / 2.6) for channel in clamped.T]
        np.testing.assert_allclose(descriptor, expected, rtol=1e-4)


def test_netvlad_equals_a_slow_loop(features):
    vlad = build('netvlad')
    ours = vlad(features, COUNTS)
    linear, norm, _ = vlad.assign
    gate_linear, gate_norm, _ = vlad.gate
    for descriptor, part in zip(ours, features.split(COUNTS), strict=True):
        residuals = torch.zeros(5, WIDTH)
        for point in part:
            score = (linear.weight @ point - norm.running_mean) / (norm.running_var + 1e-5).sqrt()
            weight = score.exp() / score.exp().sum()
            for k in range(5):
                residuals[k] += weight[k] * (point - vlad.centers[k])
        residuals = residuals / residuals.norm(dim=1, keepdim=True)
        flat = residuals.flatten() / residuals.norm()
        out = vlad.reduce.weight @ flat
        out = (out - vlad.norm.running_mean) / (vlad.norm.running_var + 1e-5).sqrt()
        gate = gate_linear.weight @ out
        gate = (gate - gate_norm.running_mean) / (gate_norm.running_var + 1e-5).sqrt()
        gated = out * gate.sigmoid()
        torch.testing.assert_close(descriptor, gated / gated.norm(), rtol=1e-3, atol=1e-5)


def test_o2p_squared_is_the_second_moment(features):
    head = build('o2p')
    for descriptor, part in zip(head(features, COUNTS), features.split(COUNTS), strict=True):
        projected = head.project(part).detach().double()
        moment = sum(torch.outer(point, point) for point in projected) / len(part)
        root = descriptor.view(6, 6).double()
        squared = root @ root  # of unit Frobenius norm before squaring: compare up to scale
        torch.testing.assert_close(
            squared / squared.trace(), moment / moment.trace(), rtol=1e-4, atol=1e-5
        )
        assert float(descriptor.detach().norm()) == pytest.approx(1.0, abs=1e-5)
