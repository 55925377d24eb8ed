"""Whitening: Algorithm 1 of the paper, its invariances and its three gradients."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lpr_ros.core.model.whitening import whiten

EPSILON = 1e-5  # of the paper
POWER_ITERATIONS = 19  # of the reference code
SHAPES = [(3, 8), (6, 6), (9, 4), (16, 16), (20, 2), (1, 5), (12, 7)]


def random_matrices(c: int, m: int, batch: int = 3, scale: float = 1.0) -> Tensor:
    """Return (B, C, M) matrices whose spectra are spread, so that rho lies inside (0, 1)."""
    strengths = torch.logspace(0.0, -1.5, c, dtype=torch.float64)[:, None]
    return torch.randn(batch, c, m, dtype=torch.float64) * strengths * scale


def covariance_of(x: Tensor) -> Tensor:
    centered = x - x.mean(dim=1, keepdim=True)
    return centered @ centered.T / x.shape[1]


def rblw(s: Tensor, m: int) -> Tensor:
    """Return the shrinkage weight of Algorithm 1, with the limit 1 for 0 / 0."""
    c = len(s)
    trace, trace_of_square = s.trace(), (s @ s).trace()
    bracket = trace_of_square - trace**2 / c
    if trace <= 0.0 or bracket <= 1e-14 * trace**2:
        return torch.ones_like(trace)
    rho = ((m - 2) / m * trace_of_square + trace**2) / ((m + 2) * bracket)
    return torch.minimum(rho, torch.ones_like(rho))


def regularized(x: Tensor, shrinkage: bool = True) -> Tensor:
    """Return S_R + eps I of one (C, M) matrix."""
    c, m = x.shape
    s = covariance_of(x)
    rho = rblw(s, m) if shrinkage else torch.zeros((), dtype=x.dtype)
    identity = torch.eye(c, dtype=x.dtype)
    return rho * s.trace() / c * identity + (1.0 - rho) * s + EPSILON * identity


def algorithm_1(x: Tensor, shrinkage: bool = True) -> Tensor:
    """Return Z of one (C, M) matrix, as the paper writes it."""
    values, vectors = torch.linalg.eigh(regularized(x, shrinkage))
    root = vectors @ values.pow(-0.5).diag() @ vectors.T
    return root @ (x - x.mean(dim=1, keepdim=True))


def rho_of(x: Tensor) -> float:
    return float(rblw(covariance_of(x), x.shape[1]))


@pytest.mark.parametrize(('c', 'm'), SHAPES)
@pytest.mark.parametrize('shrinkage', [True, False])
@pytest.mark.parametrize('scale', [1e-3, 1.0, 1e3])
def test_whitening_is_algorithm_1(c, m, shrinkage, scale):
    x = random_matrices(c, m, scale=scale)
    expected = torch.stack([algorithm_1(one, shrinkage) for one in x])
    for gradient in ('svdpi', 'exact'):
        ours = whiten(x, gradient=gradient, shrinkage=shrinkage)
        torch.testing.assert_close(ours, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(('c', 'm'), SHAPES)
def test_common_shift_of_the_columns_does_not_matter(c, m):
    x = random_matrices(c, m)
    shift = torch.randn(len(x), c, 1, dtype=torch.float64)
    torch.testing.assert_close(whiten(x + shift), whiten(x), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(('c', 'm'), SHAPES)
def test_common_scale_does_not_matter_far_above_epsilon(c, m):
    x = random_matrices(c, m, scale=1e4)
    torch.testing.assert_close(whiten(x * 7.0), whiten(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(('c', 'm'), SHAPES)
def test_whitening_commutes_with_rotations_and_column_permutations(c, m):
    x = random_matrices(c, m)
    rotation, _ = torch.linalg.qr(torch.randn(c, c, dtype=torch.float64))
    order = torch.randperm(m)
    torch.testing.assert_close(
        whiten(rotation @ x[:, :, order]), rotation @ whiten(x)[:, :, order], rtol=1e-7, atol=1e-9
    )


@pytest.mark.parametrize(('c', 'm'), SHAPES)
@pytest.mark.parametrize('scale', [1e-3, 1.0, 1e3])
def test_squared_norm_is_at_most_m_times_c(c, m, scale):
    x = random_matrices(c, m, batch=20, scale=scale)
    assert (whiten(x).square().sum((1, 2)) <= m * c * (1 + 1e-12)).all()


def test_norm_reaches_its_bound_for_isotropic_covariance():
    """Columns +-e_i: S is a multiple of I, the bracket is 0 and the guard takes rho = 1."""
    x = torch.cat([torch.eye(4), -torch.eye(4)], dim=1)[None].double() * 1e3
    z = whiten(x)
    assert rho_of(x[0]) == 1.0
    torch.testing.assert_close(
        z.square().sum(), torch.tensor(4.0 * 8.0).double(), rtol=1e-9, atol=0.0
    )
    torch.testing.assert_close(z, x / x.square().sum(2, keepdim=True).div(8.0).sqrt())


@pytest.mark.parametrize(
    ('c', 'm', 'expected'), [(16, 16, 0.111), (32, 32, 0.0588), (128, 64, 0.0301)]
)
def test_rank_one_gives_the_smallest_shrinkage(c, m, expected):
    direction, columns = torch.randn(c, 1).double(), torch.randn(1, m).double()
    x = direction @ columns
    lowest = 2 * (m - 1) / m / ((m + 2) * (c - 1) / c)
    assert lowest == pytest.approx(expected, abs=5e-4)
    # Shrunk spectrum along the one direction: rho Tr / C + (1 - rho) Tr, read back from Z.
    z = whiten(x[None] * 1e3)[0]
    trace = covariance_of(x * 1e3).trace()
    along = ((x - x.mean(1, keepdim=True)) * 1e3).norm() / z.norm()
    rho = (along**2 / trace - 1.0) / (1.0 / c - 1.0)
    assert float(rho) == pytest.approx(lowest, rel=1e-6)


def with_participation(u: float, c: int, m: int) -> Tensor:
    """Return a matrix with Tr(S^2) / Tr(S)^2 = u: one strong direction, the others equal."""
    # Eigenvalues (t, 1, .., 1): (t^2 + n) / (t + n)^2 = u, n = c - 1; the larger root.
    n = c - 1
    a, b, d = 1.0 - u, -2.0 * u * n, n - u * n * n
    t = (-b + math.sqrt(b * b - 4 * a * d)) / (2 * a)
    basis, _ = torch.linalg.qr(torch.cat([torch.ones(m, 1), torch.randn(m, c)], 1).double())
    strengths = torch.tensor([math.sqrt(t), *[1.0] * n], dtype=torch.float64)
    return strengths[:, None] * basis[:, 1:].T * math.sqrt(m) * 1e3


@pytest.mark.parametrize(('c', 'm'), [(6, 12), (15, 16), (4, 40)])
def test_whitening_is_isotropic_exactly_up_to_the_critical_participation(c, m):
    critical = (1 + (m + 2) / c) / (m + 2 - (m - 2) / m)
    below = with_participation(0.98 * critical, c, m)
    above = with_participation(1.02 * critical, c, m)
    assert rho_of(below) == 1.0
    assert rho_of(above) < 1.0
    for x, is_isotropic in ((below, True), (above, False)):
        z = whiten(x[None])[0]
        centered = x - x.mean(dim=1, keepdim=True)
        scaled = centered / (covariance_of(x).trace() / c + EPSILON).sqrt()
        assert torch.allclose(z, scaled, rtol=1e-9, atol=1e-12) == is_isotropic


def test_well_conditioned_covariance_without_shrinkage_becomes_the_identity():
    x = torch.randn(2, 5, 400, dtype=torch.float64) * 30.0
    for z in whiten(x, shrinkage=False):
        torch.testing.assert_close(covariance_of(z), torch.eye(5).double(), rtol=1e-6, atol=1e-6)
        assert z.mean(dim=1).abs().max() < 1e-12


@pytest.mark.parametrize('gradient', ['svdpi', 'exact'])
@pytest.mark.parametrize(('c', 'm'), [(4, 1), (4, 6), (6, 4), (1, 1)])
def test_equal_columns_give_zero_and_a_finite_gradient(gradient, c, m):
    x = torch.randn(1, c, 1).expand(2, c, m).clone().double().requires_grad_()
    z = whiten(x, gradient=gradient)
    assert z.abs().max() < 1e-12
    upstream = torch.randn_like(z)
    (arrived,) = torch.autograd.grad(z, x, upstream)
    expected = (upstream - upstream.mean(dim=2, keepdim=True)) / math.sqrt(EPSILON)
    torch.testing.assert_close(arrived, expected)


@pytest.mark.parametrize(('c', 'm'), [(5, 2), (1, 7)])
@pytest.mark.parametrize('gradient', ['svdpi', 'exact'])
def test_two_columns_and_one_channel_have_values_and_gradients(c, m, gradient):
    x = random_matrices(c, m).requires_grad_()
    z = whiten(x, gradient=gradient)
    torch.testing.assert_close(z, torch.stack([algorithm_1(one) for one in x]))
    z.pow(3).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(('c', 'm'), [(3, 7), (5, 5), (7, 3), (6, 2), (1, 4)])
@pytest.mark.parametrize('shrinkage', [True, False])
def test_exact_gradient_agrees_with_finite_differences(c, m, shrinkage):
    x = random_matrices(c, m, batch=2).requires_grad_()
    if shrinkage and c > 1:
        assert any(rho_of(one.detach()) < 1.0 for one in x)

    def exact(y: Tensor) -> Tensor:
        return whiten(y, gradient='exact', shrinkage=shrinkage)

    assert torch.autograd.gradcheck(exact, (x,), eps=1e-6, atol=1e-5, rtol=1e-5)


def test_exact_gradient_agrees_with_finite_differences_under_full_shrinkage():
    x = with_participation(0.9 * (1 + 14 / 6) / (14 - 10 / 12), 6, 12)[None] / 1e3
    assert rho_of(x[0]) == 1.0

    def exact(y: Tensor) -> Tensor:
        return whiten(y, gradient='exact')

    assert torch.autograd.gradcheck(exact, (x.requires_grad_(),), eps=1e-6, atol=1e-5)


class PowerIterationVector(torch.autograd.Function):
    """Identity in the forward pass; the gradient is that of power iterations."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, vector: Tensor) -> Tensor:
        ctx.save_for_backward(matrix, vector)
        return vector.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        matrix, v = ctx.saved_tensors
        norm = (matrix @ v).norm().clamp(min=1e-5)
        term = (gradient - v * (v @ gradient)) / norm
        total = term.clone()
        for _ in range(POWER_ITERATIONS):
            term = matrix @ term / norm
            total = total + term
        return torch.outer(total, v), None


