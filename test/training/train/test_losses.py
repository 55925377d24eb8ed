"""Losses against straightforward loops, at extremes, and their gradients."""

import numpy as np
import pytest
import torch

from lpr_training.train.losses import (
    BatchHardTriplet,
    LazyQuadruplet,
    LossConfig,
    TruncatedSmoothAP,
    build_loss,
)
from lpr_training.train.pair_distances import distances, squared_distances

LOSSES = [TruncatedSmoothAP(0.1, 3), BatchHardTriplet(0.5), LazyQuadruplet(0.5, 0.2)]


def make_batch(seed=0, size=14, dim=5):
    """Places on a line: positives within 1.5, negatives beyond 3."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, 8, size)
    apart = np.abs(places[:, None] - places[None, :])
    positives = torch.from_numpy((apart < 1.5) & ~np.eye(size, dtype=bool))
    negatives = torch.from_numpy(apart > 3)
    return torch.from_numpy(rng.normal(size=(size, dim))), positives, negatives


def slow_smooth_ap(embeddings, positives, negatives, tau, k):
    e = embeddings.numpy()
    precisions = []
    for q in range(len(e)):
        s = [-np.linalg.norm(e[q] - e[j]) for j in range(len(e))]
        P = [j for j in range(len(e)) if positives[q, j]]
        N = [j for j in range(len(e)) if negatives[q, j]]
        if not P:
            continue
        ratios = []
        for p in sorted(P, key=lambda j: -s[j])[:k]:
            sig = [1 / (1 + np.exp(np.clip(-(x - s[p]) / tau, -50, 50))) for x in s]
            r_p = 1 + sum(sig[z] for z in P if z != p)
            ratios.append(r_p / (r_p + sum(sig[z] for z in N)))
        precisions.append(np.mean(ratios))
    return 1 - np.mean(precisions)


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize(('tau', 'k'), [(0.01, 4), (0.3, 1), (0.1, 100)])
def test_smooth_ap_equals_its_formula(seed, tau, k):
    batch = make_batch(seed)
    loss, statistics = TruncatedSmoothAP(tau, k)(*batch)
    assert float(loss) == pytest.approx(slow_smooth_ap(*batch, tau, k), abs=1e-9)
    assert statistics['ap'] == pytest.approx(1 - float(loss))


@pytest.mark.parametrize('swap', [True, False])
@pytest.mark.parametrize('seed', range(4))
def test_triplet_equals_its_formula(seed, swap):
    embeddings, positives, negatives = make_batch(seed)
    d = torch.cdist(embeddings, embeddings).numpy()
    losses = []
    for a in range(len(d)):
        P, N = np.flatnonzero(positives[a]), np.flatnonzero(negatives[a])
        if len(P) and len(N):
            p, n = P[d[a, P].argmax()], N[d[a, N].argmin()]
            d_an = min(d[a, n], d[p, n]) if swap else d[a, n]
            losses.append(max(d[a, p] - d_an + 0.2, 0))
    loss, statistics = BatchHardTriplet(0.2, swap)(embeddings, positives, negatives)
    active = [x for x in losses if x > 0]
    assert float(loss) == pytest.approx(np.mean(active))
    assert statistics['triplets'] == len(losses)
    assert statistics['active'] == pytest.approx(len(active) / len(losses))


@pytest.mark.parametrize('seed', range(4))
def test_quadruplet_equals_its_formula(seed):
    embeddings, positives, negatives = make_batch(seed)
    d = torch.cdist(embeddings, embeddings).square().numpy()
    losses = []
    for a in range(len(d)):
        P, N = np.flatnonzero(positives[a]), np.flatnonzero(negatives[a])
        if not len(P) or not len(N):
            continue
        best = d[a, P].min()
        other = next(j % len(d) for j in range(a + 1, a + len(d)) if negatives[a, j % len(d)])
        first = max(max(0.5 + best - d[a, n], 0) for n in N)
        second = [max(0.2 + best - d[other, n], 0) for n in N if negatives[other, n]]
        losses.append(first + max(second, default=0))
    loss, _ = LazyQuadruplet(0.5, 0.2)(embeddings, positives, negatives)
    assert float(loss) == pytest.approx(np.mean(losses))


@pytest.mark.parametrize('loss', LOSSES, ids=lambda x: type(x).__name__)
def test_gradient_matches_finite_differences(loss):
    embeddings, positives, negatives = make_batch(1, size=8, dim=3)
    embeddings.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda e: loss(e, positives, negatives)[0], (embeddings,))


@pytest.mark.parametrize('loss', LOSSES, ids=lambda x: type(x).__name__)
def test_loss_of_a_perfect_ranking_is_zero(loss):
    place = torch.arange(12) // 3
    same = place[:, None] == place[None, :]
    embeddings = 10.0 * torch.nn.functional.one_hot(place).float()
    value, statistics = loss(embeddings, same & ~torch.eye(12, dtype=torch.bool), ~same)
    assert float(value) == pytest.approx(0, abs=1e-6)
    assert statistics['recall_at_1'] == 1.0
    assert statistics['best_positive_rank'] == 0.0


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('loss', LOSSES, ids=lambda x: type(x).__name__)
def test_duplicate_embeddings_have_a_finite_gradient(loss, dtype):
    embeddings, positives, negatives = make_batch(2)
    embeddings = embeddings.to(dtype)
    embeddings[3:9] = embeddings[3]
    embeddings.requires_grad_(True)
    value, _ = loss(embeddings, positives, negatives)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(embeddings.grad).all()


@pytest.mark.parametrize('loss', LOSSES, ids=lambda x: type(x).__name__)
def test_loss_without_positives_is_zero_and_differentiable(loss):
    embeddings = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    nothing = torch.zeros(4, 4, dtype=torch.bool)
    value, statistics = loss(embeddings, nothing, ~nothing)
    value.backward()
    assert value.item() == 0.0
    assert embeddings.grad.abs().sum() == 0
    assert statistics['queries'] == 0


def test_recall_statistic_requires_the_positive_first():
    """One negative nearer than the positive is a miss; MinkLoc3Dv2 counts it as a hit."""
    embeddings = torch.tensor([[0.0], [2.0], [1.0], [9.0]])
    positives = torch.zeros(4, 4, dtype=torch.bool)
    positives[0, 1] = True
    negatives = torch.zeros(4, 4, dtype=torch.bool)
    negatives[0, 2:] = True
    _, statistics = TruncatedSmoothAP()(embeddings, positives, negatives)
    assert statistics['recall_at_1'] == 0.0
    assert statistics['best_positive_rank'] == 1.0


def test_distances_are_exact_far_from_the_origin():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(30, 6, generator=generator) + 1000.0
    points[7] = points[3]
    exact = (points.double()[:, None] - points.double()[None, :]).norm(dim=2)
    torch.testing.assert_close(distances(points), exact.float(), rtol=1e-6, atol=0)
    assert distances(points)[3, 7] == 0
    assert (squared_distances(points).diagonal() == 0).all()


def test_build_loss_uses_the_configuration():
    config = LossConfig(name='batch_hard_triplet', margin=0.7, swap=False)
    loss = build_loss(config)
    assert isinstance(loss, BatchHardTriplet)
    assert (loss.margin, loss.swap) == (0.7, False)
    with pytest.raises(ValueError, match='not one of'):
        LossConfig(name='softmax')
