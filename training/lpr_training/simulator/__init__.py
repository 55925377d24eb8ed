"""Simulated worlds, sensors and drives.

world = make_world('city', seed=3)
drive = make_drive(world, length_m=1500.0)
for scan in simulate_drive(world, load_sensor('hdl64'), drive, seed=3):
    ...
"""

from lpr_training.simulator.drive.drive import Drive, make_drive
from lpr_training.simulator.drive.odometry import OdometryConfig
from lpr_training.simulator.sensor.model import Sensor, load_sensor, sensor_names
from lpr_training.simulator.simulation import Simulation, SimulationConfig, simulate_drive
from lpr_training.simulator.world.build import Day
from lpr_training.simulator.world.recipes import RECIPES
from lpr_training.simulator.world.recorded_route import Trajectory, read_trajectory
from lpr_training.simulator.world.world import World, make_world, on_day

WORLDS = tuple(RECIPES)

__all__ = [
    'WORLDS',
    'Day',
    'Drive',
    'OdometryConfig',
    'Sensor',
    'Simulation',
    'SimulationConfig',
    'Trajectory',
    'World',
    'load_sensor',
    'make_drive',
    'make_world',
    'on_day',
    'read_trajectory',
    'sensor_names',
    'simulate_drive',
]
