"""Instance whitening of a C x M matrix with RBLW shrinkage (SPEC A.3-A.4; Algorithm 1).

The regularised covariance is A = a I + b X X', with X the centred matrix and a, b two scalars per
cloud, so Z = A^(-1/2) X = X (a I + b X'X)^(-1/2): the smaller of C and M is decomposed. Everything
is float64.

Extreme inputs: Z and, for `svdpi` and `exact`, its gradient are finite for every finite input of
float16 to float32 and for float64 up to 1e150: one column, equal columns (Z = 0), all zero, any
rank, any scale. Two things see to it, and neither changes a bit of what is computed at the scales
of a trained network: a matrix beyond 1 is divided by a power of two s, which leaves Z as it is
when epsilon becomes epsilon / s^2; and no eigenvalue counts as smaller than the rounding of the
largest. `eigh` has a finite Z too, but its gradient is not finite where eigenvalues are equal.
"""

from typing import Any

import torch
from torch import Tensor

GRADIENTS = ('svdpi', 'exact', 'eigh')
EPSILON = 1e-5
POWER_ITERATIONS = 19  # as in the reference code of power-iteration SVD
FLAT_SPECTRUM = 1e-14  # relative bracket below which the covariance counts as isotropic


def whiten(x: Tensor, *, gradient: str = 'svdpi', shrinkage: bool = True) -> Tensor:
    """ZCA-whiten the columns of each (B, C, M) matrix; the same in training and evaluation.

    `gradient` is how the matrix root is differentiated: `svdpi` (the paper), `exact`, or `eigh`
    (plain autograd through the eigenvectors, small eigenvalues dropped; diverges, kept for the
    ablation).
    """
    if gradient not in GRADIENTS:
        raise ValueError(f'gradient {gradient!r} is not one of {list(GRADIENTS)}')
    centred = _centred(x)
    scale = _scale(centred)
    centred = centred / scale[:, None, None]
    a, b = _regularised(centred, shrinkage)
    epsilon = EPSILON / scale.square()
    if gradient == 'eigh':
        whitened = _whiten_by_autograd(centred, a, b, epsilon)
    else:
        iterations = POWER_ITERATIONS if gradient == 'svdpi' else 0
        whitened = _InverseRoot.apply(  # type: ignore[no-untyped-call]
            centred, a + epsilon, b, iterations)
    return whitened.to(x.dtype)


def covariances(x: Tensor, *, shrinkage: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sample, shrunk and decomposed covariance (B, C, C) of each (B, C, M) matrix."""
    centred = _centred(x)
    a, b = _regularised(centred, shrinkage)
    outer = centred @ centred.mT
    identity = torch.eye(x.shape[1], dtype=outer.dtype, device=outer.device)
    shrunk = a[:, None, None] * identity + b[:, None, None] * outer
    return outer / x.shape[2], shrunk, shrunk + EPSILON * identity


def _centred(x: Tensor) -> Tensor:
    """Return X in float64, the mean of its columns subtracted."""
    wide = x.to(torch.float64)
    return wide - wide.mean(dim=2, keepdim=True)


def _scale(centred: Tensor) -> Tensor:
    """Return the power of two above the largest number of each matrix, at least 1, (B,)."""
    largest = centred.detach().abs().amax((1, 2))
    return torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent).clamp(min=1.0)


def _regularised(centred: Tensor, shrinkage: bool) -> tuple[Tensor, Tensor]:
    """Return a, b of the covariance a I + b X X' of centred matrices X."""
    rho, isotropic = _shrinkage(centred)
    if not shrinkage:
        rho = torch.zeros_like(rho)
    return rho * isotropic, (1.0 - rho) / centred.shape[2]


def _shrinkage(centred: Tensor) -> tuple[Tensor, Tensor]:
    """Return the RBLW weight rho and the mean eigenvalue Tr(S) / C, both (B,)."""
    _, c, m = centred.shape
    gram = _smaller_gram(centred) / m
    trace = gram.diagonal(dim1=1, dim2=2).sum(1)
    trace_of_square = gram.square().sum((1, 2))
    bracket = trace_of_square - trace.square() / c
    is_flat = (trace <= torch.finfo(trace.dtype).tiny) | (
        bracket <= FLAT_SPECTRUM * trace.square()
    )
    # rho tends to 1 there; the safe denominator keeps NaN out of the unused branch's gradient.
    denominator = torch.where(is_flat, 1.0, (m + 2) * bracket)
    rho = ((m - 2) / m * trace_of_square + trace.square()) / denominator
    return torch.where(is_flat, 1.0, rho).clamp(max=1.0), trace / c


def _smaller_gram(x: Tensor) -> Tensor:
    """Return X X' or X'X, whichever is smaller; both have the same trace and Frobenius norm."""
    return x @ x.mT if x.shape[1] <= x.shape[2] else x.mT @ x


def _whiten_by_autograd(centred: Tensor, a: Tensor, b: Tensor, epsilon: Tensor) -> Tensor:
    identity = torch.eye(centred.shape[1], dtype=centred.dtype, device=centred.device)
    covariance = a[:, None, None] * identity + b[:, None, None] * (centred @ centred.mT)
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > epsilon[:, None]
    roots = torch.where(kept, torch.where(kept, values, 1.0).rsqrt(), 0.0)
    whitened: Tensor = (vectors * roots[:, None]) @ vectors.mT @ centred
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
        """Apply the kernel K to the gradient of A in the eigenbasis of A (SPEC A.4.2-A.4.3).

        For C > M only the M eigenvectors U with energy are formed. The gradient of the root, sym(G
        X'), vanishes between two directions orthogonal to them, so the rest enters through I - U
        U'.
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
    """Return U = X V / s, with columns of no energy set to zero."""
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
    `iterations`, the power-iteration gradient of the paper's reference in closed form: off the
    diagonal it is blended by r^n, r the ratio of the two eigenvalues (SPEC A.4.3).
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
