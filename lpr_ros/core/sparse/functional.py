"""Sparse convolutions as autograd functions: gather, multiply, sum over a kernel map."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
import torch.nn.functional as F

from lpr_ros.core.sparse.kernel_map import NeighborMap, OccupancyMap, ParentMap, Tile


def sum_lists(rows: Tensor, order: Tensor, offsets: Tensor) -> Tensor:
    """Sum the rows of each list with embedding_bag, a vectorized gather-and-sum."""
    return F.embedding_bag(order, rows, offsets, mode='sum', include_last_offset=True)


def _multiply_groups(
    rows: Tensor, sizes: list[int], weights: Iterable[Tensor], width: int
) -> Tensor:
    """Multiply each consecutive group of rows by its weight."""
    products = rows.new_empty(len(rows), width)
    for group, weight, product in zip(
        rows.split(sizes), weights, products.split(sizes), strict=True
    ):
        torch.mm(group, weight, out=product)
    return products


def _join(tiles: list[Tensor]) -> Tensor:
    return tiles[0] if len(tiles) == 1 else torch.cat(tiles)


class NeighborConvolution(torch.autograd.Function):
    """Odd kernel, stride 1: output rows are the input rows."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, kernel: Tensor, pairs: NeighborMap) -> Tensor:
        """Convolve (N, Cin) features with a (K, Cin, Cout) kernel."""
        ctx.save_for_backward(features, kernel)
        ctx.pairs = pairs
        slices = kernel.unbind(0)
        weights = [slices[k] for k in pairs.weights]
        return _join(
            [
                sum_lists(
                    _multiply_groups(
                        features.index_select(0, tile.inputs), tile.sizes, weights, kernel.shape[2]
                    ),
                    tile.order,
                    tile.row_offsets,
                )
                for tile in pairs.tiles
            ]
        )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return gradients of features and kernel; the mirrored map is the transpose."""
        features, kernel = ctx.saved_tensors
        pairs: NeighborMap = ctx.pairs
        gradient = gradient.contiguous()
        mirrored = kernel.flip(0)
        weights = [mirrored[k].T for k in pairs.weights]
        kernel_gradient = torch.zeros_like(kernel)
        weight_gradients = [kernel_gradient[-1 - k] for k in pairs.weights]
        feature_gradient = []
        for tile in pairs.tiles:
            arriving = gradient.index_select(0, tile.inputs)
            _accumulate_weight_gradients(features, arriving, tile, weight_gradients)
            if ctx.needs_input_grad[0]:
                products = _multiply_groups(arriving, tile.sizes, weights, kernel.shape[1])
                feature_gradient.append(sum_lists(products, tile.order, tile.row_offsets))
        return _join(feature_gradient) if feature_gradient else None, kernel_gradient, None


def _accumulate_weight_gradients(
    features: Tensor, arriving: Tensor, tile: Tile, weight_gradients: list[Tensor]
) -> None:
    leaving = features.index_select(0, tile.outputs)
    for before, after, weight_gradient in zip(
        leaving.split(tile.sizes), arriving.split(tile.sizes), weight_gradients, strict=True
    ):
        weight_gradient.addmm_(before.T, after)


class OccupancyConvolution(torch.autograd.Function):
    """Odd kernel, stride 1, with input feature 1 everywhere: a product with the occupancy."""

    @staticmethod
    def forward(ctx: Any, kernel: Tensor, occupancy: OccupancyMap) -> Tensor:
        """Sum the kernel rows (K, 1, Cout) of every occupied neighbor."""
        ctx.occupancy, ctx.kernel_shape = occupancy, kernel.shape
        rows = kernel[:, 0].index_select(0, occupancy.weights)
        return _join([tile.T.to(kernel.dtype) @ rows for tile in occupancy.tiles])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return the gradient of the kernel."""
        occupancy: OccupancyMap = ctx.occupancy
        total = gradient.new_zeros(len(occupancy.weights), gradient.shape[1])
        sizes = [tile.shape[1] for tile in occupancy.tiles]
        for tile, part in zip(occupancy.tiles, gradient.split(sizes), strict=True):
            total.addmm_(tile.to(gradient.dtype), part)
        kernel_gradient = gradient.new_empty(ctx.kernel_shape)
        kernel_gradient[occupancy.weights, 0] = total
        return kernel_gradient, None


class DownConvolution(torch.autograd.Function):
    """2x2x2 kernel, stride 2: every fine row contributes to its parent."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, kernel: Tensor, pairs: ParentMap) -> Tensor:
        """Convolve (N, Cin) fine features with an (8, Cin, Cout) kernel."""
        ctx.save_for_backward(features, kernel)
        ctx.pairs = pairs
        return _children_to_parents(features, kernel, pairs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return gradients of features and kernel."""
        features, kernel = ctx.saved_tensors
        gradient = gradient.contiguous()
        kernel_gradient = _parent_weight_gradient(features, gradient, ctx.pairs)
        back = _parents_to_children(gradient, kernel.transpose(1, 2), ctx.pairs)
        return back, kernel_gradient, None


class UpConvolution(torch.autograd.Function):
    """Transposed 2x2x2 kernel, stride 2: every fine row receives from its parent."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, kernel: Tensor, pairs: ParentMap) -> Tensor:
        """Spread (n, Cin) coarse features over their children with an (8, Cin, Cout) kernel."""
        ctx.save_for_backward(features, kernel)
        ctx.pairs = pairs
        return _parents_to_children(features, kernel, pairs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return gradients of features and kernel."""
        features, kernel = ctx.saved_tensors
        gradient = gradient.contiguous()
        kernel_gradient = _parent_weight_gradient(gradient, features, ctx.pairs).transpose(1, 2)
        back = _children_to_parents(gradient, kernel.transpose(1, 2), ctx.pairs)
        return back, kernel_gradient, None


def _children_to_parents(fine: Tensor, kernel: Tensor, pairs: ParentMap) -> Tensor:
    products = _multiply_groups(
        fine.index_select(0, pairs.order), pairs.sizes, kernel.unbind(0), kernel.shape[2]
    )
    return sum_lists(products, pairs.by_parent, pairs.row_offsets)


def _parents_to_children(coarse: Tensor, kernel: Tensor, pairs: ParentMap) -> Tensor:
    parents = pairs.parents[pairs.order]
    products = _multiply_groups(
        coarse.index_select(0, parents), pairs.sizes, kernel.unbind(0), kernel.shape[2]
    )
    return products.index_select(0, pairs.rank)


def _parent_weight_gradient(fine: Tensor, coarse: Tensor, pairs: ParentMap) -> Tensor:
    """Return (8, fine channels, coarse channels): per child index, fine' x coarse."""
    children = fine.index_select(0, pairs.order).split(pairs.sizes)
    parents = coarse.index_select(0, pairs.parents[pairs.order]).split(pairs.sizes)
    return torch.stack([child.T @ parent for child, parent in zip(children, parents, strict=True)])
