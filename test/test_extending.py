"""The examples in docs/extending.md run, and the registries use what they add."""

from argparse import ArgumentParser, Namespace
from importlib import import_module
import importlib.util
from pathlib import Path
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lpr_ros.core.geometry.se3 import pose_from_euler
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.io.pose_files import write_tum
from lpr_ros.core.model.config import ModelConfig
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.quantize import quantize
from lpr_ros.core.sparse.batch import collate

PAGE = Path(__file__).resolve().parents[1] / 'docs' / 'extending.md'
MAX_LINES = 10  # of code, without imports


def examples() -> dict[str, list[str]]:
    """Return the Python blocks of the page by section."""
    sections = PAGE.read_text(encoding='utf-8').split('\n## ')[1:]
    return {
        section.partition('\n')[0]: re.findall(r'```python\n(.*?)```', section, re.DOTALL)
        for section in sections
    }


@pytest.fixture
def execute():
    """Run the blocks of a section; the registry they change is restored afterwards."""
    changed = []

    def run(section, module, registry):
        entries = getattr(import_module(module), registry)
        changed.append((entries, dict(entries)))
        names = {'__name__': 'example'}
        for block in examples()[section]:
            exec(compile(block, str(PAGE), 'exec'), names)
        return SimpleNamespace(**names, registry=entries)

    yield run
    for entries, original in changed:
        entries.clear()
        entries.update(original)


def test_every_section_has_a_short_example():
    assert examples()
    for section, blocks in examples().items():
        assert blocks, section
        lines = [line for block in blocks for line in block.splitlines() if line.strip()]
        code = [line for line in lines if not line.startswith(('import ', 'from '))]
        assert len(code) <= MAX_LINES, section


@pytest.mark.skipif(importlib.util.find_spec('rclpy') is None, reason='ROS is not installed')
def test_adapter_example_publishes_pairs(execute):
    added = execute('SLAM adapter', 'lpr_ros.slam_adapters.registry', 'ADAPTERS')
    sent = []
    publisher = SimpleNamespace(publish=lambda message: sent.append(list(message.data)))
    node = SimpleNamespace(create_publisher=lambda kind, topic, depth: publisher)
    entry = added.registry['pairs']
    adapter = entry.adapter(node, entry.config())
    adapter.publish(None, SimpleNamespace(id=5), SimpleNamespace(id=1), np.eye(4))
    adapter.retract(None, SimpleNamespace(id=5), SimpleNamespace(id=1), np.eye(4))
    assert sent == [[5, 1], [5, 1, -1]]


