"""The benchmarks run, measure what they claim to measure, and write their JSON."""

from dataclasses import replace
import inspect
import json

import numpy as np
import pytest
import torch
from toy_clouds import random_scene, tiny_config

import benchmark
from benchmark import main
from lpr_ros.core.config import override
from lpr_ros.core.geometry.se3 import pose_from_euler, transform_points
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.quantize import quantize
from lpr_ros.core.sparse import collate
from lpr_ros.core.sparse.levels import Level
from lpr_ros.core.types import LoopClosure
from lpr_training.benchmarks.load import lidars
from lpr_training.benchmarks.load.drive import RANGE_SIGMA_M, EndlessDrive, Growth, Lap
from lpr_training.benchmarks.registry import BENCHMARKS, Entry
from lpr_training.benchmarks.speed import descriptor, training
from lpr_training.benchmarks.speed.descriptor import interleaved_medians_ms, matmul_shapes
from lpr_training.benchmarks.speed.search_methods import METHODS


@pytest.fixture
def scans(tmp_path, rng):
    folder = tmp_path / 'kitti_full'
    folder.mkdir()
    for name in ('000000', '000001'):
        points = random_scene(rng, points=600)
        cloud = np.column_stack([points, np.zeros(len(points))]).astype(np.float32)
        cloud.tofile(folder / f'{name}.bin')
    return tmp_path


def test_descriptor_benchmark_writes_every_case(scans, capsys, monkeypatch):
    monkeypatch.setattr(descriptor, 'ModelConfig', tiny_config)
    target = scans / 'out.json'
    arguments = ['descriptor', '--data', str(scans), '--repeats', '1', '--json', str(target)]
    assert main(arguments) == 0
    cases = json.loads(target.read_text())['cases']
    assert {(c['batch'], c['mode']) for c in cases} == {
        (b, m) for b in (1, 8) for m in ('forward', 'forward+backward')
    }
    keys = {'name', 'voxels', 'batch', 'mode', 'torch_ms', 'minkowski_ms', 'floor_ms'}
    assert all(set(case) == keys and case['torch_ms'] > 0 < case['floor_ms'] for case in cases)
    assert '| ours ms |' in capsys.readouterr().out


def test_training_benchmark_steps_both_networks(scans, capsys, monkeypatch):
    real = training.make_cases

    def reduced(data):
        tiny = {'model.backbone.planes': [8, 16], 'model.backbone.layers': [1, 1],
                'model.backbone.num_top_down': 1, 'model.backbone.feature_size': 16}  # fmt: skip
        return [replace(case, config=override(case.config, tiny)) for case in real(data)]

    monkeypatch.setattr(training, 'make_cases', reduced)
    target = scans / 'out.json'
    arguments = ['training', '--data', str(scans), '--repeats', '1', '--json', str(target)]
    assert main(arguments) == 0
    cases = json.loads(target.read_text())['cases']
    assert [(c['network'], c['mode']) for c in cases] == [
        (network, mode)
        for network in ('oxford_baseline', 'kitti_bev')
        for mode in ('forward', 'multistage step')
    ]
    assert all(c['voxels'] > 0 < c['torch_clouds_per_s'] for c in cases)
    # A step includes a forward pass.
    for forward, step in zip(cases[::2], cases[1::2], strict=True):
        assert step['torch_clouds_per_s'] < forward['torch_clouds_per_s']
    assert '| ours, clouds/s |' in capsys.readouterr().out


def test_database_benchmark_measures_every_method(tmp_path, capsys):
    target = tmp_path / 'out.json'
    arguments = ['database', '--sizes', '300', '--dims', '32', '--queries', '20']
    assert main([*arguments, '--json', str(target)]) == 0
    result = json.loads(target.read_text())
    assert {(c['method'], c['kind']) for c in result['cases']} == {
        (m.name, k) for m in METHODS for k in ('places', 'gaussian')
    }
    recall = {c['method']: c['recall_at_1'] for c in result['cases'] if c['kind'] == 'places'}
    assert recall['exact'] == recall['ours, 8 bit'] == 1.0
    assert '| recall@1 |' in capsys.readouterr().out


def test_missing_scans_are_reported(tmp_path, capsys):
    assert main(['descriptor', '--data', str(tmp_path)]) == 1
    assert 'kitti_full/*.bin, found none' in capsys.readouterr().err


