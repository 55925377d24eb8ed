"""Other vehicles moving on the same roads."""

import numpy as np
from numpy.typing import NDArray

from lpr_training.simulator.drive.drive import lane_path
from lpr_training.simulator.drive.routes import find_route
from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.mesh import Mesh
from lpr_training.simulator.geometry.polylines import Line, arc_length, resample, yaw_of
from lpr_training.simulator.objects import vehicles
from lpr_training.simulator.world.world import World

MAX_VEHICLES = 80
ROUTE_M = 900.0
CLEARANCE_M = 7.0  # vehicles nearer to the sensor are left out: they would collide


class Traffic:
    """Vehicles that repeat their routes forever."""

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
        """Return a random route; on a single road mostly in the oncoming lane."""
        if world.trajectory is None:
            route = find_route(world.roads, ROUTE_M, rng)
        else:
            route = [1, 0] if rng.random() < 0.7 else [0, 1]
        return resample(lane_path(world, route, rng), 0.5)

    def mesh_at(self, time_s: float, xy: NDArray[np.float64], max_range_m: float) -> Mesh:
        """Return the vehicles within range of a sensor at `xy` at a moment."""
        parts = []
        for which, route, start, speed in zip(
            self._which, self._route, self._start_m, self._speed_mps, strict=True
        ):
            path, yaw = self._paths[route]
            length = float(arc_length(path)[-1])
            i = int((start + speed * time_s) % length / length * (len(path) - 1))
            if CLEARANCE_M < np.linalg.norm(path[i] - xy) < max_range_m:
                z = float(self._ground.height(path[i]))
                parts.append(m.moved(self._meshes[which], (path[i, 0], path[i, 1], z), yaw[i]))
        return m.merge(parts)
