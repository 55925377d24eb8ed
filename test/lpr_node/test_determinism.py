"""The same recording gives the same loops: to the bit offline, and through player and node."""

from contextlib import suppress
from dataclasses import replace
import os
import subprocess
import sys
import time
from types import SimpleNamespace

from conftest import HAS_ROS
from loop_tables import read_loops
import numpy as np
import pytest
from toy_drive import STEPS_PER_LAP, step, write_weights

from lpr_ros.core.config import override
from lpr_ros.core.database.descriptor_index import EXHAUSTIVE_ROWS, DescriptorIndex
from lpr_ros.core.geometry.se3 import invert, pose_from_euler, rotation_angle_rad, transform_points
from lpr_ros.core.io.pose_files import read_tum
from lpr_ros.core.offline.export import GRAPH, KEYFRAMES, LOOPS, MAP, ODOMETRY
from lpr_ros.core.offline.run import run_offline
from lpr_ros.core.pipeline import PipelineConfig
from lpr_ros.core.recordings.base import DriveTable, Recording, unknown_poses
from lpr_training.datasets.bag_writer import write_bag
from lpr_training.datasets.base import RecordedScan
from lpr_training.simulator import OdometryConfig
from lpr_training.simulator.drive.odometry import drifting

COUNT = STEPS_PER_LAP + 10
# Two scans a second are recorded. A machine that stalls drops some: that is not the question here.
RATES = (2.0, 0.5, 0.1)
START_S = 300.0  # on a busy machine
# Documented in docs/reliability.md.
MOST_M, MOST_DEG = 1e-6, 1e-4
SETTINGS = {
    'database.exclude_s': 3.0,
    'database.exclude_m': 70.0,
    'odometry_noise.position_fraction': 0.1,
    'odometry_noise.heading_deg': 10.0,
}


@pytest.fixture(scope='module')
def recorded(tmp_path_factory):
    """A lap and a half as a bag, odometry so far off that registration must search."""
    folder = tmp_path_factory.mktemp('determinism')
    rng = np.random.default_rng(0)
    scans, T_true = [], []
    for index in range(COUNT):
        made = step(index)
        aside_m, turn_rad = rng.uniform(-0.2, 0.2, 2), rng.uniform(-0.1, 0.1)
        T_aside = pose_from_euler([*aside_m, 0.0], [0.0, 0.0, turn_rad])
        points = transform_points(invert(T_aside), made.points)
        points = (points + rng.normal(0.0, 0.02, points.shape)).astype(np.float32)
        T_true.append(made.T_odom_sensor @ T_aside)
        zeros = np.zeros(len(points), np.float32)
        scans.append(RecordedScan(points, zeros, zeros.astype(np.uint16), zeros, made.stamp_ns,
                                  np.eye(4), T_true[-1]))  # fmt: skip
    drift = OdometryConfig(heading_bias_deg=10.0, position_walk_m=3.0)
    T_odom = drifting(np.stack(T_true), drift, np.random.default_rng(1))
    write_bag(
        folder / 'drive', [replace(s, T_odom_sensor=T) for s, T in zip(scans, T_odom, strict=True)]
    )
    return SimpleNamespace(
        bag=folder / 'drive', weights=write_weights(folder / 'toy.safetensors'), folder=folder
    )


@pytest.fixture(scope='module')
def offline_runs(recorded):
    """The command twice, in processes that hash differently."""
    settings = [f'{name}={value}' for name, value in SETTINGS.items()]
    outs = [recorded.folder / name for name in ('first', 'second')]
    runs = [
        subprocess.Popen(
            [sys.executable, '-m', 'lpr_ros.cli.offline', str(recorded.bag), '--out', str(out),
             '--weights', str(recorded.weights), '--device', 'cpu', '--quiet', '--set', *settings],
            env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path), 'PYTHONHASHSEED': seed},
        )
        for out, seed in zip(outs, ('1', '2'), strict=True)
    ]  # fmt: skip
    assert [run.wait(START_S) for run in runs] == [0, 0]
    return outs


