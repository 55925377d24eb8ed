"""The shared command line of `training/*.py`: exit statuses and messages."""

import pytest

from lpr_ros.core.errors import ConfigError
from lpr_training.command import make_parser, run_command


def run(raised=None, returned=None, argv=('--out', 'folder'), **options):
    parser = make_parser('/somewhere/make_it.py', 'Make it.\n\n    make_it.py --out DIR')
    parser.add_argument('--out')

    def body(args):
        assert args.out == 'folder'
        if raised is not None:
            raise raised
        return returned

    return run_command(parser, body, argv, **options)


def test_run_command_returns_the_status_of_the_body():
    assert run() == 0
    assert run(returned=3) == 3


@pytest.mark.parametrize('error', [ConfigError('bad radius -1'), OSError('disk full')])
def test_run_command_reports_bad_input_in_one_line(error, capsys):
    assert run(raised=error) == 1
    assert capsys.readouterr().err == f'make_it.py: error: {error}\n'


def test_run_command_reports_an_interrupt_with_a_hint(capsys):
    assert run(raised=KeyboardInterrupt(), on_interrupt='Resume with --out {args.out}') == 130
    assert capsys.readouterr().err == '\nmake_it.py: interrupted. Resume with --out folder\n'


def test_run_command_lets_bugs_propagate():
    with pytest.raises(ZeroDivisionError):
        run(raised=ZeroDivisionError())


def test_usage_errors_exit_with_2():
    with pytest.raises(SystemExit) as exit_:
        run(argv=('--unknown',))
    assert exit_.value.code == 2
