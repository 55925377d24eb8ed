"""Start nodes as processes in a private ROS domain on this machine, and measure them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
import fcntl
import math
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import tempfile
import time

from lpr_ros.core.errors import LprError
from lpr_ros.core.resources import find_resource
from lpr_ros.ros_utils.fastdds_variable import profile_variable

STOP_S = 15.0
DOMAINS = range(1, 102)  # ports of higher ones overlap with ephemeral ports
GHOST_S = 30.0  # DDS lists killed processes for up to 20 s

_domain = ExitStack()  # of this process


@contextmanager
def own_domain() -> Iterator[int]:
    """Yield a ROS domain that no other test or benchmark on this machine uses.

    One that was just used comes last: DDS still lists processes that were killed in it.
    """
    folder = Path(tempfile.gettempdir())
    domains = random.SystemRandom().sample(DOMAINS, len(DOMAINS))
    paths = {domain: folder / f'lpr_ros_test_domain_{domain}' for domain in domains}
    for domain in sorted(domains, key=lambda domain: _age_s(paths[domain]) < GHOST_S):
        with paths[domain].open('a') as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            try:
                yield domain
            finally:
                os.utime(lock.fileno())
            return
    raise LprError(f'all {len(DOMAINS)} ROS domains are in use')


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return math.inf


def use_own_domain() -> None:
    """Select a local-only ROS domain of its own for this process and those it starts.

    Call this before initializing ROS.
    """
    _domain.close()
    os.environ['ROS_DOMAIN_ID'] = str(_domain.enter_context(own_domain()))
    if os.environ.get('ROS_DISTRO') == 'humble':
        os.environ['ROS_LOCALHOST_ONLY'] = '1'
    else:
        os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
    profile = find_resource('config', 'fastdds.xml')
    if profile is not None:
        os.environ.setdefault(profile_variable(), str(profile))


class Program:
    """A Python module that runs in its own process; its output goes to a log file."""

    def __init__(
        self,
        module: str,
        arguments: Iterable[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ):
        self.name, self._log = module, log
        paths = os.pathsep.join(path for path in sys.path if path)
        with log.open('wb') as stream:
            self._process = subprocess.Popen(
                [sys.executable, '-m', module, *arguments],
                env={
                    **os.environ,
                    **(environment or {}),
                    'PYTHONPATH': paths,
                    'PYTHONUNBUFFERED': '1',
                },
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only this process, which then stops it
            )

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether the process is alive."""
        return self._process.poll() is None

    @property
    def output(self) -> str:
        """Return the output so far."""
        return self._log.read_text(errors='replace').strip()

    def check(self) -> None:
        """Raise LprError with the output if the process has exited."""
        if not self.is_running:
            raise LprError(f'{self.name} exited with {self._process.returncode}:\n{self.output}')

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Interrupt the process, and kill it if it does not exit in time."""
        if self.is_running:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        if self.is_running:
            self.kill()


def ros_arguments(parameters: Mapping[str, object]) -> list[str]:
    """Return parameters as command-line arguments of a node."""
    settings = [f'{name}:={_text(value)}' for name, value in parameters.items()]
    return ['--ros-args', *(word for setting in settings for word in ('-p', setting))]


def cpu_seconds(pid: int) -> float:
    """Return the CPU time used by a process and its children."""
    ticks = sum(int(words[11]) + int(words[12]) for _, words in _family(pid))
    return ticks / os.sysconf('SC_CLK_TCK')


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process and its children."""
    pages = sum(int(words[21]) for _, words in _family(pid))
    return pages * os.sysconf('SC_PAGE_SIZE') / 1e6


def private_mb(pid: int) -> tuple[float, float]:
    """Return the private resident memory of a process, and that of its children.

    File-backed and shared pages are left out: the kernel adds and drops them on its own.
    """
    pages = {True: 0, False: 0}
    for folder, _ in _family(pid):
        with suppress(OSError):
            resident, shared = (folder / 'statm').read_text().split()[1:3]
            pages[int(folder.name) == pid] += int(resident) - int(shared)
    page_mb = os.sysconf('SC_PAGE_SIZE') / 1e6
    return pages[True] * page_mb, pages[False] * page_mb


def _family(pid: int) -> Iterator[tuple[Path, list[str]]]:
    """Yield /proc folder and stat fields, starting at the state, of a process and its children."""
    for stat in Path('/proc').glob('[0-9]*/stat'):
        with suppress(OSError, IndexError, ValueError):  # a process may exit meanwhile
            words = stat.read_text().rpartition(')')[2].split()  # the name may contain anything
            if pid in (int(stat.parent.name), int(words[1])):
                yield stat.parent, words


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
