r"""Rebuild the paper's tables and figures from raw or benchmark files.

python training/reproduce.py oxford --data benchmark_datasets --out runs/oxford --dry-run
python training/reproduce.py oxford --data benchmark_datasets --out runs/oxford --yes
python training/reproduce.py wild_places --data Wild-Places --out runs/wild_places --yes

First it says what it will do, how long that takes on this machine and how much disk it needs.
It can be interrupted at any moment: the same command goes on, losing at most one epoch.
"""

import argparse
from collections.abc import Sequence
import logging
from pathlib import Path
import sys

PAPER = Path(__file__).resolve().parent / 'lpr_training' / 'paper_tables.json'


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add('benchmark', choices=('oxford', 'wild_places'))
    add('--data', type=Path, required=True, metavar='DIR', help='raw or benchmark files')
    add('--out', type=Path, required=True, metavar='DIR', help='runs, results, tables, figures')
    add('--paper', type=Path, default=PAPER, metavar='FILE', help="the paper's numbers, JSON")
    add('--yes', action='store_true', help='start; without it the plan is all you get')
    add('--dry-run', action='store_true', help='print the plan and do nothing')
    add('--epochs', type=int, default=0, help='of every run (default: as configured)')
    add('--seeds', type=int, nargs='+', default=[1, 2, 3], help='of the main runs (1 2 3)')
    add('--only', nargs='+', default=[], metavar='NAME', help='only these experiments')
    add('--set', action='append', default=[], metavar='KEY=VALUE',
        help='change a value of every configuration (repeatable)')  # fmt: skip
    add('--figure-clouds', type=int, default=500, help='clouds behind figures F.3 to F.5 (500)')
    add('--device', default='auto', choices=('auto', 'cpu', 'cuda'))
    add('--batch', type=int, default=16, help='clouds described at once (16)')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Reproduce as the command line says; return 0, 1 on bad input, 130 when interrupted."""
    args = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stderr)
    from lpr_ros.core.errors import LprError  # imported late: --help must be instant

    try:
        return _run(args)
    except (LprError, OSError) as error:
        print(f'reproduce.py: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\ninterrupted; the same command goes on from here', file=sys.stderr)
        return 130


def _run(args: argparse.Namespace) -> int:
    from lpr_training.reproduction.oxford import OxfordBenchmark
    from lpr_training.reproduction.settings import Settings
    from lpr_training.reproduction.stages import plan_table, run_stages
    from lpr_training.reproduction.wild_places import WildPlacesBenchmark

    settings = Settings(
        args.benchmark,
        args.data,
        args.out,
        args.paper,
        epochs=args.epochs,
        seeds=tuple(args.seeds),
        only=tuple(args.only),
        assignments=tuple(args.set),
        device=args.device,
        batch=args.batch,
        figure_clouds=args.figure_clouds,
    )
    kinds = {'oxford': OxfordBenchmark, 'wild_places': WildPlacesBenchmark}
    stages = kinds[args.benchmark](settings).stages()
    print(f'{args.benchmark} from {args.data} into {args.out}:\n\n{plan_table(stages)}\n')
    if args.dry_run:
        return 0
    if not args.yes:
        print('nothing was done; start it with --yes', file=sys.stderr)
        return 1
    settings.remember()
    run_stages(stages)
    for table in sorted(args.out.glob('table*.md')):
        print(table.read_text(encoding='utf-8'))
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
