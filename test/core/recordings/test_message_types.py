"""Message definitions inside bags: only the standard ones are accepted, none is compiled."""

import subprocess
import sys
import time

import pytest
from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat
from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from toy_recordings import MESSAGES, make_scans

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.recordings.message_types import (
    DECODED_TYPES,
    MAX_DEFINITION,
    check_definition,
    idl_field_names,
    standard_types,
)
from lpr_ros.core.recordings.open import open_recording

CLOUD = 'sensor_msgs/msg/PointCloud2'
STANDARD_CLOUD = MESSAGES.store.generate_msgdef(CLOUD, ros_version=2)[0]
# Compiling this took 5.8 GB and 32 s.
BOMB = 'string[50000000] names\n'
MEMORY_LIMIT = 1 << 30


def write_bag_with_definitions(path, topics, storage=StoragePlugin.MCAP):
    """Write a bag with one cloud per topic, from topic -> (type, definition text)."""
    with Writer(path, version=9, storage_plugin=storage) as writer:
        for topic, (msgtype, text) in topics.items():
            made = writer.add_connection(topic, msgtype, msgdef=text, rihs01='RIHS01_0')
            for scan in make_scans(2):
                writer.write(made, scan.stamp_ns, MESSAGES.serialize(MESSAGES.cloud(scan)))
    return path


@pytest.mark.parametrize('storage', list(StoragePlugin), ids=lambda s: s.name)
@pytest.mark.parametrize(
    ('definition', 'expected'),
    [
        (BOMB + STANDARD_CLOUD, r"fields \['names', 'header', .*expected \['header', 'height'"),
        (STANDARD_CLOUD.replace('uint32 width', 'uint64 width'), r'not the standard message'),
        (
            STANDARD_CLOUD.replace('string name', BOMB),
            r'sensor_msgs/msg/PointField has the fields',
        ),
        ('float32[] ranges\n', r"fields \['ranges'\], expected \['header', .*convert the bag"),
        ('uint32 \x00', 'the definition of sensor_msgs/msg/PointCloud2 is damaged'),
        ('#' * (MAX_DEFINITION + 1), 'has 100001 characters, expected at most 100000'),
    ],
    ids=['bomb', 'other type', 'bomb below', 'other fields', 'damaged', 'long'],
)
def test_bag_with_a_nonstandard_cloud_definition_is_refused(
    tmp_path, definition, expected, storage
):
    path = write_bag_with_definitions(tmp_path / 'bag', {'/points': (CLOUD, definition)}, storage)
    with pytest.raises(DatasetError, match=expected) as error:
        open_recording(path)
    assert str(path) in str(error.value)


STANDARD_IDL = """
================================================================================
IDL: sensor_msgs/msg/PointCloud2
#include "sensor_msgs/msg/PointField.idl"
module sensor_msgs {
  module msg {
    // a comment with a brace { and a struct Wrong { int32 x; };
    module PointCloud2_Constants { const uint8 A = 1; };
    enum Kind { ONE, TWO };
    typedef double double__36[36];
    @verbatim (language="comment", text="Fields; (of) a \\"cloud\\" }" "and more")
    struct PointCloud2 {
      std_msgs::msg::Header header;
      @unit (value="pixels; rows") @optional
      uint32 height;
      uint32 width;  /* { */
      sequence<sensor_msgs::msg::PointField> fields;
      boolean is_bigendian;
      uint32 point_step;
      uint32 row_step;
      sequence<uint8> data;
      @default (value=FALSE)
      boolean is_dense;
    };
  };
};
"""


def idl(text):
    return MessageDefinition(MessageDefinitionFormat.IDL, text)


def test_the_standard_idl_definition_is_accepted():
    check_definition(CLOUD, idl(STANDARD_IDL), is_ros2=True)
    # As rosbag2 writes a type that has only an .idl file.
    names = idl_field_names(STANDARD_IDL)['sensor_msgs/msg/PointCloud2']
    assert names == [name for name, _ in standard_types(True).fielddefs[CLOUD][1]]


@pytest.mark.parametrize(
    ('old', 'new', 'expected'),
    [
        ('uint32 width;', '', r"has the fields \['header', 'height', 'fields'"),
        ('uint32 height;', 'uint32 height; double extra[3];', "'height', 'extra', 'width'"),
        ('module sensor_msgs', 'module other_msgs', 'it defines other types only'),
        (STANDARD_IDL, '', 'it defines other types only'),
        ('uint32 width;', '@' * MAX_DEFINITION, 'expected at most 100000'),
    ],
    ids=['missing', 'extra', 'other package', 'empty', 'long'],
)
def test_a_nonstandard_idl_definition_is_refused(old, new, expected):
    with pytest.raises(DatasetError, match=expected):
        check_definition(CLOUD, idl(STANDARD_IDL.replace(old, new)), is_ros2=True)


