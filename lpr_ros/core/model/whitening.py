"""Instance whitening (ZCA) of a C x M matrix with RBLW shrinkage: Algorithm 1 of the paper.

The regularized covariance is A = a I + b X X', with X the centered matrix and a, b two scalars per
cloud, so Z = A^(-1/2) X = X (a I + b X'X)^(-1/2): the smaller of C and M is decomposed. Everything
is float64.

Z and, for `svdpi` and `exact`, its gradient are finite for every finite float16 or float32 input
and for float64 up to 1e150: one column, equal columns (Z = 0), all zeros, any rank, any scale. Two
measures ensure it, neither of which changes a bit at the scales of a trained network: matrices
beyond 1 are divided by a power of two s, with epsilon / s^2 instead of epsilon; and eigenvalues
are at least the rounding error of the largest. `eigh` has a finite Z too, but its gradient is not
finite for equal eigenvalues.
"""

from typing import Any

import torch
from torch import Tensor

GRADIENTS = ('svdpi', 'exact', 'eigh')
EPSILON = 1e-5
POWER_ITERATIONS = 19  # of the reference code of SVD with power-iteration gradients
FLAT_SPECTRUM = 1e-14  # relative variance of eigenvalues that counts as isotropic


def whiten(x: Tensor, *, gradient: str = 'svdpi', shrinkage: bool = True) -> Tensor:
    """ZCA-whiten the columns of each (B, C, M) matrix, in training as in evaluation.

    `gradient` selects how the matrix root is differentiated: `svdpi` (the paper), `exact`, or
    `eigh` (autograd through the eigenvectors without small eigenvalues; diverges, for the
    ablation).
    """
    if gradient not in GRADIENTS:
        raise ValueError(f'gradient {gradient!r} is not one of {list(GRADIENTS)}')
    centered = _centered(x)
    scale = _scale(centered)
    centered = centered / scale[:, None, None]
    a, b = _regularized(centered, shrinkage)
    epsilon = EPSILON / scale.square()
    if gradient == 'eigh':
        whitened = _whiten_by_autograd(centered, a, b, epsilon)
    else:
        iterations = POWER_ITERATIONS if gradient == 'svdpi' else 0
        whitened = _InverseRoot.apply(  # type: ignore[no-untyped-call]
            centered, a + epsilon, b, iterations
        )
    return whitened.to(x.dtype)