@pytest.mark.skipif(importlib.util.find_spec('rclpy') is None, reason='ROS is not installed')
def test_node_accepts_an_adapter_that_was_registered_before_it_is_imported():
    check = (
        'from lpr_ros.lpr_node.config import NodeConfig\n'
        "NodeConfig(backends=('pairs',)).adapters.pairs\n"
    )
    example = examples()['SLAM adapter'][0]
    run = subprocess.run([sys.executable, '-c', example + check], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert subprocess.run([sys.executable, '-c', check], capture_output=True).returncode == 1


def test_recording_example_is_opened_before_the_bag(execute, tmp_path):
    execute('Recording format', 'lpr_ros.core.recordings.open', 'FORMATS')
    T = np.stack([pose_from_euler([x, 0.0, 0.0], [0.0, 0.0, 0.5]) for x in (0.0, 3.0)])
    write_tum(tmp_path / 'poses.tum', Trajectory(np.array([100, 200]), T))
    clouds = np.random.default_rng(0).normal(size=(2, 10, 3)).astype(np.float32)
    for number, cloud in enumerate(clouds):
        np.save(tmp_path / f'{number}.npy', cloud)
    recording = import_module('lpr_ros.core.recordings.open').open_recording(tmp_path)
    for read, cloud, T_odom_sensor in zip(recording, clouds, T, strict=True):
        np.testing.assert_array_equal(read.scan.points, cloud)
        np.testing.assert_allclose(read.scan.T_odom_sensor, T_odom_sensor, atol=1e-9)
    assert recording.stamps_ns.tolist() == [100, 200]


def test_model_examples_describe_clouds(execute, rng):
    execute('Quantizer', 'lpr_ros.core.model.quantize', 'QUANTIZERS')
    execute('Backbone', 'lpr_ros.core.model.place_model', 'BACKBONES')
    execute('Pooling', 'lpr_ros.core.model.pooling', 'POOLINGS')
    names = {
        'input': {'quantizer': 'flat', 'step': [0.5, 0.5, 0.5]},
        'backbone': {'kind': 'voxel_mlp', 'feature_size': 8},
        'pooling': {'kind': 'max'},
    }
    model = PlaceModel(ModelConfig.from_dict(names)).eval()
    clouds = [quantize(rng.normal(size=(50, 3)), model.config.input) for _ in range(2)]
    assert all((cloud[:, 2] == 0).all() for cloud in clouds)
    descriptors = model(collate(clouds))
    assert descriptors.shape == (2, 8)
    features, counts = model.features(collate(clouds))
    torch.testing.assert_close(descriptors[0], features[: counts[0]].amax(dim=0))


def test_dataset_example_is_opened_by_name(execute, tmp_path):
    execute('Dataset', 'lpr_training.datasets.registry', 'DATASETS')
    clouds = np.random.default_rng(0).normal(size=(2, 10, 3)).astype(np.float32)
    for stamp, cloud in zip((100, 200), clouds, strict=True):
        np.save(tmp_path / f'{stamp}.npy', cloud)
    np.savetxt(tmp_path / 'poses.txt', np.stack([np.eye(4)] * 2).reshape(2, 16))
    places = import_module('lpr_training.datasets.registry').make_dataset('numpy', tmp_path)
    np.testing.assert_array_equal(places[1].points, clouds[1])
    assert places.stamps_ns.tolist() == [100, 200]
    config = import_module('lpr_training.train.config').DataConfig(source='numpy')
    training = import_module('lpr_training.train.data').open_training_data(config, tmp_path)
    assert training.places.stamps_ns.tolist() == [100, 200]


def test_protocol_example_scores_a_perfect_method(execute, tmp_path):
    added = execute('Evaluation protocol', 'lpr_training.evaluation.registry', 'PROTOCOLS')
    protocol = added.registry['split']
    parser = ArgumentParser()
    protocol.add_options(parser)
    poses = np.stack([np.eye(4)] * 4)
    poses[:, 0, 3] = [0.0, 100.0, 0.0, 100.0]
    packed = import_module('lpr_training.datasets.packed_scans')
    clouds = np.ones((4, 5, 3), np.float32)
    packed.write_packed(tmp_path / 'scans_a.npz', clouds, np.arange(4), poses)
    method = SimpleNamespace(
        describe=lambda places, indices: places.positions[list(indices)],
        nearest=lambda queries, database, k: (np.array([[0], [1]]), None),
    )
    args = Namespace(data=tmp_path, split=2)
    assert protocol.run(args, method).values == {'recall_at_1': 1.0}
    assert parser.parse_args(['--split', '2']).split == 2


def test_benchmark_example_runs_through_the_registry(execute, tmp_path, monkeypatch):
    package = tmp_path / 'my_benchmarks'
    package.mkdir()
    (package / 'norm.py').write_text(examples()['Benchmark'][0])
    monkeypatch.syspath_prepend(tmp_path)
    added = execute('Benchmark', 'lpr_training.benchmarks.registry', 'BENCHMARKS')
    benchmark = added.registry['norm'].load()
    parser = ArgumentParser()
    benchmark.add_options(parser)
    result = benchmark.run(**vars(parser.parse_args(['--size', '4'])))
    assert result['norm'] == 2.0
    assert benchmark.table(result).startswith('| seconds |')
    monkeypatch.delitem(sys.modules, 'my_benchmarks.norm')
