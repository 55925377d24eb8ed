"""Where an installation by colcon or pip puts files."""

import os
from pathlib import Path
import shutil
import subprocess
import sys

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope='module')
def installed(tmp_path_factory) -> Path:
    """Install a copy of the package, with a launch file and weights in it, below a folder."""
    source, target = tmp_path_factory.mktemp('source'), tmp_path_factory.mktemp('target')
    for name in ('lpr_ros', 'config', 'resource'):
        shutil.copytree(ROOT / name, source / name)
    for name in ('setup.py', 'setup.cfg', 'package.xml'):
        shutil.copy(ROOT / name, source)
    for name in ('launch/some.launch.py', 'weights/some.safetensors'):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).touch()
    command = [sys.executable, 'setup.py', '-q', 'install', '--single-version-externally-managed']
    finished = subprocess.run(
        [*command, '--root', str(target), '--prefix', '/opt'],
        cwd=source,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return target / 'opt'


@pytest.mark.parametrize(
    'path',
    [
        'share/ament_index/resource_index/packages/lpr_ros',
        'share/lpr_ros/package.xml',
        'share/lpr_ros/launch/some.launch.py',
        'share/lpr_ros/weights/some.safetensors',
        'share/lpr_ros/config/fastdds.xml',
        'share/lpr_ros/config/kitti_bev.yaml',
        'share/lpr_ros/config/sensors/hdl64.yaml',
        'lib/lpr_ros/lpr_offline',
    ],
)
def test_share_holds_launch_config_and_weights_and_commands_are_installed(installed, path):
    assert (installed / path).is_file()


@pytest.mark.parametrize('name', ['lpr_player', 'pose_graph_node'])
def test_ros2_run_finds_the_executables(installed, name):
    assert os.access(installed / 'lib/lpr_ros' / name, os.X_OK)


def test_executables_use_the_python_of_the_environment(installed):
    script = (installed / 'lib/lpr_ros/lpr_offline').read_text()
    assert script.startswith('#!/usr/bin/env python3\n')


def test_only_the_package_is_importable(installed):
    site = next(installed.rglob('lpr_ros/__init__.py')).parents[1]
    assert [p.name for p in site.iterdir() if p.suffix != '.egg-info'] == ['lpr_ros']
    assert (site / 'lpr_ros' / 'core' / 'sparse' / 'kernel_map_numba.py').is_file()
    for name in ('report.html.j2', 'style.css'):
        assert (site / 'lpr_ros' / 'report' / 'templates' / name).is_file()


def test_editable_installs_put_console_scripts_on_the_path():
    """Without --use-pep517 an old pip writes them to lib/lpr_ros, as colcon wants them."""
    for name in ('Makefile', 'README.md', 'docs/getting_started.md', '.github/workflows/ci.yml'):
        commands = [line for line in (ROOT / name).read_text().splitlines() if ' -e ' in line]
        assert commands
        assert all('--use-pep517' in line for line in commands), name