def deflation_chain(x: Tensor, shrinkage: bool) -> Tensor:
    """Return Z by the loop of the reference code: Rayleigh quotient, deflation, next."""
    matrix = regularized(x, shrinkage)
    with torch.no_grad():
        vectors = torch.linalg.eigh(matrix)[1].flip(1)  # descending
    root = torch.zeros_like(matrix)
    for vector in vectors.unbind(1):
        v = PowerIterationVector.apply(matrix, vector)
        value = v @ matrix @ v / (v @ v)
        root = root + value.pow(-0.5) * torch.outer(v, v)
        matrix = matrix - matrix @ torch.outer(v, v)
    return root @ (x - x.mean(dim=1, keepdim=True))


@pytest.mark.parametrize(('c', 'm'), [(4, 9), (6, 6), (8, 5), (10, 3), (16, 16)])
@pytest.mark.parametrize('shrinkage', [True, False])
def test_svdpi_gradient_is_that_of_the_deflation_chain(c, m, shrinkage):
    x = random_matrices(c, m, batch=2).requires_grad_()
    upstream = torch.randn(2, c, m, dtype=torch.float64)
    (ours,) = torch.autograd.grad(whiten(x, shrinkage=shrinkage), x, upstream)
    chain = torch.stack([deflation_chain(one, shrinkage) for one in x])
    (expected,) = torch.autograd.grad(chain, x, upstream)
    scale = expected.abs().max()
    torch.testing.assert_close(ours / scale, expected / scale, rtol=1e-6, atol=1e-7)


