"""Shared command-line handling of the `training/*.py` commands."""

import argparse
from collections.abc import Callable, Sequence
import logging
from pathlib import Path
import sys

from lpr_ros.core.errors import LprError

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130  # as shells report SIGINT


def make_parser(file: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser for the command in `file`; the description keeps its line breaks."""
    return argparse.ArgumentParser(
        prog=Path(file).name,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def run_command(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int | None],
    argv: Sequence[str] | None = None,
    *,
    on_interrupt: str = 'Nothing was written',
) -> int:
    """Parse `argv`, call `run`, and return the exit status.

    Bad input, a full disk or a missing permission prints one line instead of a traceback. Any
    other exception is a bug and propagates. `on_interrupt` tells the user what Ctrl-C left
    behind; it may refer to arguments, as in 'Resume with --out {args.out}'.
    """
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format='%(levelname)s: %(message)s')
    try:
        return run(args) or 0
    except (LprError, OSError) as error:
        print(f'{parser.prog}: error: {error}', file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        hint = on_interrupt.format(args=args)
        print(f'\n{parser.prog}: interrupted. {hint}', file=sys.stderr)
        return EXIT_INTERRUPTED
