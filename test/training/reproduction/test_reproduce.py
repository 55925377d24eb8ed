"""reproduce.py on small datasets in the benchmark formats: plan, results, resume."""

from functools import partial
import json

import pytest
from toy_oxford_raw import CONFIG as RAW
from toy_oxford_raw import RUN, write_raw_run
from toy_places import TINY, TINY_OXFORD, write_oxford_folder

from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_training.datasets.oxford import OxfordDataset
from lpr_training.datasets.oxford_raw import OxfordRawDataset
from lpr_training.datasets.splits.oxford import REGIONS
from lpr_training.reproduction import oxford as oxford_stages
from lpr_training.reproduction.experiments import OXFORD
from lpr_training.reproduction.oxford import OxfordBenchmark
from lpr_training.reproduction.settings import Settings
from lpr_training.reproduction.stages import run_stages
import reproduce
import simulate


def command(benchmark, data, out, changes, *more):
    sets = [part for change in changes for part in ('--set', change)]
    return [
        benchmark,
        '--data',
        str(data),
        '--out',
        str(out),
        *sets,
        '--epochs',
        '1',
        '--seeds',
        '1',
        '--figure-clouds',
        '20',
        *more,
    ]


@pytest.fixture(scope='module')
def oxford(tmp_path_factory):
    return write_oxford_folder(tmp_path_factory.mktemp('benchmark_datasets'))


SIMULATED_TINY = (
    'batch_size=8',
    'chunk_size=4',
    'data.positive_m=20.0',
    'mining.from_epoch=1',
    'model.pooling.hidden=16',
    'model.input.step=[0.04,0.04,0.04]',
)
OXFORD_ONLY = ('--only', 'whitened_16_16', 'gem', 'exact')


def test_plan_lists_stages_and_costs_without_running_them(oxford, tmp_path, capsys):
    out = tmp_path / 'out'
    line = command('oxford', oxford, out, TINY_OXFORD, *OXFORD_ONLY)
    assert reproduce.main([*line, '--dry-run']) == 0
    plan = capsys.readouterr().out
    assert 'train whitened_16_16/seed_1' in plan
    assert 'evaluate gem/seed_1 on B.D.' in plan
    assert 'remaining' in plan
    assert 'MB' in plan
    assert reproduce.main(line) == 1
    assert '--yes' in capsys.readouterr().err
    assert not out.exists()


def test_oxford_writes_tables_and_figures_and_resumes(oxford, tmp_path, capsys, caplog):
    out = tmp_path / 'out'
    line = command('oxford', oxford, out, TINY_OXFORD, *OXFORD_ONLY, '--yes')
    assert reproduce.main(line) == 0
    table = json.loads((out / 'table1_oxford.json').read_text())
    ours = {row['method']: row['ours'] for row in table['rows']}
    assert all(0.0 <= value <= 100.0 for value in ours['Ours (C=16, M=16)'])
    assert all(value is not None for value in ours['MinkLoc3Dv2'])
    ablation = (out / 'table3_ablation.md').read_text()
    assert 'RBLW on, exact gradient' in ablation
    assert 'Table I: Oxford and In-house' in capsys.readouterr().out
    for name in ('F1_map_at_k', 'F3_ranks', 'F4_cell_distances', 'F5_cells'):
        for kind in ('png', 'pdf'):
            assert (out / 'figures' / f'{name}.{kind}').stat().st_size > 1000
    # A repeated command writes the tables again, and results that are missing.
    weights = out / 'runs' / 'gem' / 'seed_1' / 'last.safetensors'
    before = weights.stat().st_mtime_ns
    (out / 'results' / 'gem' / 'seed_1' / 'Oxford.json').unlink()
    caplog.clear()
    with caplog.at_level('INFO'):
        assert reproduce.main(line) == 0
    assert weights.stat().st_mtime_ns == before
    assert (out / 'results' / 'gem' / 'seed_1' / 'Oxford.json').exists()
    started = [m for m in caplog.messages if m.endswith('...')]
    assert [m.split('] ')[1] for m in started] == [
        'evaluate gem/seed_1 on Oxford ...',
        'tables, and figure F.1 or F.2 ...',
    ]
    # The figures are plotted again if there are more experiments.
    before = (out / 'figures' / 'cells.json').read_text()
    assert reproduce.main([*line[:-1], 'no_rblw', '--yes']) == 0
    drawn = json.loads((out / 'figures' / 'cells.json').read_text())['models']
    assert drawn == [
        *json.loads(before)['models'][:-1],
        'RBLW off, SVDPI on',
        'RBLW on, exact gradient',
    ]
    # Other settings are rejected.
    assert reproduce.main([*line, '--set', 'learning_rate=1e-4']) == 1
    assert 'has other settings' in capsys.readouterr().err