def test_matmul_shapes_has_one_product_per_layer_with_a_row_per_pair(rng):
    model = PlaceModel(tiny_config('whitened'))
    cloud = quantize(random_scene(rng), model.config.input)
    batch = collate([cloud])
    shapes = matmul_shapes(model, batch)
    layers = [m for m in model.modules() if hasattr(m, 'kernel') or isinstance(m, torch.nn.Linear)]
    assert len(shapes) == len(layers)
    level = Level.of(batch)
    # The first strided layer multiplies every voxel once.
    assert shapes[1][0] == len(level.keys)


def test_interleaved_medians_excludes_the_warm_up():
    calls = {'a': 0, 'b': 0}

    def count(name):
        calls[name] += 1

    medians = interleaved_medians_ms({n: lambda n=n: count(n) for n in calls}, repeats=3)
    assert calls == {'a': 5, 'b': 5}
    assert all(value >= 0 for value in medians.values())


def test_endless_drive_observes_one_world_from_its_true_poses(rng):
    landmarks = rng.uniform(-20.0, 20.0, (50, 3)).astype(np.float32)
    poses = [pose_from_euler([2.0 * i, 0.0, 0.0], [0.0, 0.0, 0.3 * i]) for i in range(4)]
    clouds = [transform_points(np.linalg.inv(T), landmarks) for T in poses]
    drive = EndlessDrive([Lap(clouds, np.stack(poses))], 40)
    scans = [drive.scan(i) for i in range(40)]
    for scan, T_world_sensor in zip(scans, drive.T_world_sensor, strict=True):
        in_world = transform_points(T_world_sensor, scan.points)
        error_m = np.linalg.norm(in_world[:, None] - landmarks, axis=2).min(axis=1)
        assert error_m.max() < 6.0 * RANGE_SIGMA_M
    assert len({scan.points.tobytes() for scan in scans}) == 40
    headings = [round(float(T[0, 0]), 1) for T in drive.T_world_sensor]
    assert any(abs(a + b) < 0.1 for a in headings for b in headings)  # both directions


def test_growth_separates_the_database_from_other_memory():
    growth = Growth()
    growth.keyframes = list(range(0, 1000, 10))
    growth.database = [5000 * k for k in growth.keyframes]
    growth.total = [1e8 + 5300 * k for k in growth.keyframes]
    metrics = growth.metrics()
    assert metrics['known_bytes_per_keyframe'] == pytest.approx(5000.0)
    assert metrics['other_bytes_per_keyframe'] == pytest.approx(300.0)


@pytest.mark.parametrize('name', BENCHMARKS)
def test_every_benchmark_has_options_that_its_run_accepts(name):
    module = BENCHMARKS[name].load()
    options = vars(benchmark.build_parser(name).parse_args([name]))
    del options['benchmark'], options['json']
    inspect.signature(module.run).bind(**options)
    assert callable(module.table)


def test_help_lists_every_benchmark_without_importing_any(capsys, monkeypatch):
    monkeypatch.setattr(Entry, 'load', lambda entry: pytest.fail(f'imported {entry.module}'))
    with pytest.raises(SystemExit) as exited:
        main(['--help'])
    assert exited.value.code == 0
    assert set(BENCHMARKS) <= set(capsys.readouterr().out.split())


def test_loops_under_load_are_evaluated_by_where_their_scans_were():
    """A lap of four scans; keyframes are scans 0, 1, 2 and, in the next lap, 5."""
    lap = [lidars.LapScan(None, pose_from_euler([x, 0.0, 0.0], [0.0, 0.0, 0.1 * x]), 0)
           for x in (0.0, 3.0, 6.0, 9.0)]  # fmt: skip
    stamps_ns = [lidars.START_NS + n * lidars.PERIOD_NS for n in (0, 1, 2, 5)]

    def loop(query_id, match_id, T_match_query):
        return LoopClosure(query_id, match_id, T_match_query, np.eye(6), 0.9, 99, None)

    correct, shifted = loop(3, 1, np.eye(4)), loop(3, 1, pose_from_euler([2.0, 0, 0], [0, 0, 0]))
    other_place = loop(3, 2, np.eye(4))
    metrics = lidars._loop_metrics([correct, shifted, other_place], lap, stamps_ns)
    assert metrics == {'loops': 3, 'loops_wrong': 2}
