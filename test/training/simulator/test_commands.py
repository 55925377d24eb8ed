"""simulate.py and preview.py end to end."""

from pathlib import Path

import pytest

from lpr_training.datasets.registry import make_dataset
from lpr_training.simulator.simulation import Simulation
import preview
import simulate

SMALL = ['--world', 'car_park', '--seed', '2', '--size', '60', '--length', '30', '--spacing', '5',
         '--sensor', 'os1_128', '--columns', '256', '--quiet']  # fmt: skip


def run(out: Path, *more: str) -> int:
    return simulate.main([*SMALL, '--out', str(out), *more])


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob('*') if p.is_file()}


@pytest.mark.parametrize(
    ('layout', 'dataset', 'columns'),
    [
        ('bag', 'bag', '256'),
        ('kitti', 'kitti', '256'),
        ('oxford', 'oxford', '1024'),  # needs 4096 points above the ground
        ('wild_places_v2', 'wild_places', '256'),
        ('wild_places_v3', 'wild_places', '256'),
    ],
)
def test_simulated_drives_are_readable_in_every_format(tmp_path, layout, dataset, columns):
    assert run(tmp_path / 'out', '--format', layout, '--columns', columns) == 0
    places = list(make_dataset(dataset, tmp_path / 'out'))
    assert len(places) == 6
    assert all(len(place.points) > 1000 for place in places)


def test_the_same_options_produce_the_same_bytes(tmp_path):
    for name in ('a', 'b'):
        assert run(tmp_path / name, '--format', 'kitti', '--motion') == 0
    assert content(tmp_path / 'a') == content(tmp_path / 'b')
    assert run(tmp_path / 'c', '--format', 'kitti', '--motion', '--day', '1') == 0
    assert content(tmp_path / 'a') != content(tmp_path / 'c')


@pytest.mark.parametrize('layout', ['bag', 'oxford'])
def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch, capsys, layout):
    real = Simulation.scan

    def interrupted(self, index):
        if index == 3:
            raise KeyboardInterrupt
        return real(self, index)

    monkeypatch.setattr(Simulation, 'scan', interrupted)
    assert run(tmp_path / 'out', '--format', layout) == 130
    assert [p for p in tmp_path.rglob('*') if p.is_file()] == []
    assert 'Nothing was written' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('wrong', 'expected'),
    [
        (['--world', 'moon'], ['moon', 'city']),
        (['--sensor', 'hdl65'], ['hdl65', 'hdl64']),
        (['--length', '-4'], ['-4', 'above 0']),
        (['--trajectory', '/nowhere.txt'], ['/nowhere.txt']),
        (['--columns', '1'], ['columns', '1']),
        (['--day', '-1'], ['number', '-1']),
        (['--seed', '-2'], ['seed', '-2']),
        (['--drive-seed', '-2'], ['seed', '-2']),
    ],
)
def test_a_bad_value_is_reported_with_the_expected_ones(tmp_path, capsys, wrong, expected):
    assert run(tmp_path / 'out', *wrong) == 1
    message = capsys.readouterr().err
    assert all(word in message for word in expected)
    assert not (tmp_path / 'out').exists()


def test_existing_output_is_not_overwritten(tmp_path, capsys):
    assert run(tmp_path / 'out') == 0
    before = content(tmp_path / 'out')
    assert run(tmp_path / 'out') == 1
    assert 'exists' in capsys.readouterr().err
    assert content(tmp_path / 'out') == before


def test_preview_draws_the_world_and_the_scans(tmp_path):
    arguments = [a for a in SMALL if a != '--quiet']
    assert preview.main([*arguments, '--scans', '1', '--out', str(tmp_path)]) == 0
    pictures = sorted(tmp_path.glob('*.png'))
    assert len(pictures) == 2
    assert all(p.read_bytes().startswith(b'\x89PNG') for p in pictures)
