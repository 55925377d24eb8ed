"""Other vehicles, under way on the same roads."""

import numpy as np
from numpy.typing import NDArray

from lpr_training.simulator import mesh as m
from lpr_training.simulator.curves import Line, arc_length, resample, yaw_of
from lpr_training.simulator.drives import lane_path
from lpr_training.simulator.mesh import Mesh
from lpr_training.simulator.objects import vehicles
from lpr_training.simulator.routes import find_route
from lpr_training.simulator.worlds import World

MAX_VEHICLES = 80
ROUTE_M = 900.0
CLEAR_M = 7.0  # a vehicle this near the sensor would be a collision: it is left out


class Traffic:
    """Vehicles that go round and round on their own routes."""

    def __init__(self, world: World, per_km: float, rng: np.random.Generator) -> None:
        self._ground = world.ground
        count = min(MAX_VEHICLES, round(per_km * world.roads.length_m() / 1000.0))
        shared = [self._path(world, rng) for _ in range(min(count, 12))]
        names = list(vehicles.SHAPES)
        self._paths: list[tuple[Line, NDArray[np.float64]]] = [
            (path, yaw_of(path)) for path in shared
        ]
        self._meshes = [vehicles.build(name) for name in names]
        self._which = rng.integers(len(names), size=count)
        self._route = rng.integers(max(1, len(shared)), size=count)
        self._start_m = rng.uniform(0.0, 10.0 * ROUTE_M, count)
        self._speed_mps = rng.uniform(5.0, 13.0, count)

    @staticmethod
    def _path(world: World, rng: np.random.Generator) -> Line:
        """Choose a route; where there is but one road, mostly the oncoming lane of it."""
        if world.trajectory is None:
            route = find_route(world.roads, ROUTE_M, rng)
        else:
            route = [1, 0] if rng.random() < 0.7 else [0, 1]
        return resample(lane_path(world, route, rng), 0.5)

    def mesh_at(self, time_s: float, xy: NDArray[np.float64], reach_m: float) -> Mesh:
        """All vehicles at a moment that are within reach of the sensor at `xy`."""
        parts = []
        for which, route, start, speed in zip(
            self._which, self._route, self._start_m, self._speed_mps, strict=True
        ):
            path, yaw = self._paths[route]
            length = float(arc_length(path)[-1])
            i = int((start + speed * time_s) % length / length * (len(path) - 1))
            if CLEAR_M < np.linalg.norm(path[i] - xy) < reach_m:
                z = float(self._ground.height(path[i]))
                parts.append(m.moved(self._meshes[which], (path[i, 0], path[i, 1], z), yaw[i]))
        return m.merge(parts)