def test_wild_places_from_simulated_files(tmp_path):
    """Four walks of twenty minutes per site, half of each inside a test polygon."""
    data, out = tmp_path / 'data', tmp_path / 'out'
    for letter, x, y in (('V', 74.0, -80.0), ('K', 233.0, -100.0)):
        for number in range(1, 5):
            line = '--world forest --seed 1 --size 100 --length 250 --speed 0.2 --spacing 5'
            line += f' --day {number} --sensor vlp16 --columns 256 --origin {x} {y} --quiet'
            line += f' --format wild_places_v3 --run {letter}-0{number} --out {data}'
            assert simulate.main(line.split()) == 0
    changes = (*TINY, 'model.input.step=[4.0,2.0,2.0]', 'data.validation_gap=10')
    only = ('--only', 'whitened_16_16', 'scan_context', '--yes')
    assert reproduce.main(command('wild_places', data, out, changes, *only)) == 0
    table = json.loads((out / 'table2_wild_places.json').read_text())
    ours = {row['method']: row['ours'] for row in table['rows']}
    for method in ('Ours (C=16, M=16)', 'ScanContext'):
        assert all(value is not None for value in ours[method])
    # Places inside the test polygons select and calibrate the model.
    run = out / 'runs' / 'whitened_16_16' / 'seed_1'
    assert load_checkpoint(run / 'best.safetensors').calibration
    assert '--official-window' in (out / 'table2_wild_places.md').read_text()
    assert ours['ScanContext'][0] > 50.0  # revisits are recognized
    assert (out / 'figures' / 'F2_roc.png').exists()
    assert (out / 'figures' / 'F3_ranks.pdf').exists()


@pytest.fixture(scope='module')
def simulated_oxford(tmp_path_factory):
    """Two drives through a simulated city, and two inside a test region."""
    root = tmp_path_factory.mktemp('simulated')
    northing, easting = REGIONS['oxford'][0]
    for part, seed, x, y in (
        ('training', 1, easting, northing - 2000.0),
        ('evaluation', 2, easting, northing),
    ):
        for day in range(2):
            line = f'--seed {seed} --day {day} --size 150 --length 150 --spacing 12 --columns 256'
            line += f' --format oxford --part {part} --run 2014-0{day + 1} --quiet'
            line += f' --origin {x} {y} --out {root}'
            assert simulate.main(line.split()) == 0
    return root


def test_every_experiment_runs_on_simulated_files(simulated_oxford, tmp_path, capsys):
    out = tmp_path / 'out'
    line = command('oxford', simulated_oxford, out, SIMULATED_TINY, '--yes')
    assert reproduce.main(line) == 0, capsys.readouterr().err
    scores = json.loads((out / 'scores.json').read_text())
    assert set(scores) == {experiment.row for experiment in OXFORD}
    table = json.loads((out / 'table1_oxford.json').read_text())
    ours = {row['method']: row['ours'][0] for row in table['rows']}
    assert all(ours[e.row] is not None for e in OXFORD if 'I' in e.tables)


def test_raw_recordings_are_converted_to_submaps(tmp_path, monkeypatch):
    raw = write_raw_run(tmp_path / 'raw')
    monkeypatch.setattr(oxford_stages, 'OxfordRawDataset', partial(OxfordRawDataset, config=RAW))
    out = tmp_path / 'out'
    settings = Settings('oxford', raw, out, reproduce.PAPER, only=('gem',), seeds=(1,))
    benchmark = OxfordBenchmark(settings)
    stages = benchmark.preparation()
    assert not any(stage.is_done for stage in stages)
    assert sum(stage.disk_bytes for stage in stages) == 5 * 4096 * 3 * 8
    run_stages(stages)
    assert all(stage.is_done for stage in stages)
    assert len(OxfordDataset(benchmark.root, part='training')) == 3
    assert len(OxfordDataset(benchmark.root, part='evaluation')) == 2
    # Clouds without a table, as left by a killed run, are converted again.
    table = stages[0].product
    table.unlink()
    run_stages(benchmark.preparation())
    assert table.exists()
    assert len(OxfordDataset(benchmark.root, part='training')) == 3
    names = [stage.name for stage in benchmark.preparation()]
    assert names == [f'submaps of {RUN}, training', f'submaps of {RUN}, evaluation']


@pytest.mark.parametrize(
    ('benchmark', 'more', 'message'),
    [
        ('oxford', (), 'found no'),
        ('wild_places', (), 'found no'),
        ('oxford', ('--only', 'resnet'), 'no such experiment'),
        ('oxford', ('--paper', '/nowhere.json'), 'expected the JSON tables'),
    ],
)
def test_bad_input_is_reported(tmp_path, capsys, benchmark, more, message):
    line = command(benchmark, tmp_path / 'nothing', tmp_path / 'out', (), *more)
    assert reproduce.main(line) == 1
    assert message in capsys.readouterr().err
