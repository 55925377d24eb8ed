"""Poses registered from scans alone agree with the ground truth of a simulated drive."""

from dataclasses import replace

import numpy as np
import pytest

from lpr_ros.core.geometry.se3 import invert, local_error, pose_from_euler
from lpr_training.evaluation.reference_poses import scan_to_map_poses, settle_poses
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


def test_settled_poses_are_good_to_a_centimeter():
    """Good enough to judge covariances, from poses that are not."""
    world = make_world('suburb', 3, size_m=120.0)
    sensor = replace(load_sensor('hdl64'), columns=360)
    drive = simulate_drive(
        world, sensor, make_drive(world, 12.0, seed=3), SimulationConfig(spacing_m=1.0), seed=3
    )
    rng = np.random.default_rng(0)
    true = drive.T_world_sensor
    slips = pose_from_euler(
        rng.normal(0.0, 0.05, (len(true), 3)), np.radians(rng.normal(0.0, 0.3, (len(true), 3)))
    )
    poses = settle_poses([scan.points for scan in drive], true @ slips)
    error = local_error(invert(poses[:-4]) @ poses[4:], invert(true[:-4]) @ true[4:])
    assert np.median(np.linalg.norm(error[:, :3], axis=1)) < 0.01
    assert np.median(np.degrees(np.linalg.norm(error[:, 3:], axis=1))) < 0.05