def test_svdpi_gradient_tends_to_the_exact_one_for_separated_eigenvalues():
    basis, _ = torch.linalg.qr(torch.cat([torch.ones(9, 1), torch.randn(9, 4)], 1).double())
    x = (torch.tensor([[1.0], [4.0], [16.0], [64.0]]).double() * basis[:, 1:].T)[None]
    x.requires_grad_()
    upstream = torch.randn(1, 4, 9, dtype=torch.float64)
    gradients = [
        torch.autograd.grad(whiten(x, gradient=mode, shrinkage=False), x, upstream)[0]
        for mode in ('svdpi', 'exact')
    ]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-9)


def test_eigh_drops_small_eigenpairs():
    """One direction above the limit, one below: the second is removed, not amplified."""
    basis, _ = torch.linalg.qr(torch.cat([torch.ones(8, 1), torch.randn(8, 2)], 1).double())
    for small, is_kept in ((0.5e-5, False), (2e-5, True)):
        strengths = torch.tensor([[3.0], [small]]).double().sqrt()
        x = strengths * basis[:, 1:].T * math.sqrt(8)
        z = whiten(x[None], gradient='eigh', shrinkage=False)[0]
        norms = z.norm(dim=1) / math.sqrt(8)
        torch.testing.assert_close(norms, torch.tensor([1.0, float(is_kept)]).double())


def test_eigh_gradient_is_exact_for_separated_eigenvalues():
    x = random_matrices(4, 9, batch=1).requires_grad_()

    def naive(y: Tensor) -> Tensor:
        return whiten(y, gradient='eigh')

    assert torch.autograd.gradcheck(naive, (x,), eps=1e-6, atol=1e-5)


