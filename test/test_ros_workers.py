"""What lies between the callbacks and the core: inbox, odometry, workers, devices, extrinsic."""

from dataclasses import replace
import os
import signal
import sys
import threading
from types import SimpleNamespace

from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import TransformStamped
import numpy as np
import pytest
from ros_processes import wait_until
from toy_clouds import tiny_config
from toy_drive import START_NS, STEPS_PER_LAP, step, write_weights

from lpr_ros import engine
from lpr_ros.cloud_messages import cloud_message
from lpr_ros.core.closer_process import CloserProcess
from lpr_ros.core.config import override
from lpr_ros.core.errors import BackendError, MapError, ScanError, VerificationError
from lpr_ros.core.geometry import Trajectory
from lpr_ros.core.loop_closer import LoopCloser
from lpr_ros.core.model.describer import Describer
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.pipeline import Pipeline, PipelineConfig
from lpr_ros.core.pointcloud2 import pack_cloud
from lpr_ros.core.records import Scan
from lpr_ros.detector import Detector
from lpr_ros.diagnostics import judge
from lpr_ros.extrinsic import Extrinsic
from lpr_ros.inbox import Inbox
from lpr_ros.node_config import NodeConfig
from lpr_ros.odometry_buffer import OdometryBuffer
from lpr_ros.pose_messages import odometry_message, transform_message
from lpr_ros.safe_describer import SafeDescriber
from lpr_ros.statistics import Statistics

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
SECOND_NS = 1_000_000_000
CONFIG = override(
    PipelineConfig(), {'database.exclude_s': 3.0, 'database.exclude_m': 20.0}
)


def pose(x):
    T = np.eye(4)
    T[0, 3] = x
    return T


def test_inbox_drops_the_oldest_and_never_blocks():
    inbox = Inbox(2)
    assert [inbox.put(i) for i in range(4)] == [False, False, True, True]
    assert [inbox.get(), inbox.get()] == [2, 3]
    taken = []
    thread = threading.Thread(target=lambda: taken.append(inbox.get()))
    thread.start()
    assert inbox.close() == 0
    thread.join()
    assert taken == [None]
    assert inbox.put(5)  # which was dropped


def test_inbox_tells_how_many_it_dropped():
    inbox = Inbox(3)
    for item in range(5):
        inbox.put(item)
    assert inbox.clear() == 3
    inbox.put(6)
    assert inbox.close() == 1
    assert inbox.is_closed


def test_odometry_is_that_of_the_trajectory(rng):
    stamps = np.sort(rng.choice(8 * 10**9, 50, replace=False))
    buffer = OdometryBuffer(max_gap_s=10.0)
    trajectory = Trajectory(stamps, np.stack([pose(x) for x in rng.normal(size=50)]))
    for stamp, T in zip(stamps, trajectory.T, strict=True):
        assert buffer.add(int(stamp), T)
    for stamp in rng.integers(stamps[0], stamps[-1], 20):
        assert np.allclose(buffer.wait_for(int(stamp), 0.0), trajectory.at(int(stamp)))


def test_odometry_that_comes_later_ends_the_wait():
    buffer = OdometryBuffer(max_gap_s=10.0)
    found = []
    thread = threading.Thread(target=lambda: found.append(buffer.wait_for(SECOND_NS, 20.0)))
    thread.start()
    buffer.add(0, pose(0.0))
    buffer.add(2 * SECOND_NS, pose(2.0))
    thread.join(20.0)
    assert np.allclose(found[0], pose(1.0))


