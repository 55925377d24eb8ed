"""Every executable says in one line which package is missing, and ends quietly while it starts."""

import os
from pathlib import Path
import re
import signal
import subprocess
import sys

import pytest

from lpr_ros import command

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = dict(re.findall(r"'(\w+) = lpr_ros\.command:(\w+)'", (ROOT / 'setup.py').read_text()))
# A folder on the path whose module of the name is as absent as one that was never installed.
ABSENT = "raise ModuleNotFoundError(\"No module named '{0}'\", name='{0}')"


def start(function: str, path: Path, *arguments: str) -> subprocess.Popen:
    code = f'import sys; from lpr_ros import command; sys.exit(command.{function}())'
    env = os.environ | {'PYTHONPATH': os.pathsep.join([str(path), str(ROOT)])}
    return subprocess.Popen(
        [sys.executable, '-c', code, *arguments],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_every_executable_goes_through_the_command():
    text = (ROOT / 'setup.py').read_text()
    scripts = re.findall(r"'(\w+) = lpr_ros\.", text)
    assert sorted(SCRIPTS) == sorted(scripts)
    assert len(scripts) == 4
    assert all(script == function for script, function in SCRIPTS.items())


@pytest.mark.parametrize(
    ('script', 'module', 'remedy'),
    [
        ('lpr_node', 'torch', "-m pip install 'torch==2.13.0'"),
        ('lpr_node', 'rclpy', 'source the setup.bash of ROS'),
        ('lpr_offline', 'faiss', "-m pip install 'faiss-cpu'"),
        ('lpr_player', 'rosbags', "-m pip install 'rosbags'"),
        ('pose_graph_node', 'gtsam', "-m pip install 'gtsam'"),
    ],
)
def test_a_missing_package_is_one_line_with_the_remedy(tmp_path, script, module, remedy):
    (tmp_path / f'{module}.py').write_text(ABSENT.format(module))
    arguments = ('nothing', '--out', str(tmp_path / 'out')) if script == 'lpr_offline' else ()
    process = start(script, tmp_path, *arguments)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    (line,) = output.splitlines()
    assert line.startswith(f'error: the Python module {module} is not installed')
    assert line.endswith(remedy) or remedy in line


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_modules_are_imported_is_a_clean_end(tmp_path, number):
    text = "import time; print('importing', flush=True); time.sleep(60)"
    (tmp_path / 'rclpy.py').write_text(text)
    process = start('pose_graph_node', tmp_path)
    assert process.stdout.readline() == 'importing\n'
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, '')


def test_errors_of_the_package_itself_are_not_hidden():
    with pytest.raises(ModuleNotFoundError):
        command.run('lpr_ros.no_such_module')