def covariances(x: Tensor, *, shrinkage: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sample, shrunk and decomposed covariance (B, C, C) of each (B, C, M) matrix."""
    centered = _centered(x)
    a, b = _regularized(centered, shrinkage)
    outer = centered @ centered.mT
    identity = torch.eye(x.shape[1], dtype=outer.dtype, device=outer.device)
    shrunk = a[:, None, None] * identity + b[:, None, None] * outer
    return outer / x.shape[2], shrunk, shrunk + EPSILON * identity


def _centered(x: Tensor) -> Tensor:
    """Return X in float64 minus the mean of its columns."""
    wide = x.to(torch.float64)
    return wide - wide.mean(dim=2, keepdim=True)


def _scale(centered: Tensor) -> Tensor:
    """Return the power of two above the largest entry of each matrix, at least 1, (B,)."""
    largest = centered.detach().abs().amax((1, 2))
    return torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent).clamp(min=1.0)


def _regularized(centered: Tensor, shrinkage: bool) -> tuple[Tensor, Tensor]:
    """Return a, b of the covariance a I + b X X' of centered matrices X."""
    rho, isotropic = _shrinkage(centered)
    if not shrinkage:
        rho = torch.zeros_like(rho)
    return rho * isotropic, (1.0 - rho) / centered.shape[2]


def _shrinkage(centered: Tensor) -> tuple[Tensor, Tensor]:
    """Return the RBLW weight rho and the mean eigenvalue Tr(S) / C, both (B,)."""
    _, c, m = centered.shape
    gram = _smaller_gram(centered) / m
    trace = gram.diagonal(dim1=1, dim2=2).sum(1)
    trace_of_square = gram.square().sum((1, 2))
    bracket = trace_of_square - trace.square() / c
    is_flat = (trace <= torch.finfo(trace.dtype).tiny) | (
        bracket <= FLAT_SPECTRUM * trace.square()
    )
    # rho tends to 1; the safe denominator keeps NaN out of the gradient of the unused branch.
    denominator = torch.where(is_flat, 1.0, (m + 2) * bracket)
    rho = ((m - 2) / m * trace_of_square + trace.square()) / denominator
    return torch.where(is_flat, 1.0, rho).clamp(max=1.0), trace / c


def _smaller_gram(x: Tensor) -> Tensor:
    """Return X X' or X'X, whichever is smaller; both have the same trace and Frobenius norm."""
    return x @ x.mT if x.shape[1] <= x.shape[2] else x.mT @ x


def _whiten_by_autograd(centered: Tensor, a: Tensor, b: Tensor, epsilon: Tensor) -> Tensor:
    identity = torch.eye(centered.shape[1], dtype=centered.dtype, device=centered.device)
    covariance = a[:, None, None] * identity + b[:, None, None] * (centered @ centered.mT)
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > epsilon[:, None]
    roots = torch.where(kept, torch.where(kept, values, 1.0).rsqrt(), 0.0)
    whitened: Tensor = (vectors * roots[:, None]) @ vectors.mT @ centered
    return whitened


class _InverseRoot(torch.autograd.Function):
    """Z = (a I + b X X')^(-1/2) X for X (B, C, M) and a, b (B,)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, b: Tensor, iterations: int) -> Tensor:
        """Whiten through the eigenvectors of the smaller Gram matrix."""
        values, vectors = torch.linalg.eigh(_smaller_gram(x))
        energies = b[:, None] * values.clamp(min=0.0)
        floor = energies.amax(1) * max(x.shape[1:]) * torch.finfo(x.dtype).eps
        a = torch.maximum(a, floor)
        spectrum = a[:, None] + energies
        root = (vectors * spectrum.rsqrt()[:, None]) @ vectors.mT
        is_tall = x.shape[1] > x.shape[2]
        ctx.save_for_backward(x, a, b, values, vectors, spectrum)
        ctx.iterations = iterations
        whitened: Tensor = x @ root if is_tall else root @ x
        return whitened

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Multiply the gradient of A^(-1/2) by the kernel K in the eigenbasis of A.

        K holds the divided differences of x^(-1/2) (Daleckii-Krein). For C > M only the M
        eigenvectors U with energy are formed. The gradient of the root, sym(G X'), vanishes
        between two directions orthogonal to them, so the rest enters through I - U U'.
        """
        x, a, b, values, vectors, spectrum = ctx.saved_tensors
        is_tall = x.shape[1] > x.shape[2]
        basis = _left_vectors(x, values, vectors) if is_tall else vectors
        seen = gradient @ (x.mT @ basis)  # G X' U
        inner = basis.mT @ seen
        kernel = _root_kernel(spectrum[:, :, None], spectrum[:, None, :], ctx.iterations)
        core = kernel * (inner + inner.mT) / 2
        gradient_basis = basis @ core  # gradient of A, applied to U
        if is_tall:
            cross = _root_kernel(a[:, None], spectrum, ctx.iterations)[:, None] / 2
            outside = (seen - basis @ inner) * cross
            gradient_basis = gradient_basis + outside
        energy = basis.mT @ x  # U'X; X has no part outside U
        gradient_a_x = gradient_basis @ energy
        gradient_x = 2.0 * b[:, None, None] * gradient_a_x + _apply_root(
            gradient, basis, spectrum, a if is_tall else None
        )
        gradient_a = core.diagonal(dim1=1, dim2=2).sum(1)
        gradient_b = (x * gradient_a_x).sum((1, 2))
        return gradient_x, gradient_a, gradient_b, None


def _left_vectors(x: Tensor, values: Tensor, vectors: Tensor) -> Tensor:
    """Return U = X V / s; columns without energy are zero."""
    floor = values.amax(1, keepdim=True) * x.shape[1] * torch.finfo(x.dtype).eps
    has_energy = values > floor
    scale = torch.where(has_energy, torch.where(has_energy, values, 1.0).rsqrt(), 0.0)
    return x @ vectors * scale[:, None]


def _apply_root(y: Tensor, basis: Tensor, spectrum: Tensor, rest: Tensor | None) -> Tensor:
    """Return A^(-1/2) Y; `rest` is the eigenvalue of everything outside the basis, if any."""
    inside = basis.mT @ y
    if rest is None:
        return basis @ (inside * spectrum.rsqrt()[:, :, None])
    outside = rest.rsqrt()[:, None, None]
    return basis @ (inside * (spectrum.rsqrt()[:, :, None] - outside)) + y * outside


def _root_kernel(left: Tensor, right: Tensor, iterations: int) -> Tensor:
    """Return dA^(-1/2)_ij / dA_ij in the eigenbasis.

    The exact divided difference has no difference of eigenvalues in a denominator. With
    `iterations` it is the closed form of n power iterations with deflation, the gradient that the
    paper cites: off the diagonal, K (1 - r^n) + max(l_i, l_j)^(-3/2) r^n with r the ratio of the
    smaller to the larger eigenvalue.
    """
    root_left, root_right = left.sqrt(), right.sqrt()
    exact = -1.0 / (root_left * root_right * (root_left + root_right))
    if not iterations:
        return exact
    larger = torch.maximum(left, right)
    weight = (torch.minimum(left, right) / larger) ** iterations
    blended = exact * (1.0 - weight) + larger.pow(-1.5) * weight
    if left.ndim == 3:
        diagonal = torch.eye(left.shape[1], dtype=torch.bool, device=left.device)
        return torch.where(diagonal, exact, blended)
    return blended
