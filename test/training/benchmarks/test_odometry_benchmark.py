"""The drift benchmark measures a drift that is known."""

import numpy as np
import pytest

from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_training.benchmarks.odometry.run import drift, run, table


def straight(length_m=200.0, scale=1.0, heading_deg_per_100m=0.0):
    """Return poses every meter along a line."""
    x = np.arange(0.0, length_m + 0.5)
    yaw = np.radians(heading_deg_per_100m * x / 100.0)
    zero = 0.0 * x
    return pose_from_euler(np.stack([scale * x, zero, zero], 1), np.stack([zero, zero, yaw], 1))


def test_a_known_drift_is_measured():
    true = straight()
    assert drift(true, true, 100.0)['horizontal_ratio'] == 0.0
    scaled = drift(straight(scale=1.02), true, 100.0)
    assert scaled['horizontal_m'] == pytest.approx(2.0)
    assert scaled['heading_deg'] == pytest.approx(0.0)
    turned = drift(straight(heading_deg_per_100m=0.5), true, 100.0)
    assert turned['heading_deg'] == pytest.approx(0.5)
    assert turned['heading_ratio'] == pytest.approx(1.0, abs=0.01)  # as odometry_noise expects


def test_a_drive_that_is_too_short_has_no_drift_over_that_distance():
    assert drift(straight(50.0), straight(50.0), 100.0) == {}


def test_every_run_that_is_there_is_followed(tmp_path, shared_data):
    """The first scans of one run."""
    with np.load(shared_data / 'scans_kitti_00_3d.npz') as file:
        arrays = {name: file[name] for name in file.files}
    count = 8
    arrays['points_cm'] = arrays['points_cm'][: arrays['offsets'][count]]
    arrays['offsets'] = arrays['offsets'][: count + 1]
    for name in ('stamps_ns', 'T_odom_sensor', 'T_world_sensor'):
        arrays[name] = arrays[name][:count]
    np.savez(tmp_path / 'scans_kitti_00_3d.npz', **arrays)
    result = run(tmp_path)
    (found,) = result['runs'].values()
    assert (found['scans'], found['lost'], found['degenerate']) == (count, 0, 0)
    assert found['ate_m'] < 0.1
    assert '| kitti_00_3d | 10 m |' in table(result)
