"""What a configured node holds: mounting poses, and state that survives failed replacements."""

from dataclasses import replace
import errno
import os
import signal
import sys
import time
from types import SimpleNamespace

from geometry_msgs.msg import TransformStamped
from node_rig import SHORT_LAPS
import numpy as np
import pytest
from ros_processes import wait_until
from toy_drive import STEPS_PER_LAP, pose_at, step, write_weights

from lpr_ros.conversions.clouds import cloud_message
from lpr_ros.conversions.poses import odometry_message, transform_message
from lpr_ros.core.config import override
from lpr_ros.core.errors import LprError, MapError
from lpr_ros.core.io.pointcloud2 import pack_cloud
from lpr_ros.core.pipeline import load_database
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.lpr_node.connections import Connections
from lpr_ros.lpr_node.runtime import LprRuntime


class Bench:
    """A runtime without lifecycle, fed by calls of the callbacks."""

    def __init__(self, ros, **settings):
        weights = ros.folder / 'weights.safetensors'
        if not weights.exists():
            write_weights(weights)
        node = ros.node()
        config = override(NodeConfig(), {'weights': str(weights)} | settings)
        self.connections = Connections(node)
        self.runtime = LprRuntime(node, config, self.connections)
        self.connections.inputs._is_active = True

    @property
    def database(self):
        return self.runtime._drive.database

    def send(self, index, frame='lidar', T_base_sensor=None):
        """Send a scan with its odometry, and wait until it is a keyframe."""
        sent, before = step(index), len(self.database)
        T = np.eye(4) if T_base_sensor is None else T_base_sensor
        T_odom_base = sent.T_odom_sensor @ np.linalg.inv(T)
        base = 'lidar' if T_base_sensor is None else 'base'
        inputs = self.connections.inputs
        inputs._on_odometry(odometry_message(sent.stamp_ns, 'odom', base, T_odom_base))
        inputs._on_points(cloud_message(sent.stamp_ns, frame, pack_cloud(sent.points)), {})
        wait_until(lambda: len(self.database) == before + 1, 'a keyframe')
        return sent

    def count(self, name):
        return self.connections.events.statistics.counts().get(name, 0)


class FakeBuffer:
    """Of tf2_ros, which is not on the package index: transforms by the frame of the sensor."""

    def __init__(self, mounts):
        self._mounts = mounts

    def lookup_transform(self, base, sensor, time):
        return TransformStamped(transform=transform_message(self._mounts[sensor]))


def test_every_keyframe_has_the_mounting_pose_of_its_lidar(ros, monkeypatch):
    """Two LiDARs in turn, both known to tf."""
    mounts = {'left': pose_at(1.0), 'right': pose_at(-1.0)}
    tf = SimpleNamespace(
        Buffer=lambda: FakeBuffer(mounts),
        TransformListener=lambda buffer, node: SimpleNamespace(unregister=lambda: None),
        TransformException=KeyError,
    )
    monkeypatch.setitem(sys.modules, 'tf2_ros', tf)
    bench = Bench(ros)
    publisher = bench.runtime._drive.workers._listener
    try:
        for number, lidar in enumerate(['left', 'right', 'right', 'left', 'left']):
            sent = bench.send(number, lidar, mounts[lidar])
            wait_until(lambda wanted=number + 1: len(publisher._mounts) == wanted, 'a keyframe')
            assert np.array_equal(publisher._mounts[number], mounts[lidar])
            place = bench.database.place(number)
            np.testing.assert_allclose(place.T_odom_sensor, sent.T_odom_sensor, atol=1e-9)
        lookup = bench.connections.tf
        bench.connections.configure(NodeConfig())
        assert bench.connections.tf is lookup  # kept across configurations
    finally:
        bench.runtime.close()


@pytest.fixture
def bench(ros):
    made = Bench(ros, map_path=str(ros.folder / 'places.map'), autosave_s=0.0, **SHORT_LAPS)
    for index in range(3):
        made.send(index)
    made.runtime.save_map()
    yield made
    made.runtime.close()


