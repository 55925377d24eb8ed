"""The simulated suite: disjoint splits, and runs that resume."""

import numpy as np
import pytest

from lpr_training.datasets.places import PlacesDataset
from lpr_training.simulator import Simulation
from lpr_training.simulator.tools import suite
from lpr_training.simulator.tools.suite import SuiteWorld, sim_suite, write_world
import simulate_suite

TINY = SuiteWorld('worlds', 'car_park', 2, ('vlp16', 'hdl32'), 60.0, 25.0, 10.0)


def test_test_worlds_and_sensors_are_not_trained_on():
    worlds = {part: [w for w in sim_suite() if w.part == part] for part in ('worlds', 'test')}
    assert {w.name for w in worlds['worlds']}.isdisjoint(w.name for w in worlds['test'])
    sensors = {part: {s for w in ws for s in w.sensors} for part, ws in worlds.items()}
    assert sensors['test'] - sensors['worlds'] == {'hdl32'}
    runs = [run for w in sim_suite() for run, _, _ in w.days()]
    assert len(set(runs)) == len(runs)


def test_an_interrupted_suite_resumes_with_the_same_places(tmp_path, monkeypatch):
    real, cast = Simulation.scan, []

    def counted(self, index):
        if len(cast) == 4 and not resumed:
            raise KeyboardInterrupt
        cast.append(index)
        return real(self, index)

    monkeypatch.setattr(Simulation, 'scan', counted)
    resumed = False
    with pytest.raises(KeyboardInterrupt):
        write_world(TINY, tmp_path / 'a')
    resumed = True
    assert write_world(TINY, tmp_path / 'a') == 3  # the first day was there
    assert cast == [0, 1, 2, 0, 1, 2]
    assert write_world(TINY, tmp_path / 'a') == 0
    write_world(TINY, tmp_path / 'b')
    one, other = (PlacesDataset(tmp_path / name / 'worlds') for name in 'ab')
    assert set(one.runs) == {'car_park_2/day_0_vlp16', 'car_park_2/day_1_hdl32'}
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a.points, b.points)
        assert np.allclose(a.T_world_sensor, b.T_world_sensor)


def test_downsampled_scans_keep_one_point_per_voxel(tmp_path):
    write_world(TINY, tmp_path)
    points = PlacesDataset(tmp_path / 'worlds').points(0).astype(np.float64)
    cells = np.floor((points - points.min(axis=0)) / (2 * suite.VOXEL_M))
    # At most one point in each of the eight voxels of a cell, plus the edges of the grid.
    assert np.unique(cells, axis=0, return_counts=True)[1].max() <= 27


def test_the_command_prints_what_it_wrote(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(simulate_suite, 'sim_suite', lambda: [TINY])
    line = ['--out', str(tmp_path), '--quiet', '--processes', '1']
    assert simulate_suite.main(line) == 0
    assert '6 new places in 1 worlds' in capsys.readouterr().out
    assert simulate_suite.main([*line, '--worlds', 'village_1']) == 1
    assert "--worlds 'village_1': unknown" in capsys.readouterr().err
