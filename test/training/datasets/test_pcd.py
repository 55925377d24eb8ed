"""PCD files: all encodings, LZF decompression against a slow loop, damaged files."""

import struct

import numpy as np
import pytest

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.formats.lzf import lzf_decompress
from lpr_training.datasets.formats.pcd import read_pcd, write_pcd

POINTS = np.random.default_rng(2).normal(size=(50, 3)).astype(np.float32)
HEAD = 'VERSION 0.7\nFIELDS {fields}\nSIZE {sizes}\nTYPE {types}\nCOUNT {counts}\n'


def pcd(fields, sizes, types, counts, data, body, points=50):
    head = HEAD.format(fields=fields, sizes=sizes, types=types, counts=counts)
    return f'{head}WIDTH {points}\nHEIGHT 1\nPOINTS {points}\nDATA {data}\n'.encode() + body


def test_pcd_round_trip(tmp_path):
    write_pcd(tmp_path / 'a.pcd', POINTS)
    np.testing.assert_array_equal(read_pcd(tmp_path / 'a.pcd'), POINTS)


def test_pcd_with_other_fields_and_padding(tmp_path):
    body = b''.join(struct.pack('<dd4xdH', x, y, z, 7) for x, y, z in POINTS)
    (tmp_path / 'a.pcd').write_bytes(
        pcd('x y _ z ring', '8 8 1 8 2', 'F F U F U', '1 1 4 1 1', 'binary', body)
    )
    np.testing.assert_array_equal(read_pcd(tmp_path / 'a.pcd'), POINTS)


def test_ascii_pcd(tmp_path):
    body = '\n'.join(f'{i} {x!r} {y!r} {z!r}' for i, (x, y, z) in enumerate(POINTS.tolist()))
    (tmp_path / 'a.pcd').write_bytes(
        pcd('intensity x y z', '4 4 4 4', 'F F F F', '1 1 1 1', 'ascii', body.encode())
    )
    np.testing.assert_array_equal(read_pcd(tmp_path / 'a.pcd'), POINTS)


def compress(raw: bytes) -> bytes:
    """Compress greedily like liblzf."""
    packed, latest, literal_start, i = bytearray(), {}, 0, 0

    def flush(end):
        for start in range(literal_start, end, 32):
            literals = raw[start : min(start + 32, end)]
            packed.append(len(literals) - 1)
            packed.extend(literals)

    while i < len(raw) - 2:
        source = latest.get(raw[i : i + 3], -1)
        latest[raw[i : i + 3]] = i
        if source < 0 or i - source > 8192:
            i += 1
            continue
        length = 3
        while i + length < len(raw) and length < 264 and raw[source + length] == raw[i + length]:
            length += 1
        flush(i)
        offset, code = i - source - 1, length - 2
        packed.append((min(code, 7) << 5) | (offset >> 8))
        if code >= 7:
            packed.append(code - 7)
        packed.append(offset & 255)
        i += length
        literal_start = i
    flush(len(raw))
    return bytes(packed)


def slow_decompress(data: bytes) -> bytes:
    """Decompress byte by byte."""
    out, i = bytearray(), 0
    while i < len(data):
        control = data[i]
        i += 1
        if control < 32:
            out += data[i : i + control + 1]
            i += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += data[i]
            i += 1
        start = len(out) - ((control & 31) << 8) - data[i] - 1
        i += 1
        if start < 0:
            raise IndexError
        for k in range(start, start + length + 2):
            out.append(out[k])
    return bytes(out)


@pytest.mark.parametrize('step', [0.0, 0.01, 0.25])
def test_lzf_decompress_equals_the_slow_loop(step, rng):
    """Coarser coordinates compress to more and longer copies."""
    points = rng.normal(0.0, 5.0, (3000, 3))
    points = (np.round(points / step) * step if step else points).astype(np.float32)
    raw = np.concatenate([points.T.ravel(), np.zeros(700, np.float32)]).tobytes()
    packed = compress(raw)
    assert lzf_decompress(packed, len(raw)) == slow_decompress(packed) == raw


def test_lzf_copies_may_overlap_themselves():
    # 'ab', then a copy of 10 bytes from 2 bytes back
    assert lzf_decompress(b'\x01ab' + b'\xe0\x01\x01', 12) == b'ab' * 6
    assert lzf_decompress(b'\x01ab' + b'\x40\x00', 6) == b'abbbbb'


@pytest.mark.parametrize(
    ('packed', 'size', 'message'),
    [
        (b'\x00a' + b'\x20\x05', 4, 'damaged'),  # copies from before the start
        (b'\x05ab', 6, 'damaged'),  # literal run cut off
        (b'\x00a' + b'\xe0', 4, 'damaged'),  # length byte missing
        (b'\x00a' + b'\x20', 4, 'damaged'),  # offset byte missing
        (b'\x01ab', 1, 'damaged'),  # larger than stated
        (b'\x01ab', 3, 'damaged'),  # smaller than stated
        (b'\x01ab', 10**12, 'cannot contain 1000000000000 bytes'),
    ],
)
def test_lzf_decompress_rejects_damaged_data(packed, size, message):
    with pytest.raises(DatasetError, match=message):
        lzf_decompress(packed, size)


def test_compressed_pcd_stores_field_after_field(tmp_path):
    packed = compress(POINTS.T.tobytes())
    body = struct.pack('<II', len(packed), POINTS.nbytes) + packed
    good = pcd('x y z', '4 4 4', 'F F F', '1 1 1', 'binary_compressed', body)
    (tmp_path / 'a.pcd').write_bytes(good)
    np.testing.assert_array_equal(read_pcd(tmp_path / 'a.pcd'), POINTS)
    (tmp_path / 'b.pcd').write_bytes(good[:-40])
    with pytest.raises(DatasetError, match=r'b.pcd: expected compressed data of 600 bytes'):
        read_pcd(tmp_path / 'b.pcd')


@pytest.mark.parametrize(
    ('content', 'expected'),
    [
        (b'not a pcd', 'expected a PCD header'),
        (pcd('x y', '4 4', 'F F', '1 1', 'binary', b''), 'expected scalar fields x, y and z'),
        (pcd('x y z', '4 4', 'F F F', '1 1 1', 'binary', b''), 'expected a PCD header with'),
        (pcd('x y z', '4 4 4', 'F F F', '1 1 1', 'zip', b''), "got 'zip'"),
        (pcd('x y z', '4 4 4', 'F F F', '1 1 1', 'ascii', b'1 2 3'), 'got 3 numbers'),
    ],
)
def test_invalid_pcd_files_are_rejected(tmp_path, content, expected):
    (tmp_path / 'a.pcd').write_bytes(content)
    with pytest.raises(DatasetError, match=expected):
        read_pcd(tmp_path / 'a.pcd')
