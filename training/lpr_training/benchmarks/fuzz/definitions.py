"""Fuzz target: message definitions of bags."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat

from lpr_ros.core.recordings.message_types import (
    DECODED_TYPES,
    TRANSFORM_TYPES,
    check_definition,
    standard_types,
)
from lpr_training.benchmarks.fuzz.mutations import TEXT, Mutation, damage
from lpr_training.benchmarks.fuzz.target import Target

HOSTILE_LINES = (
    b'string[50000000] padding',
    b'float64[4294967295] padding',
    b'uint8[<=2000000000] padding',
    b'PointCloud2 itself',
    b'uint8 X=' + b'9' * 5000,
    b'string s "' + b'x' * 5000,
)


def definitions(folder: Path) -> Target:
    """Return a target that damages the definition of a type; what is accepted is standard."""
    types = sorted(DECODED_TYPES - set(TRANSFORM_TYPES))
    store = standard_types(True)
    valid = {name: store.generate_msgdef(name, ros_version=2)[0].encode() for name in types}

    def make(random: Random) -> tuple[str, str]:
        name = random.choice(types)
        return name, damage([valid[name]], random, MUTATIONS).decode('utf-8', 'replace')

    def read(damaged: tuple[str, str]) -> None:
        name, text = damaged
        definition = MessageDefinition(MessageDefinitionFormat.MSG, text)
        check_definition(name, definition, is_ros2=True)

    for name in types:
        read((name, valid[name].decode()))
    return Target('definitions', make, read, 'msg/')


def add_line(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Insert a hostile field."""
    lines = bytes(data).split(b'\n')
    lines.insert(random.randrange(len(lines) + 1), random.choice(HOSTILE_LINES))
    return bytearray(b'\n'.join(lines))


MUTATIONS: tuple[Mutation, ...] = (*TEXT, add_line, add_line)
