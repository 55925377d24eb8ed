"""Road graphs of a world."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import Delaunay

from lpr_training.simulator.geometry.polylines import Line, resample

Pairs = list[tuple[int, int]]
Drawing = tuple[NDArray[np.float64], Pairs, float]  # nodes, roads, relative bend


@dataclass(frozen=True, eq=False)
class RoadGraph:
    """Junctions and roads; the center line of a road starts at its first node."""

    nodes: NDArray[np.float64]  # (N, 2)
    edges: tuple[tuple[int, int], ...]
    lines: tuple[Line, ...]

    def neighbors(self, node: int) -> list[int]:
        """Return the adjacent junctions."""
        return [b if a == node else a for a, b in self.edges if node in (a, b)]

    def line(self, start: int, end: int) -> Line:
        """Return the center line of the road from one junction to an adjacent one."""
        for (a, b), line in zip(self.edges, self.lines, strict=True):
            if (a, b) == (start, end):
                return line
            if (a, b) == (end, start):
                return line[::-1]
        raise KeyError(f'no road from node {start} to node {end}')

    def length_m(self) -> float:
        """Return the total length of all roads."""
        steps = [np.linalg.norm(np.diff(line, axis=0), axis=1).sum() for line in self.lines]
        return float(sum(steps))


def make_graph(layout: str, size_m: float, block_m: float, rng: np.random.Generator) -> RoadGraph:
    """Draw the roads of a square world; `layout` is a key of LAYOUTS."""
    nodes, pairs, bend = LAYOUTS[layout](size_m, block_m, rng)
    lines = tuple(_bent(nodes[a], nodes[b], bend, rng) for a, b in pairs)
    return RoadGraph(nodes, tuple(pairs), lines)


def graph_along(line: Line) -> RoadGraph:
    """Make a single road that follows a recorded drive."""
    return RoadGraph(line[[0, -1]], ((0, 1),), (resample(line, 2.0),))


def _bent(a: NDArray[np.float64], b: NDArray[np.float64], bend: float,
          rng: np.random.Generator) -> Line:  # fmt: skip
    """Draw a curved line from a to b with lateral offsets of about `bend` of its length."""
    length = float(np.linalg.norm(b - a))
    share = np.linspace(0.0, 1.0, max(2, int(length / 2.0)))
    sway = sum(
        rng.normal(scale=bend * length / (k + 1)) * np.sin((k + 1) * np.pi * share)
        for k in range(3)
    )
    normal = np.array([-(b - a)[1], (b - a)[0]]) / length
    return a + share[:, None] * (b - a) + np.asarray(sway)[:, None] * normal


def _lattice(columns: int, rows: int) -> Pairs:
    index = np.arange(rows * columns).reshape(rows, columns)
    across = np.stack([index[:, :-1], index[:, 1:]], axis=-1).reshape(-1, 2)
    along = np.stack([index[:-1], index[1:]], axis=-1).reshape(-1, 2)
    return [(int(a), int(b)) for a, b in np.concatenate([across, along])]


def _fit(size_m: float, block_m: float) -> tuple[int, float]:
    """Return the number of junctions per side, at least three, and the block length."""
    count = max(3, round(size_m / block_m) + 1)
    return count, min(block_m, size_m / (count - 1))


def _grid(size_m: float, block_m: float, rng: np.random.Generator, jitter: float,
          bend: float) -> Drawing:  # fmt: skip
    """Make a grid of unequal blocks with some roads missing."""
    count, block_m = _fit(size_m, block_m)
    steps = [np.concatenate([[0], np.cumsum(block_m * rng.uniform(0.7, 1.35, count - 1))])
             for _ in range(2)]  # fmt: skip
    x, y = np.meshgrid(*steps)
    nodes = np.stack([x.ravel(), y.ravel()], axis=1)
    nodes += rng.uniform(-jitter, jitter, nodes.shape) * block_m
    return nodes, _remove_some(len(nodes), _lattice(count, count), 0.2, rng), bend


def _web(size_m: float, block_m: float, rng: np.random.Generator, bend: float) -> Drawing:
    """Connect scattered junctions to their neighbors (Gabriel graph)."""
    count, block_m = _fit(size_m, block_m)
    x, y = np.meshgrid(*[np.arange(count) * block_m] * 2)
    nodes = np.stack([x.ravel(), y.ravel()], axis=1).astype(float)
    nodes += rng.uniform(-0.33, 0.33, nodes.shape) * block_m
    faces = Delaunay(nodes).simplices
    ends = [(int(f[i]), int(f[i - 1])) for f in faces for i in range(3)]
    pairs = sorted({(min(e), max(e)) for e in ends})
    return (
        nodes,
        _remove_some(len(nodes), [p for p in pairs if _gabriel(nodes, *p)], 0.15, rng),
        bend,
    )


def _gabriel(nodes: NDArray[np.float64], a: int, b: int) -> bool:
    """Return whether no other junction is inside the circle with diameter a-b."""
    middle, radius = (nodes[a] + nodes[b]) / 2, np.linalg.norm(nodes[a] - nodes[b]) / 2
    return int((np.linalg.norm(nodes - middle, axis=1) < radius - 1e-6).sum()) == 0


def _ladder(columns: int, rows: int, step_x: float, step_y: float) -> Drawing:
    """Make equal blocks with straight roads."""
    x, y = np.meshgrid(np.arange(columns) * step_x, np.arange(rows) * step_y)
    nodes = np.stack([x.ravel(), y.ravel()], axis=1)
    return nodes, _lattice(columns, rows), 0.0


def _remove_some(count: int, pairs: Pairs, share: float, rng: np.random.Generator) -> Pairs:
    """Remove some roads, keeping the graph connected and two roads per junction."""
    kept = list(pairs)
    for k in rng.permutation(len(pairs))[: int(share * len(pairs))]:
        trial = [p for p in kept if p != pairs[k]]
        degree = np.bincount(np.ravel(trial), minlength=count)
        if degree[list(pairs[k])].min() >= 2 and _connected(count, trial):
            kept = trial
    return kept


def _connected(count: int, pairs: Pairs) -> bool:
    group = list(range(count))
    for _ in range(count):
        before = list(group)
        for a, b in pairs:
            group[a] = group[b] = min(group[a], group[b])
        if group == before:
            break
    return max(group) == 0


Layout = Callable[[float, float, np.random.Generator], Drawing]  # side, block, rng

LAYOUTS: dict[str, Layout] = {
    'grid': lambda size, block, rng: _grid(size, block, rng, 0.10, 0.01),
    'curved_grid': lambda size, block, rng: _grid(size, block, rng, 0.18, 0.06),
    'web': lambda size, block, rng: _web(size, block, rng, 0.03),
    'trails': lambda size, block, rng: _web(size, block, rng, 0.09),
    'rows': lambda size, block, rng: _ladder(3, 5, size / 2, block),
    'aisles': lambda size, block, rng: _ladder(3, max(3, round(size / block)), size / 2, block),
}  # fmt: skip
