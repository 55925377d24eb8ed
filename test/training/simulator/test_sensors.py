"""Sensor models match their YAML files."""

import numpy as np
import pytest

from lpr_ros.core.errors import ConfigError
from lpr_training.simulator import load_sensor, sensor_names
from lpr_training.simulator.geometry import mesh as m
from lpr_training.simulator.geometry.materials import Material
from lpr_training.simulator.sensor.scanner import Scanner


@pytest.mark.parametrize('name', sensor_names())
def test_points_lie_on_the_beams_of_the_file(name):
    sensor = load_sensor(name)
    assert sensor.name == name
    room = m.box((30.0, 30.0, 30.0), (0.0, 0.0, 0.0), Material.PLASTER)
    found = Scanner(room, sensor).sweep(np.eye(4), np.eye(4), np.random.default_rng(1))
    x, y, z = found.points.T.astype(float)
    elevation, azimuth = np.arctan2(z, np.hypot(x, y)), np.degrees(np.arctan2(y, x))
    assert np.allclose(elevation, sensor.elevations_rad()[found.ring], atol=1e-5)
    assert set(found.ring.tolist()) == set(range(len(sensor.elevations_rad())))
    low, high = sorted((sensor.azimuth_from_deg, sensor.azimuth_to_deg))
    assert low - 1e-3 <= azimuth.min() < low + 1.0
    assert high - 1.0 < azimuth.max() <= high + 1e-3
    assert 0.0 <= found.phase.min() <= found.phase.max() < 1.0


@pytest.mark.parametrize(
    ('name', 'beams', 'top', 'bottom'),
    [('vlp16', 16, 15, -15), ('hdl32', 32, 10.67, -30.67), ('hdl64', 64, 2, -24.33),
     ('os1_128', 128, 22.5, -22.5)],
)  # fmt: skip
def test_shipped_sensors_have_their_documented_beams(name, beams, top, bottom):
    elevation = np.degrees(load_sensor(name).elevations_rad())
    assert len(elevation) == beams
    assert elevation[[0, -1]] == pytest.approx([top, bottom])
    assert (np.diff(elevation) < 0).all()


def test_a_solid_state_sensor_has_a_forward_field_of_view():
    sensor = load_sensor('solid_state')
    assert np.abs(np.degrees(sensor.azimuths_rad())).max() <= 35.0
    assert (sensor.directions()[..., 0] > 0.5).all()


def test_an_unknown_sensor_is_rejected_with_the_known_names():
    with pytest.raises(ConfigError, match=r'hdl65.*hdl64'):
        load_sensor('hdl65')


def test_a_bad_value_in_a_sensor_file_is_reported_with_the_file(tmp_path):
    path = tmp_path / 'mine.yaml'
    path.write_text('columns: -3\n')
    with pytest.raises(ConfigError, match=r'mine\.yaml.*columns.*-3'):
        load_sensor(path)
