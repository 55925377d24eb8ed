r"""Rebuild the paper's tables and figures from raw or benchmark files.

python training/reproduce.py oxford --data benchmark_datasets --out runs/oxford --dry-run
python training/reproduce.py oxford --data benchmark_datasets --out runs/oxford --yes
python training/reproduce.py wild_places --data Wild-Places --out runs/wild_places --yes

Prints a plan with the estimated time and disk space on this machine first. It can be interrupted
at any time: running the same command again continues and repeats at most one epoch.
"""

import argparse
from collections.abc import Sequence
import logging
from pathlib import Path
import sys

from lpr_training.command import make_parser, run_command

PAPER = Path(__file__).resolve().parent / 'lpr_training' / 'evaluation' / 'paper_tables.json'


def build_parser() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = make_parser(__file__, __doc__)
    add = parser.add_argument
    add('benchmark', choices=('oxford', 'wild_places'))
    add('--data', type=Path, required=True, metavar='DIR', help='raw or benchmark files')
    add('--out', type=Path, required=True, metavar='DIR', help='runs, results, tables, figures')
    add('--paper', type=Path, default=PAPER, metavar='FILE', help='published numbers, JSON')
    add('--yes', action='store_true', help='run the plan; without it the plan is only printed')
    add('--dry-run', action='store_true', help='print the plan and exit with status 0')
    add('--epochs', type=int, default=0, help='epochs of every run (default: as configured)')
    add(
        '--seeds',
        type=int,
        nargs='+',
        default=[1, 2, 3],
        help='seeds of the main runs (default: 1 2 3)',
    )
    add('--only', nargs='+', default=[], metavar='NAME', help='run only these experiments')
    add(
        '--set',
        action='append',
        default=[],
        metavar='KEY=VALUE',
        help='override a value in every configuration (repeatable)',
    )
    add(
        '--figure-clouds',
        type=int,
        default=500,
        help='number of clouds behind figures F.3 to F.5 (default: 500)',
    )
    add('--device', default='auto', choices=('auto', 'cpu', 'cuda'))
    add('--batch', type=int, default=16, help='clouds described per batch (default: 16)')
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the plan and run it if confirmed."""
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
        print('Nothing was done; add --yes to run the plan', file=sys.stderr)
        return 1
    settings.store()
    run_stages(stages)
    for table in sorted(args.out.glob('table*.md')):
        print(table.read_text(encoding='utf-8'))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stderr)
    return run_command(
        build_parser(), run, argv, on_interrupt='Run the same command again to continue'
    )


if __name__ == '__main__':
    raise SystemExit(main())
