import struct

import numpy as np
import pytest
from recordings import assert_same_places, make_scans

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets import make_dataset
from lpr_training.datasets import wild_places_sets as sets
from lpr_training.datasets.pcd import lzf_decompress, read_pcd, write_pcd
from lpr_training.datasets.records import Place
from lpr_training.datasets.wild_places import WildPlacesDataset, write_wild_places

FOLDERS = {'v2': 'Venman/V-01', 'v3': 'V-01'}
TABLES = {'v2': 'poses_aligned.csv', 'v3': 'submap_poses.csv'}


def place_at(x, y, stamp_s):
    T = np.eye(4)
    T[:2, 3] = x, y
    return Place(np.ones((3, 3), np.float32), T, stamp_s * 10**9, '', '')


@pytest.mark.parametrize('layout', ['v2', 'v3'])
def test_written_sequence_reads_back(tmp_path, layout):
    write_wild_places(tmp_path, layout, 'V-01', make_scans(4))
    write_wild_places(tmp_path, layout, 'K-03', make_scans(2, seed=9))
    dataset = make_dataset('wild_places', tmp_path)
    assert_same_places(dataset, [*make_scans(4), *make_scans(2, seed=9)], atol=1e-12)
    assert dataset.runs == ('V-01',) * 4 + ('K-03',) * 2
    assert (tmp_path / FOLDERS[layout] / TABLES[layout]).exists()


def test_v3_files_are_float32_with_intensity(tmp_path):
    write_wild_places(tmp_path, 'v3', 'V-01', make_scans(1))
    (path,) = (tmp_path / 'V-01/Clouds_downsampled').iterdir()
    assert path.name == '1700000000.123456000.bin'
    raw = np.fromfile(path, np.float32).reshape(-1, 4)
    np.testing.assert_array_equal(raw[:, 3], next(make_scans(1)).intensity)
    header = (tmp_path / 'V-01/submap_poses.csv').read_text().splitlines()[0]
    assert header == '%time,x,y,z,qx,qy,qz,qw'


def break_timestamps(path):
    """As in the old release: the stamps in the table name no file."""
    head, *rows = path.read_text().splitlines()
    rows = [','.join(['1.6e9', *row.split(',')[1:]]) for row in rows]
    path.write_text('\n'.join([head, *rows]) + '\n')


def test_broken_v2_stamps_are_matched_in_order_of_time(tmp_path):
    write_wild_places(tmp_path, 'v2', 'V-01', make_scans(12))
    break_timestamps(tmp_path / 'Venman/V-01/poses_aligned.csv')
    assert_same_places(WildPlacesDataset(tmp_path), make_scans(12), atol=1e-12)


def test_broken_stamps_with_another_number_of_clouds_are_refused(tmp_path):
    write_wild_places(tmp_path, 'v2', 'V-01', make_scans(4))
    folder = tmp_path / 'Venman/V-01'
    break_timestamps(folder / 'poses_aligned.csv')
    next((folder / 'Clouds_downsampled').iterdir()).unlink()
    with pytest.raises(DatasetError, match=r'1.6e9 has no cloud, and 4 rows .* the 3 clouds of'):
        WildPlacesDataset(tmp_path)


def test_a_cloud_not_named_by_its_time_is_named(tmp_path):
    write_wild_places(tmp_path, 'v2', 'V-01', make_scans(3))
    clouds = tmp_path / 'Venman/V-01/Clouds_downsampled'
    next(clouds.iterdir()).rename(clouds / 'copy.pcd')
    with pytest.raises(DatasetError, match=r"Clouds_downsampled: .* a time, got 'copy'"):
        WildPlacesDataset(tmp_path)


def test_rows_out_of_order_are_matched_by_name(tmp_path):
    write_wild_places(tmp_path, 'v2', 'V-01', make_scans(4))
    path = tmp_path / 'Venman/V-01/poses_aligned.csv'
    head, *rows = path.read_text().splitlines()
    path.write_text('\n'.join([head, *reversed(rows)]))
    assert_same_places(WildPlacesDataset(tmp_path), reversed(list(make_scans(4))), atol=1e-12)


def test_the_mixed_conventions_of_the_released_scripts(tmp_path):
    """The new folder and clouds with the old table name and column."""
    write_wild_places(tmp_path, 'v3', 'V-02', make_scans(3))
    path = tmp_path / 'V-02/submap_poses.csv'
    path.with_name('poses_aligned.csv').write_text(path.read_text().replace('%time', 'timestamp'))
    path.unlink()
    assert_same_places(WildPlacesDataset(tmp_path), make_scans(3), atol=1e-12)


@pytest.mark.parametrize(
    ('old', 'new', 'expected'),
    [
        (',qw\n', '\n', "line 1: expected columns .* no 'qw'"),
        ('0.1,', 'nan,', "line 2, column 'y'"),
        ('0.0,1.0\n', '0.0,0.0\n', 'line 2: expected a unit quaternion'),
    ],
)
def test_bad_tables_name_the_file(tmp_path, old, new, expected):
    write_wild_places(tmp_path, 'v3', 'V-01', [place_at(0.3, 0.1, 5), place_at(0.4, 0.1, 6)])
    path = tmp_path / 'V-01/submap_poses.csv'
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DatasetError, match=expected) as error:
        WildPlacesDataset(tmp_path)
    assert str(path) in str(error.value)


def test_a_truncated_cloud_names_itself(tmp_path):
    write_wild_places(tmp_path / 'a', 'v2', 'V-01', make_scans(1))
    write_wild_places(tmp_path / 'b', 'v3', 'V-01', make_scans(1))
    for name, expected in (('a', r'\.pcd: expected 200 points'), ('b', r'\.bin: expected rows')):
        dataset = WildPlacesDataset(tmp_path / name)
        dataset.path(0).write_bytes(dataset.path(0).read_bytes()[:-3])
        with pytest.raises(DatasetError, match=expected):
            dataset[0]


