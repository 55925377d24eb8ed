"""Oxford and In-house: files, published splits, training tuples, evaluation sets."""

import numpy as np
import pytest
from toy_recordings import SHARED_DATA, assert_same_places, make_places

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.base import Joined, PlaceSample
from lpr_training.datasets.oxford import INHOUSE, InhouseDataset, OxfordDataset, write_oxford
from lpr_training.datasets.registry import make_dataset
from lpr_training.datasets.splits import oxford as oxford_splits
from lpr_training.datasets.splits.evaluation_sets import EvaluationSets, make_evaluation_sets
from lpr_training.datasets.splits.tuples import TrainingTuples, make_tuples

RUN = '2014-05-19-13-20-57'


@pytest.fixture
def root(tmp_path):
    write_oxford(tmp_path, RUN, make_places(4))
    return tmp_path


def place_at(easting, northing, stamp_us):
    T = np.eye(4)
    T[:2, 3] = easting, northing
    return PlaceSample(np.zeros((4096, 3), np.float32), T, stamp_us * 1000, '', '')


@pytest.mark.parametrize('part', ['evaluation', 'training'])
def test_written_run_reads_back(tmp_path, part):
    write_oxford(tmp_path, RUN, make_places(4), part=part)
    dataset = make_dataset('oxford', tmp_path, part=part)
    assert_same_places(dataset, make_places(4), atol=1e-6)
    assert dataset.runs == (RUN,) * 4


def test_inhouse_run_reads_back(tmp_path):
    write_oxford(tmp_path, 'business_run1', make_places(3), layout=INHOUSE)
    assert (tmp_path / 'inhouse_datasets/business_run1/pointcloud_centroids_25.csv').exists()
    assert_same_places(InhouseDataset(tmp_path), make_places(3), atol=1e-6)


def test_files_have_the_published_format(root):
    folder = root / 'oxford' / RUN
    lines = (folder / 'pointcloud_locations_20m.csv').read_text().splitlines()
    assert lines[0] == 'timestamp,northing,easting'
    name, northing, easting = lines[1].split(',')
    assert (float(northing), float(easting)) == (5735000.5, 620000.25)
    cloud = (folder / 'pointcloud_20m' / f'{name}.bin').read_bytes()
    assert len(cloud) == 98_304
    np.testing.assert_array_equal(
        np.frombuffer(cloud, np.float64).reshape(4096, 3), next(make_places(1)).points
    )


def test_columns_are_found_by_name_in_any_order(root):
    path = root / 'oxford' / RUN / 'pointcloud_locations_20m.csv'
    name = path.read_text().splitlines()[1].split(',')[0]
    path.write_text(f'easting, timestamp, northing\n7.5, {name}, 9.5\n\n')
    dataset = OxfordDataset(root)
    np.testing.assert_array_equal(dataset.positions, [[7.5, 9.5, 0.0]])
    assert dataset[0].points.shape == (4096, 3)


def test_a_truncated_or_missing_cloud_is_reported_with_its_file(root):
    dataset = OxfordDataset(root)
    dataset.path(1).write_bytes(dataset.path(1).read_bytes()[:-8])
    with pytest.raises(DatasetError, match=r'\.bin: expected 4096 points .* 98304 bytes, got'):
        dataset[1]
    dataset.path(2).unlink()
    with pytest.raises(DatasetError, match=r'\.bin: cannot be read: No such file'):
        dataset[2]


@pytest.mark.parametrize(
    ('text', 'expected'),
    [
        ('timestamp,northing\n1,2\n', r"line 1: expected columns .* 'easting' is missing"),
        ('timestamp,northing,easting\n1,2,3\n4,nan,6\n', "line 3, column 'northing': .* 'nan'"),
        ('timestamp,northing,easting\n1,2,3\nx,5,6\n', "line 3, column 'timestamp': .* 'x'"),
        ('timestamp,northing,easting\n1,2\n', 'line 2: expected 3 values, got 2'),
        ('', 'line 1: expected columns'),
    ],
)
def test_invalid_tables_are_reported_with_their_line(root, text, expected):
    path = root / 'oxford' / RUN / 'pointcloud_locations_20m.csv'
    path.write_text(text)
    with pytest.raises(DatasetError, match=expected) as error:
        OxfordDataset(root)
    assert str(path) in str(error.value)


