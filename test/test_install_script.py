"""scripts/install_ros2.sh does the documented steps; ROS, pip and colcon are stand-ins."""

import os
from pathlib import Path
import re
import subprocess

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / 'scripts' / 'install_ros2.sh'
# Logs its call. `-m venv` makes an environment whose commands log theirs, `-c` checks modules.
STAND_IN = r"""#!/bin/bash
echo "$(basename "$0") $*" >> "$CALLS"
[[ "$1" == -c && "$2" == *colcon_core* ]] && exit "${NO_COLCON:-0}"
[[ "$1" == -c ]] && exit "${OLD_PYTHON:-0}"
if [[ "$*" == "-m venv --system-site-packages venv" ]]; then
  mkdir -p venv/bin
  cp "$0" venv/bin/python
  cp "$0" venv/bin/pip
  echo 'PATH="$PWD/venv/bin:$PATH"; echo $UNSET_BY_ACTIVATE' > venv/bin/activate
fi
exit 0
"""
INSTALL = [
    'python3 -m venv --system-site-packages venv',
    'pip install --require-hashes --no-deps -r src/lpr_ros/requirements.lock',
    'pip install --no-build-isolation --use-pep517 -e src/lpr_ros',
    'python -m colcon build --packages-select lpr_ros',
]


@pytest.fixture
def install(tmp_path):
    """Return a function that runs the script and returns its result and the commands it ran."""
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'bin' / 'python3').write_text(STAND_IN)
    (tmp_path / 'bin' / 'python3').chmod(0o755)
    (tmp_path / 'ros').mkdir()
    (tmp_path / 'ros' / 'setup.bash').write_text('echo "$NOT_SET" "sourced" >> "$CALLS"\n')
    calls = tmp_path / 'calls.txt'

    def run(*arguments, **variables):
        calls.write_text('')
        env = os.environ | {
            'PATH': f'{tmp_path / "bin"}:/usr/bin:/bin',
            'CALLS': str(calls),
            'ROS_PREFIX': str(tmp_path / 'ros'),
        }
        done = subprocess.run(
            ['bash', str(SCRIPT), *arguments],
            env=env | variables,
            capture_output=True,
            text=True,
            timeout=60,
        )
        lines = calls.read_text().splitlines()
        return done, [line.strip() for line in lines if ' -c ' not in line]

    return run


def test_a_workspace_is_made_and_built(install, tmp_path):
    done, commands = install(str(tmp_path / 'ws'))
    assert done.returncode == 0, done.stderr
    assert commands == ['sourced', *INSTALL]
    assert (tmp_path / 'ws' / 'venv' / 'COLCON_IGNORE').is_file()
    assert (tmp_path / 'ws' / 'src' / 'lpr_ros').resolve() == ROOT
    assert f'source {tmp_path}/ws/venv/bin/activate' in done.stdout


def test_a_second_run_keeps_the_environment(install, tmp_path):
    install(str(tmp_path / 'ws'))
    done, commands = install(str(tmp_path / 'ws'))
    assert done.returncode == 0, done.stderr
    assert commands == ['sourced', *INSTALL[1:]]


def test_an_old_pip_is_upgraded_first(install, tmp_path):
    _, commands = install(str(tmp_path / 'ws'), OLD_PYTHON='1')
    assert commands[2:4] == ['pip install --upgrade pip', INSTALL[1]]


@pytest.mark.parametrize(
    ('variables', 'message'),
    [
        ({'ROS_PREFIX': '/nowhere'}, 'no ROS 2 in /nowhere'),
        ({'NO_COLCON': '1'}, 'sudo apt install python3-venv python3-colcon-common-extensions'),
    ],
)
def test_what_is_missing_is_one_line(install, tmp_path, variables, message):
    done, _ = install(str(tmp_path / 'ws'), **variables)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert message in line
    assert not (tmp_path / 'ws').exists()


def test_help_is_printed(install):
    done, commands = install('--help')
    assert done.returncode == 0
    assert 'scripts/install_ros2.sh [WORKSPACE]' in done.stdout
    assert commands == []


@pytest.mark.parametrize('name', ['docs/getting_started.md', '.github/workflows/ci.yml'])
def test_the_documented_steps_are_those_of_the_script(name):
    text = (ROOT / name).read_text()
    steps = re.findall(r'(?:pip install|python -m colcon build) [^&\n]*--[^&\n#]*', text)
    assert {step.strip() for step in steps} - {'pip install --upgrade pip'} == set(INSTALL[1:])


def test_the_container_runs_the_script():
    text = (ROOT / 'docker' / 'Dockerfile').read_text()
    assert re.search(r'^RUN .*scripts/install_ros2\.sh /ros2_ws', text, re.MULTILINE)
