"""Routes through a road graph that come back to where they have been, both ways round."""

from itertools import pairwise

import numpy as np

from lpr_training.simulator.curves import arc_length
from lpr_training.simulator.roads import RoadGraph

Route = list[int]  # junctions in order
TRIALS = 200


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
    """Walk at random; turn round only where the road ends."""
    route = [int(rng.integers(len(around)))]
    done = 0.0
    while done < 1.1 * length_m + 10.0:  # rounded corners shorten the path
        here = route[-1]
        onward = [n for n in around[here] if len(route) < 2 or n != route[-2]]
        there = int(rng.choice(onward or around[here]))
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
    fifth = 0.2 * length_m
    return 2.0 * min(again, fifth) + 2.0 * min(opposite, fifth) + min(new, 3.0 * fifth)
