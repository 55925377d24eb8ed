"""The commands of the package: each imports its module, and says in one line what is missing."""

from importlib import import_module, metadata
import os
import re
import signal
import sys
from types import FrameType

# Modules whose packages have other names.
DISTRIBUTIONS = {'faiss': 'faiss-cpu', 'yaml': 'pyyaml'}


def lpr_node() -> int:
    """Run lpr_node."""
    return run('lpr_ros.lpr_node.node')


def lpr_offline() -> int:
    """Run lpr_offline."""
    return run('lpr_ros.cli.offline')


def lpr_player() -> int:
    """Run lpr_player."""
    return run('lpr_ros.player.node')


def pose_graph_node() -> int:
    """Run pose_graph_node."""
    return run('lpr_ros.pose_graph_node.node')


def run(module: str) -> int:
    """Import a module and run its `main`; return the exit status, 1 if a package is missing."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in handlers:
        signal.signal(number, _leave)
    try:
        main = import_module(module).main
        for number, handler in handlers.items():
            signal.signal(number, handler)
        status: int = main()
    except ModuleNotFoundError as error:
        name = (error.name or '').partition('.')[0]
        if name in ('', 'lpr_ros'):
            raise
        print(f'error: {missing(name)}', file=sys.stderr)
        return 1
    return status


def missing(module: str) -> str:
    """Return what to do about a module that cannot be imported."""
    try:
        declared = metadata.requires('lpr_ros') or []
    except metadata.PackageNotFoundError:
        declared = []
    wanted = DISTRIBUTIONS.get(module, module)
    text = f'the Python module {module} is not installed for {sys.executable}'
    for requirement in declared:
        specifier, _, marker = requirement.partition(';')
        is_extra = 'extra' in marker
        if not is_extra and _name(specifier) == _name(wanted):
            return (
                f'{text}: activate the virtual environment of the workspace, or run '
                f"{sys.executable} -m pip install '{specifier.strip()}'"
            )
    return f'{text}: source the setup.bash of ROS and of the workspace, or install .[ros] with pip'


def _name(requirement: str) -> str:
    """Return the normalized name of a requirement, without version and extras."""
    return re.split(r'[\[ <>=!~(]', requirement)[0].replace('_', '-').lower()


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: while modules are imported there is nothing to clean up."""
    os._exit(0)