def test_only_eigh_diverges_on_repeated_eigenvalues():
    x = (torch.cat([torch.eye(4), -torch.eye(4)], dim=1)[None].double()).requires_grad_()
    upstream = torch.randn(1, 4, 8, dtype=torch.float64)
    for mode, is_finite in (('eigh', False), ('svdpi', True), ('exact', True)):
        (arrived,) = torch.autograd.grad(whiten(x, gradient=mode, shrinkage=False), x, upstream)
        assert bool(arrived.isfinite().all()) == is_finite, mode


def test_eigh_diverges_with_more_channels_than_clusters():
    """S_R of a 128 x 64 matrix has a 65-fold eigenvalue, so the ablation must show NaN there."""
    x = random_matrices(128, 64, batch=1).requires_grad_()
    for mode, is_finite in (('eigh', False), ('svdpi', True), ('exact', True)):
        (arrived,) = torch.autograd.grad(whiten(x, gradient=mode).pow(3).sum(), x)
        assert bool(arrived.isfinite().all()) == is_finite, mode


@pytest.mark.parametrize('mode', ['svdpi', 'exact', 'eigh'])
def test_float32_in_is_float32_out_and_computed_in_float64(mode):
    x = random_matrices(16, 16).float()
    z = whiten(x, gradient=mode)
    assert z.dtype == torch.float32
    assert torch.equal(z, whiten(x.double(), gradient=mode).float())
    whiten(x.requires_grad_(), gradient=mode).sum().backward()
    assert x.grad.dtype == torch.float32


def extreme_matrices(c: int, m: int) -> dict[str, Tensor]:
    """Return matrices of every rank and kind that a cloud can have, with entries near 1."""
    spike = torch.randn(2, c, m)
    spike[:, 0, 0] = 1e4
    return {
        'full rank': torch.randn(2, c, m),
        'equal columns, as of one voxel': torch.randn(2, c, 1).expand(2, c, m).clone(),
        'equal rows': torch.randn(2, 1, m).expand(2, c, m).clone(),
        'rank one': torch.randn(2, c, 1) @ torch.randn(2, 1, m),
        'equal eigenvalues': torch.eye(max(c, m))[:c, :m].repeat(2, 1, 1),
        'one large number': spike,
        'zero': torch.zeros(2, c, m),
    }


@pytest.mark.parametrize('mode', ['svdpi', 'exact', 'eigh'])
@pytest.mark.parametrize('shrinkage', [True, False])
@pytest.mark.parametrize(('c', 'm'), [(16, 16), (4, 8), (8, 4), (5, 1), (1, 5), (1, 1)])
def test_extreme_inputs_stay_finite(mode, shrinkage, c, m):
    """The gradient of eigh is not tested: it diverges at equal eigenvalues."""
    scales = {
        torch.float16: (1e-7, 1.0, 6.0),
        torch.float32: (1e-44, 1e-30, 1e30, 1e33),
        torch.float64: (1e-300, 1e145),
    }
    for name, matrices in extreme_matrices(c, m).items():
        for dtype, factors in scales.items():
            for factor in factors:
                x = (matrices.double() * factor).to(dtype).requires_grad_()
                z = whiten(x, gradient=mode, shrinkage=shrinkage)
                assert z.dtype == dtype
                assert z.isfinite().all(), (name, dtype, factor)
                if mode != 'eigh':
                    (arrived,) = torch.autograd.grad(z, x, torch.ones_like(z))
                    assert arrived.isfinite().all(), (name, dtype, factor)


@pytest.mark.parametrize('mode', ['svdpi', 'exact'])
@pytest.mark.parametrize('shrinkage', [True, False])
@pytest.mark.parametrize(('c', 'm'), [(6, 9), (9, 6)])
def test_values_and_gradients_are_scale_free_far_above_epsilon(mode, shrinkage, c, m):
    """Z(s x) = Z(x), so its gradient falls as 1 / s; at 2^60 epsilon is below rounding."""
    base, upstream = random_matrices(c, m), torch.randn(3, c, m, dtype=torch.float64)
    found = []
    for factor in (2.0**60, 2.0**200):
        x = (base * factor).requires_grad_()
        z = whiten(x, gradient=mode, shrinkage=shrinkage)
        found.append((z.detach(), torch.autograd.grad(z, x, upstream)[0] * factor))
    for first, second in zip(*found, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        found[0][0], whiten(base * 1e5, shrinkage=shrinkage), rtol=1e-4, atol=1e-4
    )


def test_half_precision_features_are_whitened_as_their_values_in_double():
    x = random_matrices(16, 16).half()
    assert torch.equal(whiten(x), whiten(x.double()).half())


def test_unknown_gradient_is_refused():
    with pytest.raises(ValueError, match='taylor'):
        whiten(torch.zeros(1, 2, 2), gradient='taylor')