def test_missing_files_are_reported(tmp_path, root):
    with pytest.raises(
        DatasetError,
        match=r'expected .*/oxford/<run>/pointcloud_locations_20m_10overlap.csv and '
        rf'pointcloud_20m_10overlap/\*.bin, found {RUN} in',
    ):
        OxfordDataset(root, part='training')
    with pytest.raises(DatasetError, match='/oxford/other/'):
        OxfordDataset(root, runs=['other'])
    with pytest.raises(DatasetError, match=r'no .*elsewhere'):
        OxfordDataset(tmp_path / 'elsewhere')


def test_writer_rejects_other_clouds(tmp_path):
    with pytest.raises(DatasetError, match=r'expected \(4096, 3\) points in \[-1, 1\]'):
        write_oxford(tmp_path, RUN, make_places(2, points=100))
    assert not [p for p in tmp_path.rglob('*') if p.is_file()]


def test_an_existing_run_is_not_overwritten(root):
    with pytest.raises(DatasetError, match='pointcloud_20m already exists'):
        write_oxford(root, RUN, make_places(1))
    assert len(OxfordDataset(root)) == 4


def test_regions_exclude_their_border():
    northing, easting = oxford_splits.REGIONS['oxford'][0]
    offsets = np.array([[0, 0], [149.99, -149.99], [150.0, 0], [0, -150.0], [151, 151]])
    positions = offsets + np.array([easting, northing])
    inside = oxford_splits.in_regions(positions, [(northing, easting)])
    # Coordinates of millions of meters are exact to about a nanometer only.
    assert inside.tolist()[:2] == [True, True]
    assert not inside[4]
    exact = oxford_splits.in_regions(offsets, [(0.0, 0.0)])
    assert exact.tolist() == [True, True, False, False, False]


def test_make_tuples_equals_the_loop():
    xy = np.random.default_rng(0).uniform(0, 100, size=(200, 2))
    tuples = make_tuples(xy, 10.0, 50.0)
    for i in range(len(xy)):
        distance = np.linalg.norm(xy - xy[i], axis=1)
        near = set(np.flatnonzero(distance <= 10.0)) - {i}
        assert set(tuples.positives[i]) == near
        assert set(tuples.non_negatives[i]) == set(np.flatnonzero(distance <= 50.0))


def test_radii_are_inclusive():
    tuples = make_tuples(np.array([[0.0, 0.0], [3.0, 4.0], [50.0, 0.0]]), 5.0, 50.0)
    assert tuples.positives[0].tolist() == [1]
    assert tuples.non_negatives[0].tolist() == [0, 1, 2]
    assert tuples.positives[2].tolist() == []


def test_tuples_survive_the_round_trip(tmp_path):
    tuples = make_tuples(np.random.default_rng(0).uniform(0, 50, size=(40, 2)), 5.0, 20.0)
    tuples.save(tmp_path / 'tuples.npz')
    back = TrainingTuples.load(tmp_path / 'tuples.npz')
    assert len(back) == 40
    for i in range(40):
        np.testing.assert_array_equal(back.positives[i], tuples.positives[i])
        np.testing.assert_array_equal(back.non_negatives[i], tuples.non_negatives[i])


def test_baseline_trains_outside_the_regions_and_validates_inside(tmp_path):
    northing, easting = oxford_splits.REGIONS['oxford'][2]
    inside = [place_at(easting + 5 * i, northing, 10 + i) for i in range(3)]
    outside = [place_at(easting + 1000 + 8 * i, northing, 20 + i) for i in range(4)]
    write_oxford(tmp_path, RUN, inside + outside, part='training')
    train = oxford_splits.training_dataset(tmp_path, 'baseline')
    assert train.names == ('20', '21', '22', '23')
    held_out = oxford_splits.training_dataset(tmp_path, 'baseline', inside=True)
    assert held_out.names == ('10', '11', '12')
    tuples = oxford_splits.training_tuples(train, 'baseline')
    assert [tuples.positives[i].tolist() for i in range(4)] == [[1], [0, 2], [1, 3], [2]]


