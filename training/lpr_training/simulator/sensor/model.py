"""LiDAR models: beams, timing, range limits and noise, read from config/sensors/*.yaml."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.resources import REPOSITORY

SENSOR_DIR = REPOSITORY / 'config' / 'sensors'


@dataclass(frozen=True)
class BeamGroup(Config):
    """Evenly spaced beams, from the first elevation to the last."""

    count: int = option(1, 'Number of beams', low=1, high=1024)
    first_deg: float = option(0.0, 'Elevation of the first beam', unit='deg', low=-90, high=90)
    last_deg: float = option(0.0, 'Elevation of the last beam', unit='deg', low=-90, high=90)


@dataclass(frozen=True)
class Sensor(Config):
    """One LiDAR: ring 0 is the first beam of the first group."""

    name: str = option('sensor', 'Name of the sensor')
    beams: tuple[BeamGroup, ...] = option(
        (BeamGroup(16, 15.0, -15.0),), 'Beam groups from top to bottom'
    )
    columns: int = option(1024, 'Measurements per beam and sweep', low=8, high=8192)
    azimuth_from_deg: float = option(180.0, 'Azimuth of the first measurement', unit='deg')
    azimuth_to_deg: float = option(-180.0, 'Azimuth at the end of the sweep', unit='deg')
    rate_hz: float = option(10.0, 'Sweeps per second', unit='Hz', low=0.1, high=100.0)
    min_range_m: float = option(0.9, 'Minimum range', unit='m', low=0.0)
    max_range_m: float = option(100.0, 'Maximum range', unit='m', low=1.0)
    range_at_10_percent_m: float = option(
        50.0, 'Maximum range of a target with 10 % reflectivity', unit='m', low=1.0
    )
    range_sigma_m: float = option(0.02, 'Standard deviation of the range', unit='m', low=0.0)
    dropout: float = option(0.01, 'Fraction of measurements lost at random', low=0.0, high=1.0)
    divergence_mrad: float = option(
        2.0, 'Full divergence angle of a beam', unit='mrad', low=0.0, high=50.0
    )
    mount_height_m: float = option(1.73, 'Mounting height above the ground', unit='m', low=0.0)

    def elevations_rad(self) -> NDArray[np.float64]:
        """Return the elevation of each beam, in ring order."""
        groups = [np.linspace(b.first_deg, b.last_deg, b.count) for b in self.beams]
        return np.radians(np.concatenate(groups))

    def azimuths_rad(self) -> NDArray[np.float64]:
        """Return the azimuth of each column in firing order, x forward and y left."""
        edges = np.linspace(self.azimuth_from_deg, self.azimuth_to_deg, self.columns + 1)
        return np.radians(edges[:-1])

    def sweep_phase(self) -> NDArray[np.float64]:
        """Return the firing time of each column as a fraction of the sweep, in [0, 1)."""
        return np.arange(self.columns) / self.columns

    def directions(self) -> NDArray[np.float64]:
        """Return unit vectors (beams, columns, 3) in the sensor frame."""
        elevation, azimuth = np.meshgrid(self.elevations_rad(), self.azimuths_rad(), indexing='ij')
        flat = np.cos(elevation)
        xyz = (flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation))
        return np.stack(xyz, axis=-1)


def sensor_names() -> list[str]:
    """Return the names of the sensors that ship with the package."""
    return sorted(path.stem for path in SENSOR_DIR.glob('*.yaml'))


def load_sensor(name: str | Path) -> Sensor:
    """Load a sensor by name (`hdl64`) or from a YAML file."""
    path = Path(name)
    if path.suffix not in ('.yaml', '.yml'):
        path = SENSOR_DIR / f'{name}.yaml'
        if not path.is_file():
            raise ConfigError(
                f'unknown sensor {str(name)!r}, expected one of {sensor_names()} or the path of '
                'a YAML file'
            )
    return Sensor.from_yaml(path)