def test_two_runs_offline_are_equal_to_the_bit(offline_runs):
    first, second = offline_runs
    assert len(read_loops(first / LOOPS)) >= 3
    for name in (LOOPS, KEYFRAMES, MAP, GRAPH):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


class Numbered(Recording):
    """Scans that are told apart by nothing but their number."""

    def __init__(self, count):
        stamps_ns = (np.arange(count) + 1) * 10**9
        unknown = unknown_poses(count)
        super().__init__('numbered', DriveTable(stamps_ns, unknown, unknown))

    @classmethod
    def matches(cls, path):
        return False

    def points(self, index):
        return np.array([[float(index), 0.0, 0.0]], np.float32)


class Drawing:
    """DescriptorExtractor by drawing numbers: nearest ones are hardly nearer than others."""

    dim, fingerprint = 128, 'drawing'

    def describe(self, points):
        return np.random.default_rng(int(points[0, 0])).normal(size=self.dim).astype(np.float32)


def test_an_index_built_slowly_gives_the_same_matches_offline(monkeypatch):
    """It is built in the background; queries meanwhile go to the one before it."""
    settings = {
        'keyframes.interval_s': 0.5, 'database.exclude_s': 0.0,
        'database.brute_force_limit_mib': 0, 'database.rerank_k': 1, 'sequence.min_support': 4,
        'verification.strategy': 'none',
    }  # fmt: skip

    def matches():
        config = override(PipelineConfig(), settings)
        outcomes = run_offline(Numbered(EXHAUSTIVE_ROWS + 100), Drawing(), config).outcomes
        return [[(m.keyframe_id, m.distance) for m in outcome.matches] for outcome in outcomes]

    def slowly(index, count):
        time.sleep(0.1)
        return train(index, count)

    soon, train = matches(), DescriptorIndex._train
    monkeypatch.setattr(DescriptorIndex, '_train', slowly)
    assert matches() == soon


@pytest.mark.skipif(not HAS_ROS, reason='ROS is not installed')
def test_player_and_node_give_the_loops_of_the_offline_command(recorded, offline_runs, ros):
    from node_rig import Rig, ends_of
    from ros_processes import wait_until

    from lpr_ros.conversions.poses import pose_from_message
    from lpr_ros.core.timing import stamp_ns

    expected = read_loops(offline_runs[0] / LOOPS)
    odometry = read_tum(offline_runs[0] / ODOMETRY)
    rig = Rig(
        ros, autostart=True, weights=recorded.weights, verification_queue_size=100, **SETTINGS
    )
    rig.wait_active()
    for rate in RATES:
        before = int(rig.status().get('described', 0))
        arguments = ('--rate', str(rate), '--wait', '1', '--quiet')
        player = ros.start('-m', 'lpr_ros.player', str(recorded.bag), *arguments)
        assert player.wait(START_S) == 0, player.output
        with suppress(AssertionError):
            rig.status_with('described', before + COUNT)
            break
        rig.reset()
    else:
        raise AssertionError(f'scans are dropped at any rate: {rig.status()}')
    path = rig.keyframes.take_until(lambda message: len(message.poses) == COUNT)
    assert [stamp_ns(pose.header) for pose in path.poses] == odometry.stamps_ns.tolist()
    loops = [rig.loops.take() for _ in expected]
    wait_until(lambda: rig.status()['verification_queue'] == '0', 'all verified')
    assert not rig.loops.drain()
    assert [ends_of(loop) for loop in loops] == [(x.query_id, x.match_id) for x in expected]
    for loop, true in zip(loops, expected, strict=True):
        T_off = invert(true.T_match_query) @ pose_from_message(loop.pose.pose)
        assert np.linalg.norm(T_off[:3, 3]) <= MOST_M
        assert np.degrees(rotation_angle_rad(T_off)) <= MOST_DEG