def test_what_is_missing_is_said_in_words(tmp_path):
    (tmp_path / 'Venmann').mkdir()
    with pytest.raises(DatasetError, match=r'/V-01/.*\(v3\) or .*\(v2\).*got Venmann in'):
        WildPlacesDataset(tmp_path)
    with pytest.raises(DatasetError, match=r"got \['V-09'\]"):
        WildPlacesDataset(tmp_path, sequences=['V-09'])
    (tmp_path / 'V-01').mkdir()
    with pytest.raises(DatasetError, match=r'V-01/submap_poses.csv or poses_aligned.csv, found'):
        WildPlacesDataset(tmp_path)


def test_polygons_agree_with_another_implementation():
    path = pytest.importorskip('matplotlib.path')
    rng = np.random.default_rng(0)
    for site, polygons in sets.POLYGONS.items():
        xy = rng.uniform(-600, 700, size=(5000, 2))
        for corners in polygons:
            expected = path.Path([*corners, corners[0]]).contains_points(xy)
            np.testing.assert_array_equal(sets.in_polygon(xy, corners), expected)
        assert (sets.split_of(site, xy) == sets.TEST).any()


def test_a_polygon_outweighs_a_buffer():
    # inside P1 of Venman and within 30 m of the buffer at (-433, -82); then below the polygon
    xy = np.array([[-433.0, -75.0], [-433.0, -90.0], [-433.0, -113.0]])
    assert sets.split_of('Venman', xy).tolist() == [sets.TEST, sets.BUFFER, sets.TRAIN]


def write_site_pair(root):
    for letter in 'VK':
        for number in (1, 2, 3, 4):
            places = [place_at(1000.0 + 2 * i, 1000.0, 10 * number + i) for i in range(3)]
            places += [place_at(-433.0, -90.0, 50), place_at(-250.0, -190.0, 51)]
            if letter == 'K':
                places[-1] = place_at(-400.0, 100.0, 51)
            write_wild_places(root, 'v3', f'{letter}-{number:02d}', places)


def test_training_pools_two_sequences_of_each_site_and_moves_the_sites_apart(tmp_path):
    write_site_pair(tmp_path)
    train = sets.training_dataset(tmp_path)
    assert set(train.runs) == {'V-01', 'V-02', 'K-01', 'K-02'}
    assert (train.runs.count('V-01'), train.runs.count('K-01')) == (3, 4)  # buffer: Venman's only
    tuples = sets.training_tuples(train)
    for i in range(len(train)):
        near = [train.runs[j][0] for j in tuples.non_negatives[i]]
        assert set(near) == {train.runs[i][0]}
        assert i not in tuples.positives[i]
    # the first of V-01: the second of its own run and two of the other run are within 3 m
    assert len(tuples.positives[0]) == 3
    assert len(sets.training_dataset(tmp_path, split=sets.TEST)) == 4


def test_intra_dataset_is_in_order_of_time(tmp_path):
    write_wild_places(tmp_path, 'v3', 'K-03', [place_at(0, 0, 9), place_at(1, 0, 5)])
    dataset = sets.intra_dataset(tmp_path, 'K-03')
    assert dataset.stamps_ns.tolist() == [5 * 10**9, 9 * 10**9]
    assert dataset.positions[:, 0].tolist() == [1.0, 0.0]


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


def lzf_literals(raw):
    return b''.join(bytes([len(raw[i : i + 32]) - 1]) + raw[i : i + 32]
                    for i in range(0, len(raw), 32))  # fmt: skip


def test_compressed_pcd_holds_field_after_field(tmp_path):
    packed = lzf_literals(POINTS.T.tobytes())
    body = struct.pack('<II', len(packed), POINTS.nbytes) + packed
    good = pcd('x y z', '4 4 4', 'F F F', '1 1 1', 'binary_compressed', body)
    (tmp_path / 'a.pcd').write_bytes(good)
    np.testing.assert_array_equal(read_pcd(tmp_path / 'a.pcd'), POINTS)
    (tmp_path / 'b.pcd').write_bytes(good[:-40])
    with pytest.raises(DatasetError, match=r'b.pcd: expected 600 bytes'):
        read_pcd(tmp_path / 'b.pcd')


def test_lzf_copies_may_overlap_themselves():
    # 'ab', then 10 bytes from 2 back; then a long copy (7 + 1 + 2) from 12 back
    assert lzf_decompress(b'\x01ab' + b'\xe0\x01\x01') == b'ab' * 6
    assert lzf_decompress(b'\x01ab' + b'\x40\x00') == b'abbbbb'
    with pytest.raises(IndexError):
        lzf_decompress(b'\x00a' + b'\x20\x05')


@pytest.mark.parametrize(
    ('content', 'expected'),
    [
        (b'not a pcd', 'expected a PCD header'),
        (pcd('x y', '4 4', 'F F', '1 1', 'binary', b''), 'expected fields x, y and z'),
        (pcd('x y z', '4 4', 'F F F', '1 1 1', 'binary', b''), 'expected a PCD header with'),
        (pcd('x y z', '4 4 4', 'F F F', '1 1 1', 'zip', b''), "got 'zip'"),
        (pcd('x y z', '4 4 4', 'F F F', '1 1 1', 'ascii', b'1 2 3'), 'got 3 numbers'),
    ],
)
def test_bad_pcd_files(tmp_path, content, expected):
    (tmp_path / 'a.pcd').write_bytes(content)
    with pytest.raises(DatasetError, match=expected):
        read_pcd(tmp_path / 'a.pcd')
