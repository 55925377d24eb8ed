"""The simulated worlds that the `sim` weights are trained, validated and tested on.

ROOT/worlds has the training and the validation worlds. ROOT/test has the test worlds: other
worlds, other days, and a sensor (hdl32) that no training world has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_training.datasets.base import DatasetTable, PlaceDataset
from lpr_training.datasets.convert import convert, is_complete
from lpr_training.datasets.oxford_submaps import voxel_means
from lpr_training.simulator.drive.drive import make_drive
from lpr_training.simulator.sensor.model import load_sensor
from lpr_training.simulator.simulation import Simulation, SimulationConfig, simulate_drive
from lpr_training.simulator.world.build import Day
from lpr_training.simulator.world.world import make_world, on_day

VOXEL_M = 0.2  # downsampled like the packed real scans


@dataclass(frozen=True)
class SuiteWorld:
    """A world and its drives: day k is driven with sensor k."""

    part: str  # folder under the root
    kind: str
    seed: int
    sensors: tuple[str, ...]
    size_m: float
    length_m: float  # of each drive
    spacing_m: float  # between scans
    winter: bool = False  # the last day has snow and no leaves
    one_route: bool = False  # all drives take the same route, on different days
    backwards: bool = False  # the second half of the drives is reversed

    @property
    def name(self) -> str:
        """Return the folder name of the world."""
        return f'{self.kind}_{self.seed}'

    def days(self) -> Iterator[tuple[str, Day, str]]:
        """Yield (run, day, sensor) of every drive."""
        for number, sensor in enumerate(self.sensors):
            cold = self.winter and number + 1 == len(self.sensors)
            day = Day(number=number, leaves=not cold, snow=cold)
            yield f'{self.name}/day_{number}_{sensor}', day, sensor


def sim_suite() -> list[SuiteWorld]:
    """Return every world of the suite."""
    # Two sensors on two days each along one route, so that a place is seen with other cars, from
    # another lane or in the other direction.
    sensors = ('hdl64', 'vlp16', 'os1_128')
    counts = {'city': 10, 'suburb': 4, 'campus': 3, 'forest': 2}
    training = [
        SuiteWorld('worlds', kind, seed, 2 * (sensors[seed % 3], sensors[(seed + 1) % 3]),
                   200.0, 400.0, 2.5, winter=seed % 2 == 1, one_route=True,
                   backwards=seed % 2 == 0)
        for kind, count in counts.items() for seed in range(count)
    ]  # fmt: skip
    validation = [
        SuiteWorld('worlds', kind, seed, ('hdl64', 'vlp16', 'hdl64', 'vlp16'), 200.0, 400.0, 2.0,
                   one_route=True, backwards=seed == 51)
        for kind, seed in (('city', 50), ('city', 51), ('suburb', 50), ('forest', 50))
    ]  # fmt: skip
    test = [
        SuiteWorld('test', kind, seed, ('hdl64', 'hdl64', 'hdl32', 'hdl32'), size_m, 600.0, 2.0)
        for kind, seed, size_m in (
            ('city', 110, 200.0), ('city', 111, 200.0), ('suburb', 110, 200.0),
            ('forest', 110, 150.0),
        )
    ]  # fmt: skip
    return training + validation + test


def write_world(world: SuiteWorld, root: Path) -> int:
    """Write the missing drives of a world; return the number of new places."""
    out, places, base = Path(root) / world.part, 0, None
    for run, day, sensor in world.days():
        settings = _settings(world, day, sensor)
        if is_complete(out, run, settings):
            continue
        base = base or make_world(world.kind, world.seed, day, size_m=world.size_m)
        today = on_day(base, day)
        drive = make_drive(
            today,
            world.length_m,
            seed=day.number,
            route_seed=0 if world.one_route else None,
            backwards=world.backwards and 2 * day.number >= len(world.sensors),
        )
        config = SimulationConfig(spacing_m=world.spacing_m, workers=1)
        simulation = simulate_drive(today, load_sensor(sensor), drive, config, seed=day.number)
        places += convert(SimulatedPlaces(simulation, run), out, run, settings).places
    return places


def _settings(world: SuiteWorld, day: Day, sensor: str) -> dict[str, Any]:
    return {
        'world': [world.kind, world.seed, world.size_m],
        'day': day.to_dict(),
        'sensor': sensor,
        'drive': [world.length_m, world.spacing_m],
        'thinned_m': VOXEL_M,
        'one_route': world.one_route,
        'backwards': world.backwards,
        'version': 2,  # increment if the same settings produce other drives
    }


class SimulatedPlaces(PlaceDataset):
    """The downsampled scans of a simulated drive, computed on demand."""

    def __init__(self, simulation: Simulation, run: str):
        count = len(simulation)
        names = tuple(str(i) for i in range(count))
        super().__init__(
            DatasetTable(simulation.T_world_sensor, simulation.stamps_ns, (run,) * count, names)
        )
        self._simulation = simulation

    def points(self, index: int) -> NDArray[np.float32]:
        """Simulate one scan and downsample it."""
        points = self._simulation.scan(index).points.astype(np.float64)
        return voxel_means(points, VOXEL_M).astype(np.float32)