def test_refined_adds_residential_and_university_without_their_regions(tmp_path):
    write_oxford(tmp_path, RUN, [place_at(0, 0, 1)], part='training')
    for k, name in enumerate(('residential', 'university', 'business')):
        center = (oxford_splits.REGIONS[name] or ((0.0, 0.0),))[0]
        places = [place_at(center[1], center[0], 1), place_at(9e5, 9e5 + 12 * k, 2)]
        write_oxford(tmp_path, f'{name}_run1', places, part='training', layout=INHOUSE)
    train = oxford_splits.training_dataset(tmp_path, 'refined')
    assert list(zip(train.runs, train.names, strict=True)) == [
        (RUN, '1'),
        ('residential_run1', '2'),
        ('university_run1', '2'),
    ]
    assert train[2].points.shape == (4096, 3)
    tuples = oxford_splits.training_tuples(train, 'refined')
    assert tuples.positives[1].tolist() == [2]  # 12 m apart, within 12.5 m


def test_evaluation_uses_the_published_selection_of_45_runs(tmp_path):
    for i in range(45):
        write_oxford(tmp_path, f'run{i:02d}', [place_at(i, i, i + 1)])
    dataset = oxford_splits.evaluation_dataset(tmp_path, 'oxford')
    assert len(set(dataset.runs)) == 23
    published = [*range(5, 8), *range(9, 20), 22, 24, 31, 32, 33, 38, 39, 43, 44]
    assert [int(r[3:]) for r in dataset.runs] == published


def test_every_place_of_business_is_a_query(tmp_path):
    for run in ('business_run1', 'business_run2'):
        places = [place_at(30.0 * i, 0.0, i + 1) for i in range(3)]
        write_oxford(tmp_path, run, places, layout=INHOUSE)
    dataset = oxford_splits.evaluation_dataset(tmp_path, 'business')
    sets = oxford_splits.evaluation_sets(dataset, 'business')
    assert len(sets.queries) == 6
    assert [sets.true_of(q, 1 - sets.queries[q, 0]).tolist() for q in range(6)] == [
        [0],
        [1],
        [2],
        [0],
        [1],
        [2],
    ]


def test_joined_datasets_read_from_their_parts(tmp_path):
    write_oxford(tmp_path, RUN, make_places(2, seed=1))
    write_oxford(tmp_path, 'business_run1', make_places(3, seed=2), layout=INHOUSE)
    joined = Joined([OxfordDataset(tmp_path), InhouseDataset(tmp_path)])
    assert_same_places(joined, [*make_places(2, seed=1), *make_places(3, seed=2)], atol=1e-6)


def test_evaluation_sets_equal_the_loop_and_survive_the_round_trip(tmp_path):
    rng = np.random.default_rng(5)
    runs = [f'run{i}' for i in rng.integers(0, 3, size=60)]
    xy = rng.uniform(0, 80, size=(60, 2))
    is_query = rng.random(60) < 0.5
    made = make_evaluation_sets(runs, xy, is_query, 25.0)
    made.save(tmp_path / 'sets.npz')
    sets = EvaluationSets.load(tmp_path / 'sets.npz')
    assert sets.runs == made.runs == ('run0', 'run1', 'run2')
    assert len(sets.queries) == is_query.sum()
    total = 0
    for q, (own, place) in enumerate(sets.queries):
        for other in range(3):
            database = sets.database_of(other)
            near = np.linalg.norm(xy[database] - xy[place], axis=1) <= 25.0
            expected = np.flatnonzero(near) if other != own else []
            np.testing.assert_array_equal(sets.true_of(q, other), expected)
            total += len(expected)
    assert total == len(sets.true_neighbors)
    np.testing.assert_array_equal(sets.queries_of(1), np.flatnonzero(sets.queries[:, 0] == 1))


def test_generated_true_neighbors_equal_the_published_ones():
    """All 3,030 queries of the Oxford evaluation, each in the 22 other runs."""
    path = SHARED_DATA / 'protocol_oxford.npz'
    if not path.exists():
        pytest.skip(f'{path} not found')
    with np.load(path) as published:
        database, queries = published['database'], published['queries']
        expected = published['true_neighbours']
    runs = [f'{int(run):02d}' for run in database[:, 0]]
    xy = database[:, [2, 1]]
    is_query = oxford_splits.is_test_place('oxford', xy)
    sets = make_evaluation_sets(runs, xy, is_query, oxford_splits.TRUE_NEIGHBOR_M)
    # The test regions select the published queries, in the same order.
    np.testing.assert_array_equal(database[sets.queries[:, 1]], queries)
    assert (len(sets.queries), len(sets.runs)) == (3030, 23)
    order = np.lexsort(expected.T[::-1])
    np.testing.assert_array_equal(sets.true_neighbors, expected[order])
