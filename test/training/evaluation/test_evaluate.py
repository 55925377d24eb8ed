"""evaluate.py and calibrate.py end to end: results, figures and errors of every protocol."""

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
from lpr_ros.core.config import override
from lpr_ros.core.model.calibration import Calibration
from lpr_ros.core.model.checkpoint import from_model, load_checkpoint, save_checkpoint
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.model.place_model import PlaceModel
from lpr_training.datasets.kitti_bev import KittiBevDataset
from lpr_training.descriptors.extract import describe_places
from lpr_training.evaluation.kitti_bev import evaluate_kitti_bev
from lpr_training.evaluation.registry import PROTOCOLS
from lpr_training.evaluation.sequence import guess_dataset

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
    """Untrained checkpoints, one per kind of cloud."""
    folder = tmp_path_factory.mktemp('weights')
    torch.manual_seed(0)
    for name, values in INPUTS.items():
        config = override(tiny_config(), {f'input.{k}': v for k, v in values.items()})
        if name == 'unit':
            config = override(config, {'input.max_range_m': 0.0})
        provenance = {'training': {'data': HELD_OUT}} if name == 'bev' else {}
        save_checkpoint(
            folder / f'{name}.safetensors', from_model(PlaceModel(config), provenance=provenance)
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


def figures_in(tmp_path: Path) -> set[str]:
    """Return the names of the figures, each written as PNG and PDF."""
    names = {
        kind: {p.stem for p in (tmp_path / 'figures').glob(f'*.{kind}') if p.stat().st_size > 1000}
        for kind in ('png', 'pdf')
    }
    assert names['png'] == names['pdf']
    return names['png']


def test_kitti_bev_reports_recall_and_matches(tmp_path, weights, bev_file, capsys):
    ranges = ('--database', '0:39', '--queries', '39:78', '--yaw', 'random', '--seed', '7')
    line = ('kitti_bev', '--weights', weights['bev'], '--data', bev_file, *ranges)
    result = run(tmp_path, *line, draw=True)
    assert {'recall_at_1', 'recall_at_5', 'queries', 'ms_per_scan'} <= result.keys()
    assert result['queries'] == 39
    assert result['ms_per_scan'] > 0.0
    assert '| recall@1 |' in capsys.readouterr().out
    assert figures_in(tmp_path) == {'matches'}
    # The command evaluates the descriptors of the same seed with the same protocol.
    places = KittiBevDataset(bev_file)
    descriptors = describe_places(
        NetworkDescriptorExtractor.load(weights['bev']), places, np.arange(78), yaw_seed=7
    )
    direct = evaluate_kitti_bev(descriptors, places.positions, range(39), range(39, 78))
    assert result['recall_at_1'] == direct.recall_at_1
    assert result['match_frames'] == direct.match_frames.tolist()


def test_places_evaluates_every_pair_of_drives_of_a_world(tmp_path, weights, capsys):
    for name in ('town/day_0', 'town/day_1', 'lonely/day_0'):
        write_drive(tmp_path / 'data', name, frames=20, laps=1)
    line = ('places', '--weights', weights['metric'], '--data', tmp_path / 'data')
    result = run(tmp_path, *line, '--yaw', 'none')
    assert list(result['worlds']) == ['town']
    town = result['worlds']['town']
    # Both days have the same clouds and headings.
    assert (town['queries'], town['queries_opposite']) == (40, 0)
    assert result['recall_at_1'] == town['recall_at_1'] == 1.0
    assert town['recall_at_1_opposite'] is None
    assert '| R@1 opposite |' in capsys.readouterr().out
    assert evaluate.main([*map(str, line), '--worlds', 'lonely']) == 1
    assert "at least two drives matching '*' in lonely" in capsys.readouterr().err


def test_places_limits_the_drives_to_a_pattern(tmp_path, weights, capsys):
    for name in ('town/day_0_a', 'town/day_1_b', 'town/day_2_a'):
        write_drive(tmp_path / 'data', name, frames=20, laps=1)
    line = ('places', '--weights', weights['metric'], '--data', tmp_path / 'data')
    pairs = run(tmp_path, *line, '--drives', '*_a')['worlds']['town']['pairs']
    assert {(p['database'], p['query']) for p in pairs} == {
        ('town/day_0_a', 'town/day_2_a'),
        ('town/day_2_a', 'town/day_0_a'),
    }
    assert evaluate.main([*map(str, line), '--drives', '*_b']) == 1
    assert "at least two drives matching '*_b'" in capsys.readouterr().err


def test_kitti_bev_with_scan_context_recognizes_places(tmp_path, bev_file):
    ranges = ('--database', '0:39', '--queries', '39:78')
    result = run(tmp_path, 'kitti_bev', '--method', 'scan_context', '--data', bev_file, *ranges)
    assert result['method'] == 'Scan Context'
    assert result['recall_at_1'] > 0.9


def test_kitti_bev_selects_frame_ranges_by_sequence_name(tmp_path, weights, capsys):
    path = write_bev_file(tmp_path / 'kitti_bev_06.npz', frames=4)
    line = ['kitti_bev', '--weights', str(weights['bev']), '--data', str(path), '--quiet']
    assert evaluate.main(line) == 1
    assert 'database frames 0:600 exceed 0:8' in capsys.readouterr().err
    unknown = path.rename(tmp_path / 'drive.npz')
    assert evaluate.main([*line[:-2], str(unknown), '--quiet']) == 1
    assert "no default frame ranges for 'drive'" in capsys.readouterr().err


def test_sequence_on_birds_eye_counts(tmp_path, weights, bev_file, capsys):
    line = ('sequence', '--weights', weights['bev'], '--data', bev_file, '--exclude', '20')
    result = run(tmp_path, *line, draw=True)
    assert result['revisits'] == 39
    assert 0.0 <= result['f1_max'] <= 1.0
    assert 0.0 <= result['recall_at_full_precision'] <= 1.0
    assert result['scan_context_published'] is None
    assert len(result['precision']) == len(result['recall']) == len(result['thresholds'])
    assert '| F1max |' in capsys.readouterr().out
    assert figures_in(tmp_path) == {'matches', 'precision_recall'}


def test_sequence_shows_published_numbers_under_the_published_settings(tmp_path, weights, capsys):
    path = write_bev_file(tmp_path / 'kitti_bev_05.npz', frames=4, laps=77)
    result = run(tmp_path, 'sequence', '--method', 'scan_context', '--data', path)
    assert result['scan_context_published'] == {'f1_max': 0.923, 'recall_at_1': 0.952}
    assert 'published: 0.923' in capsys.readouterr().out


@pytest.mark.parametrize(('by', 'amount'), [('frames', '10'), ('time', '10'), ('distance', '150')])
def test_sequence_excludes_by_frames_time_or_distance(tmp_path, weights, drive, by, amount):
    window = ('--exclude', amount, '--exclude-by', by, '--radius', '5')
    line = ('sequence', '--weights', weights['metric'], '--data', drive, *window)
    result = run(tmp_path, *line)
    assert result['run'] == 'loop'
    assert result['revisits'] == 20


def test_sequence_on_packed_scans(tmp_path, weights, shared_data):
    line = ('sequence', '--weights', weights['metric'], '--data', shared_data / 'scans_balm.npz')
    window = ('--exclude', '20', '--exclude-by', 'distance', '--radius', '3')
    assert run(tmp_path, *line, *window)['queries'] > 50


def test_guess_dataset_recognizes_formats_by_path(bev_file, drive, tmp_path):
    (tmp_path / 'sequences').mkdir()
    assert guess_dataset(bev_file) == guess_dataset(bev_file.parent) == 'kitti_bev'
    assert guess_dataset(drive) == 'places'
    assert guess_dataset(tmp_path) == 'kitti'
    assert guess_dataset(Path(__file__)) == 'bag'


def test_oxford_reports_every_set_and_their_mean(tmp_path, weights, oxford, capsys):
    result = run(tmp_path, 'oxford', '--weights', weights['unit'], '--data', oxford, draw=True)
    assert set(result['sets']) == {'Oxford', 'U.S.', 'R.A.', 'B.D.'}
    assert result['sets']['Oxford']['pairs'] == 2
    assert len(result['sets']['Oxford']['recall']) == 25
    assert {'recall_at_1', 'recall_at_one_percent', 'ms_per_scan'} <= result.keys()
    mean = np.mean([r['recall_at_1'] for r in result['sets'].values()])
    assert result['recall_at_1'] == pytest.approx(mean)
    assert '| U.S. |' in capsys.readouterr().out
    assert figures_in(tmp_path) == {'map_at_k'}


def test_oxford_on_one_set(tmp_path, weights, oxford):
    line = ('oxford', '--weights', weights['unit'], '--data', oxford, '--sets', 'business')
    assert set(run(tmp_path, *line)['sets']) == {'B.D.'}


@pytest.mark.parametrize('method', ['checkpoint', 'scan_context'])
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
    assert figures_in(tmp_path) == {'roc'}
    official = run(tmp_path, *line, '--sets', 'V-03', '--official-window')
    assert official['sets']['V-03']['official_window']


def test_calibrate_stores_the_calibration_and_nothing_else(tmp_path, weights, bev_file, capsys):
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


def test_calibrate_requires_held_out_places(weights, bev_file, tmp_path, capsys):
    line = ['--weights', str(weights['metric']), '--data', str(bev_file.parent)]
    assert calibrate.main(line) == 1
    assert 'has no training configuration; give --config' in capsys.readouterr().err
    config = tmp_path / 'all.yaml'
    config.write_text('data: {source: kitti_bev}')
    assert calibrate.main([*line, '--config', str(config)]) == 1
    assert 'no held-out places' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('protocol', 'data', 'kind', 'message'),
    [
        ('kitti_bev', 'bev_file', 'metric', "which need the quantizer 'bev'"),
        ('sequence', 'bev_file', 'unit', "which need the quantizer 'bev'"),
        ('oxford', 'oxford', 'metric', 'clouds of the dataset are scaled to [-1, 1]'),
        ('oxford', 'oxford', 'bev', 'clouds of the dataset are scaled to [-1, 1]'),
        ('wild_places_inter', 'forest', 'unit', 'which suits clouds scaled to [-1, 1]'),
        ('wild_places_intra', 'forest', 'unit', 'which suits clouds scaled to [-1, 1]'),
    ],
)
def test_checkpoint_with_unsuitable_input_is_rejected(
    request, weights, capsys, protocol, data, kind, message
):
    path = request.getfixturevalue(data)
    more = ['--database', '0:5', '--queries', '6:9'] if protocol == 'kitti_bev' else []
    more += ['--exclude', '5'] if protocol == 'sequence' else []
    line = [protocol, '--weights', str(weights[kind]), '--data', str(path), '--quiet', *more]
    assert evaluate.main(line) == 1
    error = capsys.readouterr().err
    assert message in error
    assert f'{kind}: the model expects cartesian cells of' in error or kind == 'bev'