@pytest.mark.parametrize('changes', [
    {'T_odom_sensor': np.zeros((4, 4))},
    {'session': '\udcff'},
], ids=['no rotation', 'name not UTF-8'])  # fmt: skip
def test_a_map_that_cannot_be_used_leaves_the_node_unchanged(bench, monkeypatch, changes):
    """Whatever the reader lets through."""
    database, saved = bench.database, bench.runtime._map._saved

    def load(path, **options):
        loaded = load_database(path, **options)
        place = loaded.place
        loaded.place = lambda i: replace(place(i), **changes) if i == 1 else place(i)
        return loaded

    monkeypatch.setattr('lpr_ros.lpr_node.runtime.load_database', load)
    with pytest.raises(ValueError, match=r'matrix|encode'):
        bench.runtime.load_map()
    assert bench.database is database
    assert bench.runtime._map._saved is saved
    bench.send(3)
    assert bench.runtime.tick(0).keyframes == 4


@pytest.mark.parametrize('failing', [
    'lpr_ros.lpr_node.runtime.ScanReader',
    'lpr_ros.lpr_node.runtime.Pipeline',
    'lpr_ros.lpr_node.workers.threading.Thread.start',
    'lpr_ros.lpr_node.runtime.new_database',
])  # fmt: skip
def test_a_failed_reset_leaves_the_node_unchanged(bench, monkeypatch, failing):
    def fail(*arguments, **options):
        raise OSError(errno.EMFILE, 'Too many open files')

    database = bench.database
    with monkeypatch.context() as patch:
        patch.setattr(failing, fail)
        with pytest.raises(OSError, match='Too many open files'):
            bench.runtime.reset()
    assert bench.database is database
    bench.send(3)
    assert bench.runtime.tick(0).keyframes == 4
    assert bench.runtime.reset() == '4 keyframes forgotten'
    bench.send(4)


def test_a_reset_interrupts_a_verification(bench):
    os.kill(bench.runtime._verifier.pid, signal.SIGSTOP)
    for index in range(3, STEPS_PER_LAP + 6):
        bench.send(index)
    began_s = time.monotonic()
    assert bench.count('verified') == 0
    bench.runtime.reset()
    assert time.monotonic() - began_s < 10.0
    assert bench.count('keyframes_dropped.verification') == 1  # the one in progress
    for index in range(STEPS_PER_LAP + 6):
        bench.send(index)
    wait_until(lambda: bench.count('verified'), 'verification in a new process', 90.0)


def test_a_fifo_in_place_of_the_map_does_not_block(bench, ros):
    path = ros.folder / 'fifo.map'
    os.mkfifo(path)
    bench.runtime.reconfigure(override(bench.runtime._config, {'map_path': str(path)}))
    for serve in (bench.runtime.load_map, bench.runtime.save_map):
        with pytest.raises(MapError, match='FIFO'):
            serve()
    assert len(bench.database) == 3
    started = Bench(ros, map_path=str(path))
    assert 'FIFO' in started.runtime.tick(0).map.error
    started.runtime.close()
    with pytest.raises(MapError, match='FIFO'):
        Bench(ros, map_path=str(path), load_map=True)


def test_a_stamp_that_is_not_normalized_is_dropped(bench):
    sent, inputs = step(3), bench.connections.inputs
    odometry = odometry_message(sent.stamp_ns, 'odom', 'lidar', sent.T_odom_sensor)
    odometry.header.stamp._nanosec = 2**32 - 1
    inputs._on_odometry(odometry)
    cloud = cloud_message(sent.stamp_ns, 'lidar', pack_cloud(sent.points))
    cloud.header.stamp._sec, cloud.header.stamp._nanosec = 2**31 - 1, 2**32 - 1
    inputs._on_points(cloud, {})
    wait_until(lambda: bench.count('dropped.stamp') == 1, 'a drop')
    assert bench.count('odometry_dropped.stamp') == 1
    bench.send(3)
    bench.runtime.tick(0)


def test_a_configuration_that_fails_releases_the_map(ros):
    path = ros.folder / 'places.map'
    path.write_text('notes')
    with pytest.raises(LprError):
        Bench(ros, map_path=str(path), load_map=True)
    path.unlink()
    bench = Bench(ros, map_path=str(path), load_map=True)
    bench.send(0)
    bench.runtime.close()
    assert path.exists()
