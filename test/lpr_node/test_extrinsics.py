"""The mounting pose from tf, the parameter, or neither."""

import math

from geometry_msgs.msg import Quaternion, Transform, TransformStamped
import numpy as np
import pytest
from toy_drive import pose_at

from lpr_ros.conversions.poses import transform_message
from lpr_ros.core.config import override
from lpr_ros.core.errors import InterfaceError, ScanError
from lpr_ros.lpr_node.config import NodeConfig
from lpr_ros.lpr_node.extrinsics import MAX_FRAME_PAIRS, Extrinsic, TfLookup

PARAMETER = [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0]


def extrinsic(lookup=None, **settings):
    warnings = []
    made = Extrinsic(override(NodeConfig(), settings), lookup, warnings.append)
    return made, warnings


@pytest.fixture
def tf_has_timed_out(monkeypatch):
    monkeypatch.setattr('lpr_ros.lpr_node.extrinsics.TF_TIMEOUT_S', 0.0)


@pytest.mark.usefixtures('tf_has_timed_out')
def test_the_pose_comes_from_tf_or_the_parameter():
    by_parameter, warnings = extrinsic(lambda base, sensor: None, extrinsic=PARAMETER)
    assert by_parameter.T_base_sensor('base', 'lidar')[:3, 3].tolist() == PARAMETER[:3]
    assert not warnings
    by_tf, _ = extrinsic(lambda base, sensor: pose_at(7.0), extrinsic=PARAMETER)
    assert by_tf.T_base_sensor('base', 'lidar')[0, 3] == 7.0
    ignored, _ = extrinsic(
        lambda base, sensor: pose_at(7.0), extrinsic=PARAMETER, extrinsic_source='parameter'
    )
    assert ignored.T_base_sensor('base', 'lidar')[0, 3] == 1.0


def test_a_transform_after_the_first_scan_is_used():
    """Otherwise the whole drive would have the wrong mounting pose."""
    answers = iter([None, None, pose_at(7.0)])
    auto, warnings = extrinsic(lambda base, sensor: next(answers))
    assert np.array_equal(auto.last, np.eye(4))
    for _ in range(2):
        with pytest.raises(ScanError, match='on tf'):
            auto.T_base_sensor('base', 'lidar')
    for _ in range(2):
        assert auto.T_base_sensor('base', 'lidar')[0, 3] == 7.0
    assert auto.last[0, 3] == 7.0
    assert not warnings


def test_an_unknown_extrinsic_is_reported_once():
    unknown, warnings = extrinsic()
    for _ in range(3):
        assert np.array_equal(unknown.T_base_sensor('base', 'lidar'), np.eye(4))
    assert len(warnings) == 1
    same, warnings = extrinsic()
    same.T_base_sensor('lidar', 'lidar')
    assert not warnings


def test_source_tf_waits_for_tf():
    answers = iter([None, pose_at(7.0)])
    strict, _ = extrinsic(lambda base, sensor: next(answers), extrinsic_source='tf')
    with pytest.raises(ScanError, match='on tf'):
        strict.T_base_sensor('base', 'lidar')
    assert strict.T_base_sensor('base', 'lidar')[0, 3] == 7.0
    with pytest.raises(InterfaceError, match='tf2_ros'):
        extrinsic(None, extrinsic_source='tf')


class FakeTf:
    """tf2_ros, which is not on the package index: transforms by the frame of the sensor."""

    TransformException = KeyError

    def __init__(self):
        self.mounts, self.listening = {}, 0

    def Buffer(self):
        return self

    def lookup_transform(self, base, sensor, time):
        return TransformStamped(transform=transform_message(self.mounts[sensor]))

    def TransformListener(self, buffer, node):
        self.listening += 1
        return self

    def unregister(self):
        self.listening -= 1


def test_tf_is_listened_to_only_while_a_transform_is_missing(ros):
    """A flood of transforms must not take the time of the scans."""
    tf = FakeTf()
    lookup = TfLookup(tf, ros.node())
    assert lookup('base', 'left') is None
    assert tf.listening == 1
    tf.mounts['left'] = pose_at(1.0)
    assert lookup('base', 'left')[0, 3] == 1.0
    assert tf.listening == 0
    assert lookup('base', 'right') is None
    assert tf.listening == 1
    tf.mounts['right'] = pose_at(-1.0)
    assert lookup('base', 'right')[0, 3] == -1.0
    assert tf.listening == 0


@pytest.mark.parametrize('w', [math.nan, 0.0])
def test_an_invalid_transform_is_not_used_for_the_rest_of_the_drive(ros, monkeypatch, w):
    tf = FakeTf()
    lookup = TfLookup(tf, ros.node())
    tf.mounts['lidar'] = pose_at(1.0)
    valid = tf.lookup_transform('base', 'lidar', None)
    with monkeypatch.context() as patch:
        invalid = TransformStamped(transform=Transform(rotation=Quaternion(w=w)))
        patch.setattr(tf, 'lookup_transform', lambda *arguments: invalid)
        assert lookup('base', 'lidar') is None
    assert tf.listening == 1
    np.testing.assert_allclose(lookup('base', 'lidar')[0, 3], valid.transform.translation.x)


@pytest.mark.parametrize('is_on_tf', [True, False])
def test_frame_ids_without_end_do_not_fill_the_memory(is_on_tf):
    made, _ = extrinsic(lambda base, sensor: pose_at(1.0) if is_on_tf else None)
    for number in range(3 * MAX_FRAME_PAIRS):
        try:
            made.T_base_sensor('base', f'lidar_{number}')
        except ScanError:
            assert not is_on_tf
    assert len(made._known) <= MAX_FRAME_PAIRS
    assert len(made._first_lookup_s) <= MAX_FRAME_PAIRS
