"""The demo runs with weights or without, on real scans or simulated ones, and says which."""

import numpy as np
import pytest
import torch
from toy_clouds import random_scene, tiny_config

import demo
from lpr_ros.core.model.checkpoint import from_model, save_checkpoint
from lpr_ros.core.model.place_model import PlaceModel


@pytest.fixture
def scans(tmp_path, rng):
    for index in range(5):
        points = random_scene(rng, 1500)
        intensity = np.zeros((len(points), 1), np.float32)
        np.hstack([points, intensity]).tofile(tmp_path / f'{index:06d}.bin')
    return tmp_path


def table_of(text: str) -> np.ndarray:
    lines = text.split('\n  distance', 1)[1].splitlines()[1:6]
    return np.array([[float(value) for value in line.split()[-5:]] for line in lines])


def test_demo_prints_the_distances_of_the_descriptors(scans, tiny_model, capsys):
    weights = scans / 'tiny.safetensors'
    save_checkpoint(weights, from_model(tiny_model))
    assert demo.main(['--scans', str(scans), '--weights', str(weights)]) == 0
    text = capsys.readouterr().out
    table = table_of(text)
    assert str(weights) in text
    assert 'ms per scan' in text
    assert np.array_equal(table, table.T)
    assert (np.diag(table) == 0.0).all()
    assert (table[~np.eye(5, dtype=bool)] > 0.0).all()


def test_demo_says_when_the_network_is_untrained(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo, 'ROOT', tmp_path)
    monkeypatch.setattr('lpr_ros.core.model.config.ModelConfig', lambda **_: tiny_config())
    described = demo.load_describer(None)
    assert 'UNTRAINED' in capsys.readouterr().out
    torch.manual_seed(0)
    expected = PlaceModel(tiny_config()).state_dict()
    assert all(
        torch.equal(tensor, expected[name])
        for name, tensor in described._model.state_dict().items())


def test_demo_simulates_where_there_are_no_scans(tmp_path, capsys):
    names, scenes = demo.read_scans(tmp_path)
    assert 'simulated' in capsys.readouterr().out
    assert len(names) == len(scenes) == 5
    assert all(np.isfinite(scene).all() and scene.shape[1] == 3 for scene in scenes)
    assert not np.array_equal(scenes[0], scenes[1])
