"""Routes through a road graph that come back to where they have been, both ways round."""

from itertools import pairwise

import numpy as np

from lpr_training.simulator.curves import arc_length
from lpr_training.simulator.roads import RoadGraph

Route = list[int]  # junctions in order
TRIALS = 200
TURN_SHARE = 0.08  # of junctions where a walk turns round
TURN_COST = 0.04  # of a drive: two ways without a turn are as good as one with


def find_route(graph: RoadGraph, length_m: float, rng: np.random.Generator) -> Route:
    """Take the best of many random walks: a good part of it again, in both directions."""
    lengths = _edge_lengths(graph)
    around = {node: graph.neighbours(node) for node in range(len(graph.nodes))}
    walks = [_walk(around, lengths, length_m, rng) for _ in range(TRIALS)]
    return max(walks, key=lambda walk: _worth(walk, lengths, length_m))


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
    """Walk at random; turn round where the road ends, and rarely elsewhere."""
    route = [int(rng.integers(len(around)))]
    done = 0.0
    while done < 1.1 * length_m + 10.0:  # rounded corners shorten the path
        here = route[-1]
        onward = [n for n in around[here] if len(route) < 2 or n != route[-2]]
        turn = len(route) > 1 and (not onward or rng.random() < TURN_SHARE)
        there = route[-2] if turn else int(rng.choice(onward))
        done += lengths[here, there]
        route.append(there)
    return route


def _worth(route: Route, lengths: dict[tuple[int, int], float], length_m: float) -> float:
    """Prefer a fifth driven again the same way, a fifth the other way, and the rest new."""
    seen: set[tuple[int, int]] = set()
    new = again = opposite = done = 0.0
    for step in pairwise(route):
        length = min(lengths[step], max(0.0, length_m - done))
        done += length
        again += length * (step in seen)
        opposite += length * (step[::-1] in seen)
        new += length * (step not in seen and step[::-1] not in seen)
        seen.add(step)
    turns = sum(a == b for a, b in zip(route, route[2:], strict=False))
    fifth = 0.2 * length_m
    value = 2.0 * min(again, fifth) + 2.0 * min(opposite, fifth) + min(new, 3.0 * fifth)
    return value - turns * TURN_COST * length_m


def split_at_turns(route: Route) -> list[Route]:
    """Cut a route where it turns round; each part ends where the next begins."""
    cuts = [i + 1 for i, (a, b) in enumerate(zip(route, route[2:], strict=False)) if a == b]
    ends = [0, *cuts, len(route) - 1]
    return [route[a : b + 1] for a, b in pairwise(ends)]
