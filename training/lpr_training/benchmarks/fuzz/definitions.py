"""Fuzz target: message definitions of bags."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from rosbags.interfaces import MessageDefinition, MessageDefinitionFormat

from lpr_ros.core.recordings.message_types import (
    CLOUD_TYPES,
    DECODED_TYPES,
    POSE_TYPES,
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

HOSTILE_IDL = (
    b'const uint64 X = 9 << 999999999;',
    b'string<99999999999999999999> s;',
    b'struct A : B { int32 x; };',
    b'@a(', b'"', b'/*', b'//', b'{', b'}', b'\\',
)  # fmt: skip


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


def idl_definitions(folder: Path) -> Target:
    """Return a target that damages IDL definitions; they are searched, never evaluated."""
    types = sorted(CLOUD_TYPES + POSE_TYPES)
    valid = {name: _idl(name).encode() for name in types}

    def make(random: Random) -> tuple[str, str]:
        name = random.choice(types)
        return name, damage([valid[name]], random, IDL_MUTATIONS).decode('utf-8', 'replace')

    def read(damaged: tuple[str, str]) -> None:
        name, text = damaged
        check_definition(name, MessageDefinition(MessageDefinitionFormat.IDL, text), is_ros2=True)

    for name in types:
        read((name, valid[name].decode()))
    return Target('idl definitions', make, read, 'msg/')


def _idl(msgtype: str) -> str:
    """Return an IDL definition with the fields of a standard type; their types do not matter."""
    package, kind, name = msgtype.split('/')
    fields = [f for f, _ in standard_types(True).fielddefs[msgtype][1]]
    body = '\n'.join(f'@verbatim (text="a; b") sequence<double, 3> {f};' for f in fields)
    return f'module {package} {{ module {kind} {{ // {{\nstruct {name} {{\n{body}\n}}; }}; }};'


def add_line(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Insert a hostile field."""
    lines = bytes(data).split(b'\n')
    lines.insert(random.randrange(len(lines) + 1), random.choice(HOSTILE_LINES))
    return bytearray(b'\n'.join(lines))


def add_idl(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Insert a hostile expression, or a token many times."""
    position = random.randrange(len(data) + 1)
    piece = random.choice(HOSTILE_IDL) * random.choice((1, 2, 1000))
    return bytearray(bytes(data[:position]) + piece + bytes(data[position:]))


MUTATIONS: tuple[Mutation, ...] = (*TEXT, add_line, add_line)
IDL_MUTATIONS: tuple[Mutation, ...] = (*TEXT, add_idl, add_idl)
