"""Wild-Places: both released layouts, their inconsistencies, and the published splits."""

import numpy as np
import pytest
from toy_recordings import assert_same_places, make_scans

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.base import PlaceSample
from lpr_training.datasets.registry import make_dataset
from lpr_training.datasets.splits import wild_places as sets
from lpr_training.datasets.wild_places import WildPlacesDataset, write_wild_places

FOLDERS = {'v2': 'Venman/V-01', 'v3': 'V-01'}
TABLES = {'v2': 'poses_aligned.csv', 'v3': 'submap_poses.csv'}


def place_at(x, y, stamp_s):
    T = np.eye(4)
    T[:2, 3] = x, y
    return PlaceSample(np.ones((3, 3), np.float32), T, stamp_s * 10**9, '', '')


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
    """Make the stamps of the table name no file, as in release v2."""
    head, *rows = path.read_text().splitlines()
    rows = [','.join(['1.6e9', *row.split(',')[1:]]) for row in rows]
    path.write_text('\n'.join([head, *rows]) + '\n')


def test_rows_match_clouds_by_time_order_if_stamps_do_not_match(tmp_path):
    write_wild_places(tmp_path, 'v2', 'V-01', make_scans(12))
    break_timestamps(tmp_path / 'Venman/V-01/poses_aligned.csv')
    assert_same_places(WildPlacesDataset(tmp_path), make_scans(12), atol=1e-12)


def test_unmatched_stamps_with_another_number_of_clouds_are_rejected(tmp_path):
    write_wild_places(tmp_path, 'v2', 'V-01', make_scans(4))
    folder = tmp_path / 'Venman/V-01'
    break_timestamps(folder / 'poses_aligned.csv')
    next((folder / 'Clouds_downsampled').iterdir()).unlink()
    with pytest.raises(DatasetError, match=r'1.6e9 has no cloud, and 4 rows .* the 3 clouds of'):
        WildPlacesDataset(tmp_path)


def test_a_cloud_not_named_by_its_stamp_is_reported(tmp_path):
    write_wild_places(tmp_path, 'v2', 'V-01', make_scans(3))
    clouds = tmp_path / 'Venman/V-01/Clouds_downsampled'
    next(clouds.iterdir()).rename(clouds / 'copy.pcd')
    with pytest.raises(DatasetError, match=r"Clouds_downsampled: .* a time, got 'copy'"):
        WildPlacesDataset(tmp_path)


def test_rows_in_any_order_are_matched_by_name(tmp_path):
    write_wild_places(tmp_path, 'v2', 'V-01', make_scans(4))
    path = tmp_path / 'Venman/V-01/poses_aligned.csv'
    head, *rows = path.read_text().splitlines()
    path.write_text('\n'.join([head, *reversed(rows)]))
    assert_same_places(WildPlacesDataset(tmp_path), reversed(list(make_scans(4))), atol=1e-12)


def test_mixed_layouts_of_the_released_scripts_are_read(tmp_path):
    """Folder and clouds of v3 with the table name and column of v2."""
    write_wild_places(tmp_path, 'v3', 'V-02', make_scans(3))
    path = tmp_path / 'V-02/submap_poses.csv'
    path.with_name('poses_aligned.csv').write_text(path.read_text().replace('%time', 'timestamp'))
    path.unlink()
    assert_same_places(WildPlacesDataset(tmp_path), make_scans(3), atol=1e-12)


@pytest.mark.parametrize(
    ('old', 'new', 'expected'),
    [
        (',qw\n', '\n', "line 1: expected columns .* 'qw' is missing"),
        ('0.1,', 'nan,', "line 2, column 'y'"),
        ('0.0,1.0\n', '0.0,0.0\n', 'line 2: expected a unit quaternion'),
    ],
)
def test_invalid_tables_are_reported_with_their_file(tmp_path, old, new, expected):
    write_wild_places(tmp_path, 'v3', 'V-01', [place_at(0.3, 0.1, 5), place_at(0.4, 0.1, 6)])
    path = tmp_path / 'V-01/submap_poses.csv'
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DatasetError, match=expected) as error:
        WildPlacesDataset(tmp_path)
    assert str(path) in str(error.value)


def test_a_truncated_cloud_is_reported_with_its_file(tmp_path):
    write_wild_places(tmp_path / 'a', 'v2', 'V-01', make_scans(1))
    write_wild_places(tmp_path / 'b', 'v3', 'V-01', make_scans(1))
    for name, expected in (('a', r'\.pcd: expected 200 points'), ('b', r'\.bin: expected rows')):
        dataset = WildPlacesDataset(tmp_path / name)
        dataset.path(0).write_bytes(dataset.path(0).read_bytes()[:-3])
        with pytest.raises(DatasetError, match=expected):
            dataset[0]


def test_missing_files_are_reported(tmp_path):
    (tmp_path / 'Venmann').mkdir()
    with pytest.raises(DatasetError, match=r'/V-01/.*\(v3\) or .*\(v2\).*got Venmann in'):
        WildPlacesDataset(tmp_path)
    with pytest.raises(DatasetError, match=r"got \['V-09'\]"):
        WildPlacesDataset(tmp_path, sequences=['V-09'])
    (tmp_path / 'V-01').mkdir()
    with pytest.raises(DatasetError, match=r'V-01/submap_poses.csv or poses_aligned.csv, found'):
        WildPlacesDataset(tmp_path)


def test_in_polygon_agrees_with_matplotlib():
    path = pytest.importorskip('matplotlib.path')
    rng = np.random.default_rng(0)
    for site, polygons in sets.POLYGONS.items():
        xy = rng.uniform(-600, 700, size=(5000, 2))
        for corners in polygons:
            expected = path.Path([*corners, corners[0]]).contains_points(xy)
            np.testing.assert_array_equal(sets.in_polygon(xy, corners), expected)
        assert (sets.split_of(site, xy) == sets.TEST).any()


def test_test_polygons_take_precedence_over_buffers():
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


def test_training_uses_two_sequences_per_site_and_separates_the_sites(tmp_path):
    write_site_pair(tmp_path)
    train = sets.training_dataset(tmp_path)
    assert set(train.runs) == {'V-01', 'V-02', 'K-01', 'K-02'}
    assert (train.runs.count('V-01'), train.runs.count('K-01')) == (
        3,
        4,
    )  # one place of Venman is in a buffer
    tuples = sets.training_tuples(train)
    for i in range(len(train)):
        near = [train.runs[j][0] for j in tuples.non_negatives[i]]
        assert set(near) == {train.runs[i][0]}
        assert i not in tuples.positives[i]
    # The second place of the same run and two of the other run are within 3 m.
    assert len(tuples.positives[0]) == 3
    assert len(sets.training_dataset(tmp_path, split=sets.TEST)) == 4


def test_intra_dataset_is_in_time_order(tmp_path):
    write_wild_places(tmp_path, 'v3', 'K-03', [place_at(0, 0, 9), place_at(1, 0, 5)])
    dataset = sets.intra_dataset(tmp_path, 'K-03')
    assert dataset.stamps_ns.tolist() == [5 * 10**9, 9 * 10**9]
    assert dataset.positions[:, 0].tolist() == [1.0, 0.0]
