"""What an evaluation protocol is: a description, its command-line options and a function."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # --help must not import torch
    from lpr_training.evaluation.methods import Method
    from lpr_training.evaluation.report import Report

CHECKPOINT = 'checkpoint'
SCAN_CONTEXT = 'scan_context'


@dataclass(frozen=True)
class Protocol:
    """One subcommand of evaluate.py."""

    description: str
    add_options: Callable[[ArgumentParser], None]
    run: 'Callable[[Namespace, Method], Report]'
    metric_clouds: bool = True

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods to choose from, the default first; Scan Context needs clouds in meters."""
        return (CHECKPOINT, SCAN_CONTEXT) if self.metric_clouds else (CHECKPOINT,)


def add_yaw_options(parser: ArgumentParser, default: str) -> None:
    """Add --yaw and --seed."""
    add = parser.add_argument
    add(
        '--yaw',
        choices=('none', 'random'),
        default=default,
        help=f'rotate every scan by a random yaw before describing it (default: {default})',
    )
    add('--seed', type=int, default=7, help='seed of the random yaws (default: 7)')


def yaw_seed(args: Namespace) -> int | None:
    """Return the seed of the random yaws; None leaves the scans as recorded."""
    return args.seed if args.yaw == 'random' else None


def add_radius_option(parser: ArgumentParser, default: float) -> None:
    """Add --radius."""
    parser.add_argument(
        '--radius',
        type=float,
        default=default,
        metavar='M',
        help=f'maximum ground distance of a correct match in meters (default: {default:g})',
    )


def add_sets_option(parser: ArgumentParser, names: Sequence[str]) -> None:
    """Add --sets, which limits the evaluation to some of the named sets."""
    parser.add_argument(
        '--sets',
        nargs='+',
        choices=names,
        metavar='SET',
        help=f'any of {", ".join(names)} (default: every set found under --data)',
    )
