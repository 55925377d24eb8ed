"""The processes of the demonstration, on a ROS domain of their own that stays on this machine."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
import os
from pathlib import Path
import random
import signal
import subprocess
import sys

from lpr_ros.core.errors import LprError
from lpr_ros.core.resources import find_resource

STOP_S = 15.0


def use_own_domain() -> None:
    """Set the environment of this process and of those it starts; before ROS is initialised."""
    os.environ['ROS_DOMAIN_ID'] = str(random.SystemRandom().randrange(1, 102))
    os.environ['ROS_LOCALHOST_ONLY' if os.environ.get('ROS_DISTRO') == 'humble'
               else 'ROS_AUTOMATIC_DISCOVERY_RANGE'] = (
        '1' if os.environ.get('ROS_DISTRO') == 'humble' else 'LOCALHOST'
    )  # fmt: skip
    profile = find_resource('config', 'fastdds.xml')
    if profile is not None:
        for name in ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE'):
            os.environ.setdefault(name, str(profile))


class Program:
    """A Python module in a process of its own; what it prints goes to a file."""

    def __init__(self, module: str, arguments: Iterable[str], log: Path):
        self.name, self._log = module, log
        paths = os.pathsep.join(path for path in sys.path if path)
        with log.open('wb') as stream:
            self._process = subprocess.Popen(
                [sys.executable, '-m', module, *arguments],
                env=os.environ | {'PYTHONPATH': paths, 'PYTHONUNBUFFERED': '1'},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this program, which then stops them
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether it has not ended."""
        return self._process.poll() is None

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._log.read_text(errors='replace').strip()

    def check(self) -> None:
        """Raise an error with what it printed if it has ended on its own."""
        if not self.is_running:
            raise LprError(f'{self.name} ended with {self._process.returncode}:\n{self.output}')

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Interrupt it, and kill it where that does not help."""
        if self.is_running:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        if self.is_running:
            self.kill()


def ros_arguments(parameters: Mapping[str, object]) -> list[str]:
    """Return parameters as a node's command line takes them."""
    settings = [f'{name}:={_text(value)}' for name, value in parameters.items()]
    return ['--ros-args', *(word for setting in settings for word in ('-p', setting))]


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and of its children, so far."""
    ticks = sum(int(words[11]) + int(words[12]) for _, words in _family(pid))
    return ticks / os.sysconf('SC_CLK_TCK')


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process and of its children."""
    pages = sum(int(words[21]) for _, words in _family(pid))
    return pages * os.sysconf('SC_PAGE_SIZE') / 1e6


def own_mb(pid: int) -> tuple[float, float]:
    """Return what a process, and what its children have in memory, not of a file nor shared.

    Only that does not come and go by itself.
    """
    pages = {True: 0, False: 0}
    for folder, _ in _family(pid):
        with suppress(OSError):
            resident, shared = (folder / 'statm').read_text().split()[1:3]
            pages[int(folder.name) == pid] += int(resident) - int(shared)
    page_mb = os.sysconf('SC_PAGE_SIZE') / 1e6
    return pages[True] * page_mb, pages[False] * page_mb


def _family(pid: int) -> Iterator[tuple[Path, list[str]]]:
    """Yield folder and statistics, from the state on, of a process and of its children."""
    for stat in Path('/proc').glob('[0-9]*/stat'):
        with suppress(OSError, IndexError, ValueError):  # it may end meanwhile
            words = stat.read_text().rpartition(')')[2].split()  # the name may hold anything
            if pid in (int(stat.parent.name), int(words[1])):
                yield stat.parent, words


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
