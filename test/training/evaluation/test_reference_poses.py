"""Poses registered from scans alone agree with the ground truth of a simulated drive."""

from dataclasses import replace

import numpy as np
import pytest

from lpr_ros.core.geometry.se3 import invert
from lpr_training.evaluation.reference_poses import scan_to_map_poses
from lpr_training.simulator import (
    SimulationConfig,
    load_sensor,
    make_drive,
    make_world,
    simulate_drive,
)


@pytest.mark.parametrize('kind', ['city', 'forest'])
def test_scan_to_map_poses_match_ground_truth(kind):
    world = make_world(kind, 3, size_m=120.0)
    sensor = replace(load_sensor('hdl32'), columns=360)
    drive = simulate_drive(
        world, sensor, make_drive(world, 12.0, seed=3), SimulationConfig(spacing_m=0.8), seed=3
    )
    poses = scan_to_map_poses([scan.points for scan in drive])
    true = invert(drive.T_world_sensor[0]) @ drive.T_world_sensor
    assert len(poses) > 10
    assert np.linalg.norm(poses[:, :3, 3] - true[:, :3, 3], axis=1).max() < 0.15
    assert np.linalg.norm(true[-1, :3, 3]) > 5.0
