"""Commands in the documentation parse: scripts, subcommands and options exist."""

import argparse
from importlib import import_module
import importlib.util
import inspect
from pathlib import Path
import re
import shlex

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / 'README.md', *sorted((ROOT / 'docs').rglob('*.md')),
         *sorted((ROOT / 'weights').glob('*.md'))]  # fmt: skip
MODULES = {'lpr_offline': 'lpr_ros.cli.offline'}


def commands() -> list[str]:
    """Return every command line of this package in the bash blocks and tables of the pages."""
    found = set()
    for page in PAGES:
        text = page.read_text(encoding='utf-8')
        blocks = '\n'.join(re.findall(r'```bash\n(.*?)```', text, re.DOTALL))
        lines = blocks.replace('\\\n', ' ').splitlines()
        lines += re.findall(r'`(python training/[^`]*)`', text)
        found |= {line.strip() for line in lines if re.search(r'training/\w+\.py|^lpr_off', line)}
    return sorted(found)


def parser_of(name: str, arguments: list[str]) -> argparse.ArgumentParser:
    """Return the parser of `training/x.py` or of a console script."""
    if name in MODULES:
        module = import_module(MODULES[name])
    else:
        spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    takes_name = bool(inspect.signature(module.build_parser).parameters)
    return module.build_parser(arguments[0]) if takes_name else module.build_parser()


@pytest.mark.parametrize('command', commands())
def test_documented_command_parses(command):
    words = shlex.split(command, comments=True)
    first = next(i for i, w in enumerate(words) if w in MODULES or w.startswith('training/'))
    name, arguments = words[first], words[first + 1 :]
    if '--help' in arguments:
        arguments.remove('--help')
        with pytest.raises(SystemExit, match='0'):
            parser_of(name, arguments).parse_args([*arguments, '--help'])
    else:
        parser_of(name, arguments).parse_args(arguments)


def test_documentation_has_commands_of_every_script():
    named = ' '.join(commands())
    for script in (ROOT / 'training').glob('*.py'):
        if script.stem != 'demo':  # make demo
            assert f'training/{script.name}' in named
