"""Shipped files are found wherever the package is installed, and weights by path or name."""

import importlib.util
from pathlib import Path

import pytest

from lpr_ros.cli import offline
from lpr_ros.core import resources
from lpr_ros.core.errors import CheckpointError, ConfigError
from lpr_ros.core.resources import weights_path
import lpr_training.benchmarks.loops.run
from lpr_training.evaluation import methods
import lpr_training.train.run  # noqa: F401 - before it is patched

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / 'weights'
NAMES = [
    ([], WEIGHTS / 'kitti_bev.safetensors'),
    (['--weights', 'sim'], WEIGHTS / 'sim.safetensors'),
    (['--weights', 'weights/sim.safetensors'], Path('weights/sim.safetensors')),
]


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


def command(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / 'training' / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_default_weights_come_from_the_repository_then_the_workspace_then_the_environment(
    tmp_path, monkeypatch
):
    assert resources.default_weights().parent == resources.REPOSITORY / 'weights'
    monkeypatch.setattr(resources, 'REPOSITORY', tmp_path / 'site-packages')
    monkeypatch.setattr('sys.prefix', str(tmp_path / 'venv'))
    monkeypatch.delenv('AMENT_PREFIX_PATH', raising=False)
    with pytest.raises(CheckpointError, match='no weights are installed'):
        resources.default_weights()
    for prefix, name in (('venv', 'b'), ('venv', 'a'), ('workspace', 'c')):
        folder = tmp_path / prefix / 'share/lpr_ros/weights'
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f'{name}.safetensors').touch()
    assert resources.default_weights().stem == 'a'
    monkeypatch.setenv('AMENT_PREFIX_PATH', f'{tmp_path / "other"}:{tmp_path / "workspace"}')
    assert resources.default_weights().stem == 'c'
    assert resources.find_resource('weights', 'a.safetensors') is not None
    assert resources.find_resource('weights', 'd.safetensors') is None


def test_weights_path_takes_a_path_a_shipped_name_or_nothing(tmp_path, monkeypatch):
    assert weights_path() == weights_path('') == WEIGHTS / 'kitti_bev.safetensors'
    assert weights_path('sim') == WEIGHTS / 'sim.safetensors'
    mine = tmp_path / 'mine.safetensors'
    mine.touch()
    (tmp_path / 'link').symlink_to(mine)
    assert weights_path(tmp_path / 'link') == tmp_path / 'link'
    monkeypatch.setenv('HOME', str(tmp_path))
    assert weights_path('~/mine.safetensors') == mine
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'sim').mkdir()
    assert weights_path('sim') == WEIGHTS / 'sim.safetensors'


@pytest.mark.parametrize('name', ['nothing', 'weights', '/dev/null', 'sim.safetensors'])
def test_weights_path_lists_the_shipped_names_for_an_unknown_one(name):
    with pytest.raises(CheckpointError, match=rf"'{name}': no such file.*\['kitti_bev', 'sim'\]"):
        weights_path(name)


class ResolvedError(Exception):
    """Carries the path that a command would load."""


def stop(weights, *args, **options):
    raise ResolvedError(weights)


@pytest.mark.parametrize(('arguments', 'expected'), NAMES)
def test_lpr_offline_resolves_weights(monkeypatch, arguments, expected):
    args = offline.build_parser().parse_args(['bag', '--out', 'out', *arguments])
    monkeypatch.setattr(
        'lpr_ros.core.model.descriptor_extractor.NetworkDescriptorExtractor.load', stop
    )
    with pytest.raises(ResolvedError) as resolved:
        offline.load_weights(args)
    assert resolved.value.args == (expected,)


@pytest.mark.parametrize(('arguments', 'expected'), NAMES)
def test_evaluate_resolves_weights(monkeypatch, arguments, expected):
    evaluate = command('evaluate')
    monkeypatch.setattr(methods, 'CheckpointMethod', stop)
    for protocol in evaluate.PROTOCOLS:
        with pytest.raises(ResolvedError) as resolved:
            evaluate.main([protocol, '--data', 'data', *arguments])
        assert resolved.value.args == (expected,)


@pytest.mark.parametrize(('arguments', 'expected'), NAMES)
def test_benchmark_loops_resolves_weights(monkeypatch, arguments, expected):
    target = 'lpr_training.benchmarks.loops.run.NetworkDescriptorExtractor.load'
    monkeypatch.setattr(target, stop)
    with pytest.raises(ResolvedError) as resolved:
        command('benchmark').main(['loops', *arguments])
    assert resolved.value.args == (expected,)


@pytest.mark.parametrize(('arguments', 'expected'), NAMES)
def test_calibrate_resolves_weights(monkeypatch, arguments, expected):
    monkeypatch.setattr('lpr_ros.core.model.checkpoint.load_checkpoint', stop)
    with pytest.raises(ResolvedError) as resolved:
        command('calibrate').main(['--data', 'data', '--out', 'out', *arguments])
    assert resolved.value.args == (expected,)


@pytest.mark.parametrize('arguments', [[], ['--weights', 'sim']])
def test_calibrate_never_overwrites_shipped_weights_by_name(arguments, capsys):
    assert command('calibrate').main(['--data', 'data', *arguments]) == 1
    assert 'give --out FILE' in capsys.readouterr().err


def test_average_and_train_resolve_weights(monkeypatch):
    monkeypatch.setattr('lpr_ros.core.model.checkpoint.load_checkpoint', stop)
    with pytest.raises(ResolvedError) as resolved:
        command('average').main(['sim', 'kitti_bev', '--out', 'out'])
    assert resolved.value.args == (WEIGHTS / 'sim.safetensors',)

    def fit(*args, init, **options):
        raise ResolvedError(init)

    monkeypatch.setattr('lpr_training.train.run.fit', fit)
    line = ['config/kitti_bev.yaml', '--data', 'data', '--out', 'out']
    for more, expected in (([], None), (['--init', 'sim'], WEIGHTS / 'sim.safetensors')):
        with pytest.raises(ResolvedError) as resolved:
            command('train').main([*line, *more])
        assert resolved.value.args == (expected,)


@pytest.mark.parametrize('value', ['x\0y', '~nosuchuser/x'])
def test_weights_path_rejects_what_is_not_a_path(value):
    with pytest.raises(ConfigError, match=r'weights .*expected a path'):
        weights_path(value)
