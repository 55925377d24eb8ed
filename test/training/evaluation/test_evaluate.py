"""evaluate.py and calibrate.py end to end: every protocol, its JSON, its figures, bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_clouds import tiny_config
from toy_places import (
    write_bev_file,
    write_drive,
    write_oxford_folder,
    write_wild_places_folder,
)

import calibrate
import evaluate
from lpr_ros.core.calibration import Calibration
from lpr_ros.core.config import override
from lpr_ros.core.model.checkpoint import from_model, load_checkpoint, save_checkpoint
from lpr_ros.core.model.describer import Describer
from lpr_ros.core.model.place_model import PlaceModel
from lpr_training.datasets.kitti_bev import KittiBevDataset
from lpr_training.describing import describe_places
from lpr_training.evaluation.sequence import guess_dataset
from lpr_training.protocols.kitti_bev import evaluate_kitti_bev

INPUTS = {
    'unit': {'quantizer': 'cartesian', 'step': [0.04, 0.04, 0.04]},
    'bev': {'quantizer': 'bev', 'step': [0.8, 0.8, 0.8], 'max_range_m': 25.0},
    'metric': {'quantizer': 'cartesian', 'step': [1.0, 1.0, 1.0], 'max_range_m': 40.0},
}
HELD_OUT = {
    'source': 'kitti_bev',
    'validation_x': [60.0],
    'validation_y': [0.0],
    'validation_half_m': 40.0,
    'validation_gap': 30,
}


@pytest.fixture(scope='module')
def weights(tmp_path_factory):
    """Untrained checkpoints, one for each kind of cloud."""
    folder = tmp_path_factory.mktemp('weights')
    torch.manual_seed(0)
    for name, values in INPUTS.items():
        config = override(tiny_config(), {f'input.{k}': v for k, v in values.items()})
        if name == 'unit':
            config = override(config, {'input.max_range_m': 0.0})
        about = {'training': {'data': HELD_OUT}} if name == 'bev' else {}
        save_checkpoint(
            folder / f'{name}.safetensors', from_model(PlaceModel(config), provenance=about)
        )
    return {name: folder / f'{name}.safetensors' for name in INPUTS}


@pytest.fixture(scope='module')
def bev_file(tmp_path_factory):
    return write_bev_file(tmp_path_factory.mktemp('bev') / 'kitti_bev_77.npz')


@pytest.fixture(scope='module')
def drive(tmp_path_factory):
    return write_drive(tmp_path_factory.mktemp('places'), 'loop', frames=20)


@pytest.fixture(scope='module')
def oxford(tmp_path_factory):
    return write_oxford_folder(tmp_path_factory.mktemp('oxford'))


@pytest.fixture(scope='module')
def forest(tmp_path_factory):
    return write_wild_places_folder(tmp_path_factory.mktemp('forest'))


def run(tmp_path: Path, *line, draw: bool = False) -> dict:
    out = tmp_path / 'result.json'
    line = [*map(str, line), '--quiet', '--json', str(out)]
    line += ['--figures', str(tmp_path / 'figures')] if draw else []
    assert evaluate.main(line) == 0
    return json.loads(out.read_text())


def drawn(tmp_path: Path) -> set[str]:
    """Return the figures that are there both as PNG and as PDF."""
    names = {
        kind: {p.stem for p in (tmp_path / 'figures').glob(f'*.{kind}') if p.stat().st_size > 1000}
        for kind in ('png', 'pdf')
    }
    assert names['png'] == names['pdf']
    return names['png']


def test_kitti_bev(tmp_path, weights, bev_file, capsys):
    ranges = ('--database', '0:39', '--queries', '39:78', '--yaw', 'random', '--seed', '7')
    line = ('kitti_bev', '--weights', weights['bev'], '--data', bev_file, *ranges)
    result = run(tmp_path, *line, draw=True)
    assert {'recall_at_1', 'recall_at_5', 'queries', 'ms_per_scan'} <= result.keys()
    assert result['queries'] == 39
    assert result['ms_per_scan'] > 0.0
    assert '| recall@1 |' in capsys.readouterr().out
    assert drawn(tmp_path) == {'matches'}
    # The command is the protocol on the descriptors, and the seed decides the yaws.
    places = KittiBevDataset(bev_file)
    descriptors = describe_places(
        Describer.load(weights['bev']), places, np.arange(78), yaw_seed=7
    )
    direct = evaluate_kitti_bev(descriptors, places.positions, range(39), range(39, 78))
    assert result['recall_at_1'] == direct.recall_at_1
    assert result['match_frames'] == direct.match_frames.tolist()


def test_places_searches_every_drive_with_the_others_of_its_world(tmp_path, weights, capsys):
    for name in ('town/day_0', 'town/day_1', 'lonely/day_0'):
        write_drive(tmp_path / 'data', name, frames=20, laps=1)
    line = ('places', '--weights', weights['metric'], '--data', tmp_path / 'data')
    result = run(tmp_path, *line, '--yaw', 'none')
    assert list(result['worlds']) == ['town']
    town = result['worlds']['town']
    # The same clouds on both days: every place is found, and none is driven the other way.
    assert (town['queries'], town['queries_opposite']) == (40, 0)
    assert result['recall_at_1'] == town['recall_at_1'] == 1.0
    assert town['recall_at_1_opposite'] is None
    assert '| R@1 opposite |' in capsys.readouterr().out
    assert evaluate.main([*map(str, line), '--worlds', 'lonely']) == 1
    assert 'expected lonely with two drives' in capsys.readouterr().err


def test_places_takes_only_the_drives_that_are_asked_for(tmp_path, weights, capsys):
    for name in ('town/day_0_a', 'town/day_1_b', 'town/day_2_a'):
        write_drive(tmp_path / 'data', name, frames=20, laps=1)
    line = ('places', '--weights', weights['metric'], '--data', tmp_path / 'data')
    pairs = run(tmp_path, *line, '--drives', '*_a')['worlds']['town']['pairs']
    assert {(p['database'], p['query']) for p in pairs} == {
        ('town/day_0_a', 'town/day_2_a'), ('town/day_2_a', 'town/day_0_a')}  # fmt: skip
    assert evaluate.main([*map(str, line), '--drives', '*_b']) == 1
    assert "two drives '*_b' or more" in capsys.readouterr().err


def test_kitti_bev_with_scan_context_finds_every_place(tmp_path, bev_file):
    ranges = ('--database', '0:39', '--queries', '39:78')
    result = run(tmp_path, 'kitti_bev', '--method', 'scan_context', '--data', bev_file, *ranges)
    assert result['method'] == 'Scan Context'
    assert result['recall_at_1'] > 0.9


def test_ranges_come_from_the_name_of_the_sequence(tmp_path, weights, capsys):
    path = write_bev_file(tmp_path / 'kitti_bev_06.npz', frames=4)
    line = ['kitti_bev', '--weights', str(weights['bev']), '--data', str(path), '--quiet']
    assert evaluate.main(line) == 1
    assert 'database frames 0:600 are not within 0:8' in capsys.readouterr().err
    unknown = path.rename(tmp_path / 'drive.npz')
    assert evaluate.main([*line[:-2], str(unknown), '--quiet']) == 1
    assert "no default frames for 'drive'" in capsys.readouterr().err


def test_sequence_of_counts(tmp_path, weights, bev_file, capsys):
    line = ('sequence', '--weights', weights['bev'], '--data', bev_file, '--exclude', '20')
    result = run(tmp_path, *line, draw=True)
    assert result['revisits'] == 39
    assert 0.0 <= result['f1_max'] <= 1.0
    assert 0.0 <= result['recall_at_full_precision'] <= 1.0
    assert result['scan_context_published'] is None
    assert len(result['precision']) == len(result['recall']) == len(result['thresholds'])
    assert '| F1max |' in capsys.readouterr().out
    assert drawn(tmp_path) == {'matches', 'precision_recall'}


def test_published_numbers_stand_beside_ours_under_the_same_rule(tmp_path, weights, capsys):
    path = write_bev_file(tmp_path / 'kitti_bev_05.npz', frames=4, laps=77)
    result = run(tmp_path, 'sequence', '--method', 'scan_context', '--data', path)
    assert result['scan_context_published'] == {'f1_max': 0.923, 'recall_at_1': 0.952}
    assert 'published: 0.923' in capsys.readouterr().out


@pytest.mark.parametrize(
    ('by', 'amount'), [('frames', '10'), ('time', '10'), ('distance', '150')]
)
def test_sequence_of_places_with_every_exclusion(tmp_path, weights, drive, by, amount):
    window = ('--exclude', amount, '--exclude-by', by, '--radius', '5')
    line = ('sequence', '--weights', weights['metric'], '--data', drive, *window)
    result = run(tmp_path, *line)
    assert result['run'] == 'loop'
    assert result['revisits'] == 20


def test_sequence_of_packed_scans(tmp_path, weights, shared_data):
    line = ('sequence', '--weights', weights['metric'], '--data', shared_data / 'scans_balm.npz')
    window = ('--exclude', '20', '--exclude-by', 'distance', '--radius', '3')
    assert run(tmp_path, *line, *window)['queries'] > 50


def test_kind_of_dataset_is_seen_from_the_path(bev_file, drive, tmp_path):
    (tmp_path / 'sequences').mkdir()
    assert guess_dataset(bev_file) == guess_dataset(bev_file.parent) == 'kitti_bev'
    assert guess_dataset(drive) == 'places'
    assert guess_dataset(tmp_path) == 'kitti'
    assert guess_dataset(Path(__file__)) == 'bag'


def test_oxford(tmp_path, weights, oxford, capsys):
    result = run(tmp_path, 'oxford', '--weights', weights['unit'], '--data', oxford, draw=True)
    assert set(result['sets']) == {'Oxford', 'U.S.', 'R.A.', 'B.D.'}
    assert result['sets']['Oxford']['pairs'] == 2
    assert len(result['sets']['Oxford']['recall']) == 25
    assert {'recall_at_1', 'recall_at_one_percent', 'ms_per_scan'} <= result.keys()
    mean = np.mean([r['recall_at_1'] for r in result['sets'].values()])
    assert result['recall_at_1'] == pytest.approx(mean)
    assert '| U.S. |' in capsys.readouterr().out
    assert drawn(tmp_path) == {'map_at_k'}


def test_oxford_of_one_set(tmp_path, weights, oxford):
    line = ('oxford', '--weights', weights['unit'], '--data', oxford, '--sets', 'business')
    assert set(run(tmp_path, *line)['sets']) == {'B.D.'}


@pytest.mark.parametrize('method', ['whitened-checkpoint', 'scan_context'])
def test_wild_places_between_sequences(tmp_path, weights, forest, method):
    line = ('wild_places_inter', '--weights', weights['metric'], '--data', forest)
    result = run(tmp_path, *line, '--method', method)
    assert set(result['sets']) == {'Venman', 'Karawatha'}
    assert result['sets']['Venman']['pairs'] == 12
    assert {'recall_at_1', 'mrr', 'mrr_official', 'queries'} <= result.keys()


def test_wild_places_within_sequences(tmp_path, weights, forest):
    line = ('wild_places_intra', '--weights', weights['metric'], '--data', forest)
    result = run(tmp_path, *line, draw=True)
    assert set(result['sets']) == {'V-03', 'V-04', 'K-03', 'K-04'}
    assert {'f1_max', 'recall_at_1', 'queries', 'ms_per_scan'} <= result.keys()
    assert result['sets']['V-03']['revisits'] == 7
    assert not result['sets']['V-03']['official_window']
    assert drawn(tmp_path) == {'roc'}
    official = run(tmp_path, *line, '--sets', 'V-03', '--official-window')
    assert official['sets']['V-03']['official_window']


def test_calibrate_stores_what_a_distance_means(tmp_path, weights, bev_file, capsys):
    out = tmp_path / 'calibrated.safetensors'
    line = ['--weights', str(weights['bev']), '--data', str(bev_file.parent), '--out', str(out)]
    assert calibrate.main(line) == 0
    assert '| 99.9 % |' in capsys.readouterr().out
    before, after = load_checkpoint(weights['bev']), load_checkpoint(out)
    assert before.calibration == {}
    assert before.fingerprint == after.fingerprint
    assert after.provenance == before.provenance
    fitted = Calibration.from_dict(after.calibration)
    assert fitted.pairs > 0
    assert fitted.radius_m == 5.0


def test_calibrate_needs_to_know_what_was_held_out(weights, bev_file, tmp_path, capsys):
    line = ['--weights', str(weights['metric']), '--data', str(bev_file.parent)]
    assert calibrate.main(line) == 1
    assert 'knows no training data; give --config' in capsys.readouterr().err
    config = tmp_path / 'all.yaml'
    config.write_text('data: {source: kitti_bev}')
    assert calibrate.main([*line, '--config', str(config)]) == 1
    assert 'holds out no places' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('protocol', 'data', 'kind', 'message'),
    [
        ('kitti_bev', 'bev_file', 'metric', "need the quantizer 'bev'"),
        ('sequence', 'bev_file', 'unit', "need the quantizer 'bev'"),
        ('oxford', 'oxford', 'metric', 'clouds are scaled to [-1, 1]'),
        ('oxford', 'oxford', 'bev', 'clouds are scaled to [-1, 1]'),
        ('wild_places_inter', 'forest', 'unit', 'these clouds are in metres'),
        ('wild_places_intra', 'forest', 'unit', 'these clouds are in metres'),
    ],
)
def test_checkpoint_of_another_input_is_refused_in_words(
    request, weights, capsys, protocol, data, kind, message
):
    path = request.getfixturevalue(data)
    more = ['--database', '0:5', '--queries', '6:9'] if protocol == 'kitti_bev' else []
    more += ['--exclude', '5'] if protocol == 'sequence' else []
    line = [protocol, '--weights', str(weights[kind]), '--data', str(path), '--quiet', *more]
    assert evaluate.main(line) == 1
    error = capsys.readouterr().err
    assert message in error
    assert f'{kind}: the model takes cartesian cells of' in error or kind == 'bev'


@pytest.mark.parametrize('protocol', list(evaluate.PROTOCOLS))
def test_missing_data_and_weights_are_one_sentence(weights, tmp_path, capsys, protocol):
    data = ['--data', str(tmp_path / 'nothing')]
    assert evaluate.main([protocol, '--weights', str(weights['bev']), *data]) == 1
    assert 'nothing' in capsys.readouterr().err
    assert evaluate.main([protocol, '--weights', str(tmp_path / 'no.safetensors'), *data]) == 1
    assert 'no such file' in capsys.readouterr().err
    assert evaluate.main([protocol, *data]) == 1
    assert 'needs --weights FILE' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('more', 'message'),
    [
        (('--database', '5', '--queries', '6:9'), 'expected start:stop'),
        (('--database', '0:5', '--queries', '6:900'), 'not within 0:78'),
    ],
)
def test_wrong_ranges_are_refused(weights, bev_file, capsys, more, message):
    line = ['kitti_bev', '--weights', str(weights['bev']), '--data', str(bev_file)]
    assert evaluate.main([*line, *more]) == 1
    assert message in capsys.readouterr().err


def test_drive_of_several_runs_asks_which(weights, tmp_path, capsys):
    for run_name in ('a', 'b'):
        write_drive(tmp_path, run_name, frames=4, laps=1)
    line = ['sequence', '--weights', str(weights['metric']), '--data', str(tmp_path)]
    assert evaluate.main(line) == 1
    assert "choose one of the runs ['a', 'b'] with --run" in capsys.readouterr().err
    assert evaluate.main([*line, '--run', 'b']) == 1
    assert 'shorter than the excluded past of 300 frames' in capsys.readouterr().err
