"""Routes through a road graph with revisits in both directions."""

from itertools import pairwise

import numpy as np

from lpr_training.simulator.geometry.polylines import arc_length
from lpr_training.simulator.world.roads import RoadGraph

Route = list[int]  # junctions in order
TRIALS = 200
U_TURN_PROBABILITY = 0.08  # per junction
U_TURN_COST = 0.04  # fraction of the length of a drive


def find_route(graph: RoadGraph, length_m: float, rng: np.random.Generator) -> Route:
    """Return the random walk with the best mix of new roads and revisits."""
    lengths = _edge_lengths(graph)
    around = {node: graph.neighbors(node) for node in range(len(graph.nodes))}
    walks = [_walk(around, lengths, length_m, rng) for _ in range(TRIALS)]
    return max(walks, key=lambda walk: _score(walk, lengths, length_m))


def _edge_lengths(graph: RoadGraph) -> dict[tuple[int, int], float]:
    lengths = {}
    for (a, b), line in zip(graph.edges, graph.lines, strict=True):
        lengths[a, b] = lengths[b, a] = float(arc_length(line)[-1])
    return lengths


def _walk(
    around: dict[int, list[int]],
    lengths: dict[tuple[int, int], float],
    length_m: float,
    rng: np.random.Generator,
) -> Route:
    """Return a random walk with U-turns at dead ends, and rarely elsewhere."""
    route = [int(rng.integers(len(around)))]
    done = 0.0
    while done < 1.1 * length_m + 10.0:  # rounded corners shorten the path
        here = route[-1]
        onward = [n for n in around[here] if len(route) < 2 or n != route[-2]]
        turn = len(route) > 1 and (not onward or rng.random() < U_TURN_PROBABILITY)
        there = route[-2] if turn else int(rng.choice(onward))
        done += lengths[here, there]
        route.append(there)
    return route


def _score(route: Route, lengths: dict[tuple[int, int], float], length_m: float) -> float:
    """Prefer a fifth revisited in each direction, and the rest new."""
    seen: set[tuple[int, int]] = set()
    new = same = opposite = done = 0.0
    for step in pairwise(route):
        length = min(lengths[step], max(0.0, length_m - done))
        done += length
        same += length * (step in seen)
        opposite += length * (step[::-1] in seen)
        new += length * (step not in seen and step[::-1] not in seen)
        seen.add(step)
    turns = sum(a == b for a, b in zip(route, route[2:], strict=False))
    fifth = 0.2 * length_m
    value = 2.0 * min(same, fifth) + 2.0 * min(opposite, fifth) + min(new, 3.0 * fifth)
    return value - turns * U_TURN_COST * length_m


def split_at_turns(route: Route) -> list[Route]:
    """Split a route at its U-turns; each part starts where the last one ends."""
    cuts = [i + 1 for i, (a, b) in enumerate(zip(route, route[2:], strict=False)) if a == b]
    ends = [0, *cuts, len(route) - 1]
    return [route[a : b + 1] for a, b in pairwise(ends)]
