"""reproduce.py runs to the end on small folders in the benchmarks' layouts, and resumes."""

from functools import partial
import json
from pathlib import Path

import pytest
from test_dataset_oxford_raw import CONFIG as RAW
from test_dataset_oxford_raw import RUN, write_raw_run
from toy_places import TINY, TINY_OXFORD, write_oxford_folder, write_wild_places_folder

from lpr_training.datasets.oxford import OxfordDataset
from lpr_training.datasets.oxford_raw import OxfordRawDataset
from lpr_training.reproduction import oxford as oxford_stages
from lpr_training.reproduction.oxford import OxfordBenchmark
from lpr_training.reproduction.settings import Settings
from lpr_training.reproduction.stages import run_stages
import reproduce

PAPER = Path(__file__).resolve().parents[2] / 'shared' / 'paper_tables.json'


@pytest.fixture(scope='module')
def paper(tmp_path_factory):
    """The paper's tables, or an empty file of their shape."""
    if PAPER.exists():
        return PAPER
    path = tmp_path_factory.mktemp('paper') / 'paper_tables.json'
    names = ('table1_oxford', 'table2_wildplaces', 'table3_ablation')
    path.write_text(json.dumps({name: {'rows': []} for name in names}))
    return path


def command(benchmark, data, out, paper, changes, *more):
    sets = [part for change in changes for part in ('--set', change)]
    return [benchmark, '--data', str(data), '--out', str(out), '--paper', str(paper), *sets,
            '--epochs', '1', '--seeds', '1', '--figure-clouds', '20', *more]  # fmt: skip


@pytest.fixture(scope='module')
def oxford(tmp_path_factory):
    return write_oxford_folder(tmp_path_factory.mktemp('benchmark_datasets'))


OXFORD_ONLY = ('--only', 'whitened_16_16', 'gem', 'exact')


def test_plan_says_what_how_long_and_how_much_and_does_nothing(oxford, tmp_path, paper, capsys):
    out = tmp_path / 'out'
    line = command('oxford', oxford, out, paper, TINY_OXFORD, *OXFORD_ONLY)
    assert reproduce.main([*line, '--dry-run']) == 0
    plan = capsys.readouterr().out
    assert 'train whitened_16_16/seed_1' in plan
    assert 'evaluate gem/seed_1 on B.D.' in plan
    assert 'all that is left' in plan
    assert 'MB' in plan
    assert reproduce.main(line) == 1
    assert '--yes' in capsys.readouterr().err
    assert not out.exists()


def test_oxford_from_files_to_tables_and_figures(oxford, tmp_path, paper, capsys, caplog):
    out = tmp_path / 'out'
    line = command('oxford', oxford, out, paper, TINY_OXFORD, *OXFORD_ONLY, '--yes')
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
    # The same command again does nothing but the tables; what is missing is done.
    weights = out / 'runs' / 'gem' / 'seed_1' / 'last.safetensors'
    before = weights.stat().st_mtime_ns
    (out / 'results' / 'gem' / 'seed_1' / 'Oxford.json').unlink()
    caplog.clear()
    with caplog.at_level('INFO'):
        assert reproduce.main(line) == 0
    assert weights.stat().st_mtime_ns == before
    assert (out / 'results' / 'gem' / 'seed_1' / 'Oxford.json').exists()
    fresh = [m for m in caplog.messages if m.endswith('...')]
    assert [m.split('] ')[1] for m in fresh] == [
        'evaluate gem/seed_1 on Oxford ...',
        'tables, and figure F.1 or F.2 ...',
    ]
    # Other settings would mix two experiments in one folder.
    assert reproduce.main([*line, '--set', 'learning_rate=1e-4']) == 1
    assert 'begun otherwise' in capsys.readouterr().err


def test_wild_places_from_files_to_tables_and_figures(tmp_path, paper):
    data = write_wild_places_folder(tmp_path / 'data')
    out = tmp_path / 'out'
    changes = (*TINY, 'model.input.step=[4.0,1.0,1.0]')
    only = ('--only', 'whitened_16_16', 'scan_context', '--yes')
    assert reproduce.main(command('wild_places', data, out, paper, changes, *only)) == 0
    table = json.loads((out / 'table2_wild_places.json').read_text())
    ours = {row['method']: row['ours'] for row in table['rows']}
    for method in ('Ours (C=16, M=16)', 'ScanContext'):
        assert all(value is not None for value in ours[method])
    assert (out / 'figures' / 'F2_roc.png').exists()
    assert (out / 'figures' / 'F3_ranks.pdf').exists()


def test_raw_recordings_become_submaps_first(tmp_path, paper, monkeypatch):
    raw = write_raw_run(tmp_path / 'raw')
    monkeypatch.setattr(oxford_stages, 'OxfordRawDataset', partial(OxfordRawDataset, config=RAW))
    settings = Settings('oxford', raw, tmp_path / 'out', paper, only=('gem',), seeds=(1,))
    benchmark = OxfordBenchmark(settings)
    stages = benchmark.preparation()
    assert not any(stage.is_done for stage in stages)
    assert sum(stage.disk_bytes for stage in stages) == 5 * 4096 * 3 * 8
    run_stages(stages)
    assert all(stage.is_done for stage in stages)
    assert len(OxfordDataset(benchmark.root, part='training')) == 3
    assert len(OxfordDataset(benchmark.root, part='evaluation')) == 2
    names = [stage.name for stage in benchmark.preparation()]
    assert names == [f'submaps of {RUN}, training', f'submaps of {RUN}, evaluation']


@pytest.mark.parametrize(
    ('benchmark', 'more', 'message'),
    [
        ('oxford', (), 'found no'),
        ('wild_places', (), 'found no'),
        ('oxford', ('--only', 'resnet'), 'no such experiment'),
        ('oxford', ('--paper', '/nowhere.json'), 'cannot be read as the tables'),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, paper, capsys, benchmark, more, message):
    line = command(benchmark, tmp_path / 'nothing', tmp_path / 'out', paper, (), *more)
    assert reproduce.main(line) == 1
    assert message in capsys.readouterr().err
