"""Sensors as data: beams, timing, range limits and noise, read from config/sensors/*.yaml."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import ConfigError

SENSOR_DIR = Path(__file__).resolve().parents[3] / 'config' / 'sensors'


@dataclass(frozen=True)
class BeamGroup(Config):
    """Evenly spaced beams, from the first elevation to the last."""

    count: int = option(1, 'number of beams', low=1, high=1024)
    first_deg: float = option(0.0, 'elevation of the first beam', unit='deg', low=-90, high=90)
    last_deg: float = option(0.0, 'elevation of the last beam', unit='deg', low=-90, high=90)


@dataclass(frozen=True)
class Sensor(Config):
    """One LiDAR: ring 0 is the first beam of the first group."""

    name: str = option('sensor', 'what it is called')
    beams: tuple[BeamGroup, ...] = option((BeamGroup(16, 15.0, -15.0),), 'beams, top to bottom')
    columns: int = option(1024, 'shots of each beam per sweep', low=8, high=8192)
    azimuth_from_deg: float = option(180.0, 'azimuth of the first shot', unit='deg')
    azimuth_to_deg: float = option(-180.0, 'azimuth where the sweep ends', unit='deg')
    rate_hz: float = option(10.0, 'sweeps per second', unit='Hz', low=0.1, high=100.0)
    min_range_m: float = option(0.9, 'nothing nearer is reported', unit='m', low=0.0)
    max_range_m: float = option(100.0, 'nothing farther is reported', unit='m', low=1.0)
    range_at_10_percent_m: float = option(
        50.0, 'distance at which a target that reflects a tenth is just seen', unit='m', low=1.0
    )
    range_sigma_m: float = option(0.02, 'noise of a range', unit='m', low=0.0)
    dropout: float = option(0.01, 'share of shots lost for no reason', low=0.0, high=1.0)
    divergence_mrad: float = option(2.0, 'full angle of a beam', unit='mrad', low=0.0, high=50.0)
    mount_height_m: float = option(1.73, 'above the ground', unit='m', low=0.0)

    def elevations_rad(self) -> NDArray[np.float64]:
        """Elevation of each beam, in ring order."""
        groups = [np.linspace(b.first_deg, b.last_deg, b.count) for b in self.beams]
        return np.radians(np.concatenate(groups))

    def azimuths_rad(self) -> NDArray[np.float64]:
        """Azimuth of each column, x forward and y left, in firing order."""
        edges = np.linspace(self.azimuth_from_deg, self.azimuth_to_deg, self.columns + 1)
        return np.radians(edges[:-1])

    def sweep_share(self) -> NDArray[np.float64]:
        """When each column is fired, as a share of the sweep, 0 <= share < 1."""
        return np.arange(self.columns) / self.columns

    def directions(self) -> NDArray[np.float64]:
        """Return unit vectors (beams, columns, 3) in the sensor frame."""
        elevation, azimuth = np.meshgrid(self.elevations_rad(), self.azimuths_rad(), indexing='ij')
        flat = np.cos(elevation)
        xyz = (flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation))
        return np.stack(xyz, axis=-1)


def sensor_names() -> list[str]:
    """Names of the sensors that come with the package."""
    return sorted(path.stem for path in SENSOR_DIR.glob('*.yaml'))


def load_sensor(name: str | Path) -> Sensor:
    """Read a sensor by name (`hdl64`) or from a YAML file."""
    path = Path(name)
    if path.suffix not in ('.yaml', '.yml'):
        path = SENSOR_DIR / f'{name}.yaml'
        if not path.is_file():
            raise ConfigError(f'unknown sensor {str(name)!r}; choose from {sensor_names()}, or '
                              f'give the path of a YAML file')  # fmt: skip
    return Sensor.from_yaml(path)
