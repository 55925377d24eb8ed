"""The figure of the documentation: two simulated scans next to a real one."""

from pathlib import Path

from matplotlib.figure import Figure
import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.resources import REPOSITORY
from lpr_training.simulator.drive.drive import make_drive
from lpr_training.simulator.sensor.model import load_sensor
from lpr_training.simulator.simulation import SimulationConfig, simulate_drive
from lpr_training.simulator.tools.pictures import birds_eye, perspective
from lpr_training.simulator.world.world import make_world

SHARED = REPOSITORY.parent / 'shared' / 'data' / 'kitti_full'
REAL = '000003.bin'
SIMULATED = (('city', 8, 70), ('suburb', 1, 120))  # world, seed, scan


def read_cloud(path: Path) -> NDArray[np.float32]:
    """Read the points of a KITTI .bin file."""
    raw = np.fromfile(path, np.float32)
    if len(raw) == 0 or len(raw) % 4:
        raise DatasetError(f'{path}: expected rows of 4 float32, found {len(raw)} numbers')
    return raw.reshape(-1, 4)[:, :3]


def draw_figure(path: Path) -> None:
    """Draw the scans in perspective and from above; the real one only if its file exists."""
    sensor, config = load_sensor('hdl64'), SimulationConfig(spacing_m=10.0)
    clouds = []
    for kind, seed, index in SIMULATED:
        world = make_world(kind, seed)
        scan = simulate_drive(world, sensor, make_drive(world), config).scan(index)
        clouds.append((f'simulated {kind}', scan.points))
    if (SHARED / REAL).is_file():
        clouds.append(('real (KITTI, HDL-64)', read_cloud(SHARED / REAL)))
    figure = Figure(figsize=(4.2 * len(clouds), 7.2), dpi=72, layout='constrained')
    axes = figure.subplots(2, len(clouds), squeeze=False, height_ratios=(0.72, 1.0))
    for column, (title, points) in enumerate(clouds):
        perspective(axes[0, column], points, size=0.3)
        birds_eye(axes[1, column], points, range_m=40.0, size=0.15)
        axes[0, column].set_title(title)
    figure.savefig(path, pil_kwargs={'optimize': True})