@pytest.mark.parametrize('protocol', list(PROTOCOLS))
def test_missing_data_or_weights_is_reported(weights, tmp_path, capsys, protocol):
    data = ['--data', str(tmp_path / 'nothing')]
    assert evaluate.main([protocol, '--weights', str(weights['bev']), *data]) == 1
    assert 'nothing' in capsys.readouterr().err
    assert evaluate.main([protocol, '--weights', str(tmp_path / 'no.safetensors'), *data]) == 1
    assert 'no such file' in capsys.readouterr().err
    assert evaluate.main([protocol, *data]) == 1  # the default weights exist, the data does not
    assert 'nothing' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('more', 'message'),
    [
        (('--database', '5', '--queries', '6:9'), 'expected start:stop'),
        (('--database', '0:5', '--queries', '6:900'), 'exceed 0:78'),
    ],
)
def test_invalid_frame_ranges_are_rejected(weights, bev_file, capsys, more, message):
    line = ['kitti_bev', '--weights', str(weights['bev']), '--data', str(bev_file)]
    assert evaluate.main([*line, *more]) == 1
    assert message in capsys.readouterr().err


def test_sequence_requires_a_run_if_there_are_several(weights, tmp_path, capsys):
    for run_name in ('a', 'b'):
        write_drive(tmp_path, run_name, frames=4, laps=1)
    line = ['sequence', '--weights', str(weights['metric']), '--data', str(tmp_path)]
    assert evaluate.main(line) == 1
    assert "choose one of ['a', 'b'] with --run" in capsys.readouterr().err
    assert evaluate.main([*line, '--run', 'b']) == 1
    assert 'fewer than the exclusion of 300 frames needs' in capsys.readouterr().err