@pytest.mark.parametrize(
    'unit', ['"\\\\"', '@a(', '@a', 'module a {', 'struct a {', '/*', '{', ' ']
)
def test_searching_an_idl_definition_takes_linear_time(unit):
    text = unit * (MAX_DEFINITION // len(unit))
    started_s = time.process_time()
    idl_field_names(text)
    assert time.process_time() - started_s < 2.0


def test_bag_with_a_nonstandard_idl_definition_is_refused(tmp_path):
    path = write_bag_with_definitions(tmp_path / 'bag', {'/points': (CLOUD, 'x')})
    data = (tmp_path / 'bag/bag.mcap').read_bytes()
    assert b'ros2msg' in data
    (tmp_path / 'bag/bag.mcap').write_bytes(data.replace(b'ros2msg', b'ros2idl'))
    with pytest.raises(DatasetError, match='it defines other types only'):
        open_recording(path)


@pytest.mark.parametrize('topic', ['/points', '/other'])
def test_bag_with_a_definition_bomb_is_handled_in_bounded_memory_and_time(tmp_path, topic):
    """The bomb is refused in a type that is read and ignored in another."""
    bomb = {'/points': (CLOUD, BOMB), '/other': ('custom_msgs/msg/Other', BOMB)}
    topics = {'/points': (CLOUD, STANDARD_CLOUD), topic: bomb[topic]}
    path = write_bag_with_definitions(tmp_path / 'bag', topics)
    code = (
        'import resource, sys\n'
        'from lpr_ros.core.errors import DatasetError\n'
        'from lpr_ros.core.recordings.open import open_recording\n'
        f'resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_LIMIT}, {MEMORY_LIMIT}))\n'
        'try:\n'
        '    print(len(list(open_recording(sys.argv[1]))))\n'
        'except DatasetError as error:\n'
        '    print(error)\n'
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, '-c', code, str(path)], capture_output=True, text=True, check=True
    )
    assert time.monotonic() - started < 20.0
    expected = 'is not the standard message' if topic == '/points' else '2\n'
    assert expected in done.stdout


@pytest.mark.parametrize('definition', ['', 'package_missing/msg/Part part\n', 'not a definition'])
def test_bag_with_unknown_types_on_other_topics_is_read(tmp_path, definition):
    topics = {
        '/a_custom': ('custom_msgs/msg/Other', definition),
        '/points': (CLOUD, STANDARD_CLOUD),
    }
    recording = open_recording(write_bag_with_definitions(tmp_path / 'bag', topics))
    assert recording.cloud_topic == '/points'
    assert len(list(recording)) == 2


def test_bag_with_encoded_clouds_only_is_refused_by_name(tmp_path):
    """point_cloud_transport has messages of its own, which are not decoded."""
    kind = 'point_cloud_interfaces/msg/CompressedPointCloud2'
    topics = {'/points/draco': (kind, 'uint8[] compressed_data\n')}
    path = write_bag_with_definitions(tmp_path / 'bag', topics)
    with pytest.raises(DatasetError, match=rf'no PointCloud2 topic; .*/points/draco \({kind}\)'):
        open_recording(path)


def test_ros1_bag_with_a_nonstandard_definition_is_refused(tmp_path):
    path = tmp_path / 'drive.bag'
    with Ros1Writer(path) as writer:
        writer.add_connection('/points', CLOUD, msgdef=BOMB, md5sum='0' * 32)
    with pytest.raises(DatasetError, match=r"drive.bag: .*has the fields \['names'\]"):
        open_recording(path)


@pytest.mark.parametrize(
    'store', [s for s in Stores if s is not Stores.EMPTY], ids=lambda store: store.name
)
def test_definitions_of_every_distribution_are_standard(store):
    is_ros2 = store is not Stores.ROS1_NOETIC
    types = get_typestore(store) if is_ros2 else standard_types(is_ros2=False)
    known = DECODED_TYPES & types.fielddefs.keys()
    assert len(known) >= 5
    for msgtype in known:
        text, _ = types.generate_msgdef(msgtype, ros_version=2 if is_ros2 else 1)
        definition = MessageDefinition(MessageDefinitionFormat.MSG, text)
        check_definition(msgtype, definition, is_ros2)