@pytest.mark.parametrize(
    ('stamp_ns', 'reason'),
    [
        (9 * SECOND_NS, 'expected it to reach the scan'),
        (SECOND_NS // 2, 'older than the oldest'),
        (3 * SECOND_NS, 'gap of odometry'),
    ],
)
def test_scans_without_odometry_are_refused_with_the_reason(stamp_ns, reason):
    buffer = OdometryBuffer(max_gap_s=1.5)
    for second in (1, 2, 5):
        buffer.add(second * SECOND_NS, pose(second))
    with pytest.raises(ScanError, match=reason) as caught:
        buffer.wait_for(stamp_ns, 0.0)
    assert caught.value.kind == 'no_odometry'


def test_odometry_from_before_a_jump_back_is_forgotten():
    buffer = OdometryBuffer(max_gap_s=10.0)
    for second in (100, 101):
        buffer.add(second * SECOND_NS, pose(second))
    assert not buffer.add(101 * SECOND_NS - 1, pose(0.0))  # merely out of order
    assert buffer.add(5 * SECOND_NS, pose(5.0))
    assert np.allclose(buffer.wait_for(5 * SECOND_NS, 0.0), pose(5.0))
    with pytest.raises(ScanError):
        buffer.wait_for(100 * SECOND_NS, 0.0)


def describer():
    return Describer(PlaceModel(tiny_config()).eval(), device='cpu', fingerprint='tiny')


def scan(index):
    at = step(index)
    return Scan(at.points, at.stamp_ns, at.T_odom_sensor)


def sightings(count):
    """Return the pipeline's sightings of a drive around the lap and on."""
    recogniser = Pipeline(CONFIG, describer()).recogniser
    return [recogniser.add(scan(index)) for index in range(count)]


@pytest.fixture(scope='module')
def seen():
    return [s for s in sightings(STEPS_PER_LAP + 6) if s.candidates]


@pytest.fixture
def remote():
    closer = CloserProcess(CONFIG.verification, CONFIG.pairwise, CONFIG.candidates)
    yield closer
    closer.stop()


def test_closer_in_a_process_says_what_the_one_here_says(remote, seen):
    here = LoopCloser(CONFIG.verification, CONFIG.pairwise, CONFIG.candidates)
    for sighting in seen[-4:]:
        near, far = here.close(sighting), remote.close(sighting)
        pairs = [[(x.query_id, x.match_id) for x in v.trusted] for v in (near, far)]
        assert pairs[0] == pairs[1]
        for a, b in zip(near.trusted, far.trusted, strict=True):
            assert np.allclose(a.T_match_query, b.T_match_query)
            assert np.allclose(a.covariance, b.covariance)
    assert pairs[0]


def test_closer_renewed_after_every_verification_says_the_same(seen):
    """The loops so far are handed over: trust depends on them."""
    here = LoopCloser(CONFIG.verification, CONFIG.pairwise, CONFIG.candidates)
    renewed = CloserProcess(
        CONFIG.verification, CONFIG.pairwise, CONFIG.candidates, renewed_after=1
    )
    try:
        pids, trusted = [], []
        for sighting in seen[-4:]:
            near, far = here.close(sighting), renewed.close(sighting)
            pairs = [[(x.query_id, x.match_id) for x in v.trusted] for v in (near, far)]
            assert pairs[0] == pairs[1]
            trusted += pairs[0]
            pids.append(renewed.pid)
    finally:
        renewed.stop()
    assert len(set(pids)) == len(pids)
    assert len(trusted) >= 2


def test_closer_that_dies_is_replaced(remote, seen):
    remote.close(seen[-2])
    os.kill(remote.pid, signal.SIGKILL)
    with pytest.raises(VerificationError, match='status -9'):
        remote.close(seen[-1])
    assert remote.close(seen[-1]).query_id == seen[-1].keyframe.id


def test_signals_to_the_group_do_not_reach_the_closer(seen):
    """Not even one that still imports; it stays in the group, whose niceness it shares."""
    closer = CloserProcess(CONFIG.verification, CONFIG.pairwise, CONFIG.candidates)
    try:
        pid = closer.pid
        assert os.getpgid(pid) == os.getpgid(0)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        assert closer.close(seen[-1]).query_id == seen[-1].keyframe.id
        assert closer.pid == pid
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {signal.SIGINT, signal.SIGTERM}
    finally:
        closer.stop()


def test_an_error_in_the_closer_is_told_and_the_same_one_goes_on(remote, seen):
    before = remote.pid
    number = seen[-2].keyframe.id
    with pytest.raises(VerificationError, match=f'keyframe {number}: ValueError: zip'):
        remote.close(replace(seen[-2], places=()))
    assert remote.close(seen[-1]).query_id == seen[-1].keyframe.id
    assert remote.pid == before


def test_closer_that_hangs_is_replaced(remote, seen):
    """Stopped, it takes no sighting and gives no answer: both sides of the pipe hang."""
    remote.close(seen[-2])
    hung = remote.pid
    os.kill(hung, signal.SIGSTOP)
    remote.timeout_s = 0.5
    with pytest.raises(VerificationError, match=r'status -9 .* expected an answer within 0\.5 s'):
        remote.close(seen[-1])
    assert remote.pid != hung
    remote.timeout_s = 60.0
    assert remote.close(seen[-1]).query_id == seen[-1].keyframe.id


def test_closer_takes_new_settings_with_the_next_sighting(remote, seen):
    assert remote.close(seen[-2]).verified is not None
    impossible = override(CONFIG, {'verification.fewest_inliers': 10**9})
    remote.configure(impossible.verification, impossible.pairwise, impossible.candidates)
    assert remote.close(seen[-1]).verified is None


class Heard:
    """Keeps what a detector says."""

    def __init__(self):
        self.sightings, self.verdicts, self.drops, self.faults = [], [], [], []

    def on_sighting(self, sighting):
        self.sightings.append(sighting)

    def on_verdict(self, sighting, verdict):
        self.verdicts.append(verdict)

    def on_drop(self, kind, reason):
        self.drops.append(kind)

    def on_fault(self, error):
        self.faults.append(error)


class StuckCloser:
    """A verification that does not end until it is let go."""

    def __init__(self):
        self.entered, self.go = threading.Event(), threading.Event()
        self._real = LoopCloser(CONFIG.verification, CONFIG.pairwise, CONFIG.candidates)

    def close(self, sighting):
        self.entered.set()
        assert self.go.wait(60.0)
        return self._real.close(sighting)

    def configure(self, *settings):
        self._real.configure(*settings)


def test_verification_holds_back_neither_description_nor_memory():
    closer, heard, statistics = StuckCloser(), Heard(), Statistics()
    pipeline = Pipeline(CONFIG, describer(), closer=closer)
    detector = Detector(pipeline, lambda scan: scan, heard, statistics, waiting_keyframes=2)
    count = STEPS_PER_LAP + 8
    for index in range(count):
        detector.put(scan(index))
        wait_until(lambda index=index: len(heard.sightings) > index, f'keyframe {index}')
    assert closer.entered.is_set()
    assert not heard.verdicts
    assert detector.waiting == 2
    dropped = statistics.counts()['dropped.newer_keyframe']
    with_candidates = sum(bool(s.candidates) for s in heard.sightings)
    assert dropped == with_candidates - 3  # one is being verified, two wait
    closer.go.set()
    wait_until(lambda: len(heard.verdicts) == 3, 'verdicts')
    assert heard.verdicts[-1].query_id == count - 1  # the newest were kept
    detector.stop()
    pipeline.close()


def test_worker_survives_what_nobody_foresaw():
    heard = Heard()

    def read(message):
        if message is None:
            raise ZeroDivisionError
        return message

    pipeline = Pipeline(CONFIG, describer())
    detector = Detector(pipeline, read, heard, Statistics(), 2)
    detector.put(None)
    wait_until(lambda: heard.faults, 'fault')
    detector.put(Scan(np.empty((0, 3), np.float32), START_NS))
    wait_until(lambda: heard.drops == ['cloud'], 'drop')
    detector.put(scan(0))
    wait_until(lambda: heard.sightings, 'keyframe')
    detector.stop()
    pipeline.close()


class LostDevice(Describer):
    """A describer whose device fails on its first use, as CUDA without memory does."""

    def describe(self, points):
        raise RuntimeError('CUDA out of memory')


def test_lost_device_goes_on_with_the_cpu_and_says_so_once():
    loads, warnings = [], []

    def load(device):
        loads.append(device)
        made = (describer if device == 'cpu' else lambda: LostDevice(PlaceModel(tiny_config())))()
        made.device = device
        return made

    safe = SafeDescriber(load, 'cuda', fallback=True, warn=warnings.append)
    points = step(0).points
    assert np.array_equal(safe.describe(points), safe.describe(points))
    assert (loads, safe.device, len(warnings)) == (['cuda', 'cpu'], 'cpu', 1)
    strict = SafeDescriber(load, 'cuda', fallback=False, warn=warnings.append)
    with pytest.raises(RuntimeError, match='CUDA'):
        strict.describe(points)


def test_missing_device_fails_or_falls_back_as_the_parameter_says():
    def load(device):
        if device != 'cpu':
            raise BackendError('torch sees no CUDA device here')
        return describer()

    with pytest.raises(BackendError, match='cuda'):
        SafeDescriber(load, 'cuda', fallback=False, warn=lambda text: None)
    assert SafeDescriber(load, 'cuda', fallback=True, warn=lambda text: None).device == 'cpu'


@pytest.fixture
def late(monkeypatch):
    """Tf that is silent is silent for good."""
    monkeypatch.setattr('lpr_ros.extrinsic.TF_WAIT_S', 0.0)


def extrinsic(lookup=None, **given):
    warnings = []
    made = Extrinsic(override(NodeConfig(), given), lookup, warnings.append)
    return made, warnings


def test_extrinsic_comes_from_tf_or_the_parameter(late):
    given = [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0]
    by_parameter, warnings = extrinsic(lambda body, sensor: None, extrinsic=given)
    assert by_parameter.T_body_sensor('base', 'lidar')[:3, 3].tolist() == given[:3]
    assert not warnings
    by_tf, _ = extrinsic(lambda body, sensor: pose(7.0), extrinsic=given)
    assert by_tf.T_body_sensor('base', 'lidar')[0, 3] == 7.0
    ignored, _ = extrinsic(
        lambda body, sensor: pose(7.0), extrinsic=given, extrinsic_source='parameter'
    )
    assert ignored.T_body_sensor('base', 'lidar')[0, 3] == 1.0


def test_tf_that_comes_after_the_first_scan_is_not_missed():
    """Or all of the drive would be on the wrong mount."""
    answers = iter([None, None, pose(7.0)])
    auto, warnings = extrinsic(lambda body, sensor: next(answers))
    assert np.array_equal(auto.newest, np.eye(4))
    for _ in range(2):
        with pytest.raises(ScanError, match='on tf'):
            auto.T_body_sensor('base', 'lidar')
    for _ in range(2):
        assert auto.T_body_sensor('base', 'lidar')[0, 3] == 7.0
    assert auto.newest[0, 3] == 7.0
    assert not warnings


def test_unknown_extrinsic_is_told_once_and_tf_that_is_silent_is_waited_for():
    unknown, warnings = extrinsic()
    for _ in range(3):
        assert np.array_equal(unknown.T_body_sensor('base', 'lidar'), np.eye(4))
    assert len(warnings) == 1
    same, warnings = extrinsic()
    same.T_body_sensor('lidar', 'lidar')
    assert not warnings
    answers = iter([None, pose(7.0)])
    strict, _ = extrinsic(lambda body, sensor: next(answers), extrinsic_source='tf')
    with pytest.raises(ScanError, match='on tf'):
        strict.T_body_sensor('base', 'lidar')
    assert strict.T_body_sensor('base', 'lidar')[0, 3] == 7.0
    with pytest.raises(BackendError, match='tf2_ros'):
        extrinsic(None, extrinsic_source='tf')


@pytest.mark.parametrize(('state', 'new', 'total', 'expected'), [
    ('active', {'scans': 10}, {}, (OK, 'scans arrive')),
    ('active', {}, {}, (OK, 'waiting for scans')),
    ('inactive', {'dropped.empty': 3}, {}, (OK, 'inactive')),
    ('inactive', {'faults': 1}, {}, (ERROR, 'errors that nobody foresaw: see the log')),
    ('active', {'scans': 10, 'dropped.newer_scan': 5}, {}, (OK, 'scans arrive')),
    ('active', {'scans': 10, 'dropped.newer_scan': 6}, {}, (WARN, 'dropped: 6 newer_scan')),
    ('active', {'dropped.loop.lio_sam': 2}, {}, (WARN, 'dropped: 2 loop.lio_sam')),
    ('active', {'scans': 1}, {'accepted': 9}, (OK, 'scans arrive')),
    ('active', {'scans': 1}, {'accepted': 99, 'loops': 1}, (OK, 'scans arrive')),
    ('active', {'scans': 1}, {'accepted': 10},
     (WARN, 'every loop contradicts odometry: see pairwise.odometry')),
])  # fmt: skip
def test_diagnostics_say_in_a_word_what_is_wrong(state, new, total, expected):
    assert judge(state, new, total) == expected


def test_a_map_that_is_not_saved_is_told_before_what_was_dropped():
    said = judge('active', {'dropped.empty': 3}, {}, map_error='the disk is full')
    assert said == (WARN, 'the map is not saved: the disk is full')


class FakeBuffer:
    """Of tf2_ros, which is not on the package index: transforms by the frame of the sensor."""

    def __init__(self, mounts):
        self._mounts = mounts

    def lookup_transform(self, body, sensor, time):
        return TransformStamped(transform=transform_message(self._mounts[sensor]))


class FakeListener:
    """Of tf2_ros: the node keeps what it subscribes to until it is unregistered."""

    listening = 0

    def __init__(self, buffer, node):
        FakeListener.listening += 1

    def unregister(self):
        FakeListener.listening -= 1


def test_every_keyframe_goes_with_the_mount_of_the_lidar_that_saw_it(ros, monkeypatch):
    """Two LiDARs in turn, as tf knows them."""
    mounts = {'left': pose(1.0), 'right': pose(-1.0)}
    tf = SimpleNamespace(Buffer=lambda: FakeBuffer(mounts), TransformListener=FakeListener,
                         TransformException=KeyError)  # fmt: skip
    monkeypatch.setitem(sys.modules, 'tf2_ros', tf)
    settings = {'weights': str(write_weights(ros.folder / 'weights.safetensors'))}
    running = engine.Engine(ros.node(), override(NodeConfig(), settings), Statistics())
    try:
        for number, lidar in enumerate(['left', 'right', 'right', 'left', 'left']):
            sent = step(number)
            T_odom_body = sent.T_odom_sensor @ np.linalg.inv(mounts[lidar])
            running._on_odometry(odometry_message(sent.stamp_ns, 'odom', 'base', T_odom_body))
            cloud = cloud_message(sent.stamp_ns, lidar, pack_cloud(sent.points))
            running._on_points(cloud, {})
            wait_until(lambda wanted=number + 1: len(running._mounts) == wanted, 'a keyframe')
            assert np.array_equal(running._mounts[number], mounts[lidar])
            place = running._detector.pipeline.database.place(number)
            np.testing.assert_allclose(place.T_odom_sensor, sent.T_odom_sensor, atol=1e-9)
        assert FakeListener.listening == 1
    finally:
        running.close()
    assert FakeListener.listening == 0
    config = override(NodeConfig(), settings | {'load_map': True, 'map_path': __file__})
    with pytest.raises(MapError):
        engine.Engine(ros.node(), config, Statistics())
    assert FakeListener.listening == 0
