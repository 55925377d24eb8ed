"""The simulated worlds that the `sim` weights are trained, chosen and tested on.

ROOT/worlds holds the training and the validation worlds, ROOT/test those that are only reported:
other worlds, other days, a sensor (hdl32) that no training world has seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpr_training.conversion import convert, is_complete
from lpr_training.datasets.base import PlaceDataset, PlaceTable
from lpr_training.datasets.submaps import voxel_means
from lpr_training.simulator.build import Day
from lpr_training.simulator.drives import make_drive
from lpr_training.simulator.sensor import load_sensor
from lpr_training.simulator.simulation import Simulation, SimulationConfig, simulate_drive
from lpr_training.simulator.worlds import make_world, on_day

THINNED_M = 0.2  # one point per voxel of this size is kept, as in the packed real scans


@dataclass(frozen=True)
class SuiteWorld:
    """One world and its drives: day number k is driven with sensor number k."""

    part: str  # the folder under the root
    kind: str
    seed: int
    sensors: tuple[str, ...]
    size_m: float
    length_m: float  # of each drive
    spacing_m: float  # between scans
    winter: bool = False  # the last day is bare and white
    one_route: bool = False  # of all drives, so that every place is seen on other days
    backwards: bool = False  # of the later half of the drives

    @property
    def name(self) -> str:
        """Return the folder of the world."""
        return f'{self.kind}_{self.seed}'

    def days(self) -> Iterator[tuple[str, Day, str]]:
        """Return (run, day, sensor) of every drive."""
        for number, sensor in enumerate(self.sensors):
            cold = self.winter and number + 1 == len(self.sensors)
            day = Day(number=number, leaves=not cold, snow=cold)
            yield f'{self.name}/day_{number}_{sensor}', day, sensor


def sim_suite() -> list[SuiteWorld]:
    """Return every world of the suite."""
    # Two sensors, each on two days, one after the other, along one route: what is to be learned is
    # the place with other cars in it, from another lane, or the other way.
    seen = ('hdl64', 'vlp16', 'os1_128')
    counts = {'city': 10, 'suburb': 4, 'campus': 3, 'forest': 2}
    training = [
        SuiteWorld('worlds', kind, seed, 2 * (seen[seed % 3], seen[(seed + 1) % 3]),
                   200.0, 400.0, 2.5, winter=seed % 2 == 1, one_route=True,
                   backwards=seed % 2 == 0)
        for kind, count in counts.items() for seed in range(count)
    ]  # fmt: skip
    validation = [
        SuiteWorld('worlds', kind, seed, ('hdl64', 'vlp16', 'hdl64', 'vlp16'), 200.0, 400.0, 2.0,
                   one_route=True, backwards=seed == 51)
        for kind, seed in (('city', 50), ('city', 51), ('suburb', 50), ('forest', 50))
    ]  # fmt: skip
    # Seeds of 100 were looked at when the training worlds had every sensor on one day only.
    test = [
        SuiteWorld('test', kind, seed, ('hdl64', 'hdl64', 'hdl32', 'hdl32'), size_m, 600.0, 2.0)
        for kind, seed, size_m in (
            ('city', 110, 200.0), ('city', 111, 200.0), ('suburb', 110, 200.0),
            ('forest', 110, 150.0),
        )
    ]  # fmt: skip
    return training + validation + test


def write_world(world: SuiteWorld, root: Path) -> int:
    """Write the drives of a world that are not there yet; return how many places it has."""
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
        'thinned_m': THINNED_M,
        'one_route': world.one_route,
        'backwards': world.backwards,
        'version': 2,  # of the drives, to be raised when the same settings give others
    }


class SimulatedPlaces(PlaceDataset):
    """The scans of a simulated drive, thinned, made when asked for."""

    def __init__(self, simulation: Simulation, run: str):
        count = len(simulation)
        names = tuple(str(i) for i in range(count))
        super().__init__(
            PlaceTable(simulation.T_world_sensor, simulation.stamps_ns, (run,) * count, names)
        )
        self._simulation = simulation

    def points(self, index: int) -> NDArray[np.float32]:
        """Cast the rays of one scan; one point per voxel is left."""
        points = self._simulation.scan(index).points.astype(np.float64)
        return voxel_means(points, THINNED_M).astype(np.float32)
