"""Mutations of valid inputs, as caused by disks, networks, other programs and attackers."""

from collections.abc import Callable, Sequence
from random import Random
import re
import struct

NUMBER = re.compile(rb'[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?')
WORD = re.compile(rb'[^\s,:{}\[\]"]+')

# Limits of the integer types, where counts, lengths and offsets fail.
EDGE_INTEGERS = (
    0, 1, -1, 2, 127, 128, 255, 256, 2**15 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, -(2**31),
    2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64 - 1, 10**18,
)  # fmt: skip
EDGE_TEXTS = (
    b'', b'0', b'-0', b'-1', b'1e999', b'-1e308', b'1e-320', b'nan', b'-inf', b'0x10', b'1_0',
    b'9' * 30, b'9' * 5000, b'1e9999999999', b'true', b'null', b'~', b'\x00', b'\xff\xfe', b'"',
    b"'", b'[', b'{', b'- ', b'*a', b'&a', b'!!python/object:os.system', b'2001-99-99', b'?',
    '\u0663'.encode(), b'\xef\xbb\xbf', b'[' * 400, b'{a: ' * 100,
)  # fmt: skip
INTEGER_FORMATS = ('<B', '<H', '<I', '<Q', '>H', '>I', '>Q')

Mutation = Callable[[bytearray, Random, Sequence[bytes]], bytearray]


def damage(seeds: Sequence[bytes], random: Random, mutations: Sequence[Mutation]) -> bytes:
    """Return one of the seeds with one to four mutations applied."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        data = random.choice(mutations)(data, random, seeds)
    return bytes(data)


def _span(size: int, random: Random) -> tuple[int, int]:
    """Return start and end of a random, mostly short range of bytes."""
    start = random.randrange(size + 1)
    max_length = max(1, size // random.choice((1, 10, 100, 1000)))
    return start, min(size, start + random.randint(1, max_length))


def flip_bits(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Flip one to eight bits."""
    for _ in range(random.randint(1, 8) if data else 0):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return data


def set_byte(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Replace a byte."""
    if data:
        data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, 10, 32, 114))
    return data


def set_integer(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Overwrite one to eight bytes with the limit of an integer type."""
    form = random.choice(INTEGER_FORMATS)
    size = struct.calcsize(form)
    if len(data) >= size:
        value = random.choice(EDGE_INTEGERS) & (2 ** (8 * size) - 1)
        struct.pack_into(form, data, random.randrange(len(data) - size + 1), value)
    return data


def set_early_integer(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Overwrite an integer within the first 64 bytes, where headers are."""
    head = set_integer(data[:64], random, seeds)
    return head + data[64:]


def truncate(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Truncate the data."""
    return data[: random.randrange(len(data) + 1)]


def remove(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Remove a range."""
    start, end = _span(len(data), random)
    return data[:start] + data[end:]


def repeat(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Repeat a range once or many times."""
    start, end = _span(len(data), random)
    return data[:end] + data[start:end] * random.choice((1, 1, 2, 50)) + data[end:]


def insert_noise(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Insert up to 64 random bytes."""
    start = random.randrange(len(data) + 1)
    return data[:start] + random.randbytes(random.randint(1, 64)) + data[start:]


def splice(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Continue with the end of another valid input."""
    other = random.choice(seeds)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def set_number(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Replace a number of a text, possibly by something else."""
    return _replace(NUMBER, data, random)


def set_word(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Replace a word of a text."""
    return _replace(WORD, data, random)


def _replace(pattern: re.Pattern[bytes], data: bytearray, random: Random) -> bytearray:
    found = [match.span() for match in pattern.finditer(data)]
    if not found:
        return data
    start, end = random.choice(found)
    edges = (*EDGE_TEXTS, str(random.choice(EDGE_INTEGERS)).encode())
    return data[:start] + random.choice(edges) + data[end:]


def move_line(data: bytearray, random: Random, seeds: Sequence[bytes]) -> bytearray:
    """Remove, duplicate or move a line."""
    lines = bytes(data).split(b'\n')
    line = lines.pop(random.randrange(len(lines)))
    for _ in range(random.randint(0, 2)):
        lines.insert(random.randrange(len(lines) + 1), line)
    return bytearray(b'\n'.join(lines))


BINARY: tuple[Mutation, ...] = (
    flip_bits, set_byte, set_integer, set_early_integer, truncate, remove, repeat, insert_noise,
    splice,
)  # fmt: skip
TEXT: tuple[Mutation, ...] = (
    flip_bits, set_byte, truncate, remove, repeat, splice, set_number, set_number, set_word,
    move_line,
)  # fmt: skip
MIXED: tuple[Mutation, ...] = (*BINARY, set_number, set_number, set_word)
