"""Who may import whom: docs/architecture.md has the table, and this test enforces it."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
import re

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / 'docs' / 'architecture.md'
SOURCES = {'lpr_ros': ROOT, 'lpr_training': ROOT / 'training'}
MAX_MODULES = 15


def import_table() -> dict[str, set[str]]:
    """Read the table of the page: room -> rooms it may import."""
    text = PAGE.read_text(encoding='utf-8').partition('## Who may import whom')[2]
    table = {}
    for line in text.partition('\n## ')[0].splitlines():
        cells = [cell.strip() for cell in line.strip('|').split('|')]
        if line.startswith('| `') and len(cells) == 2:
            table[cells[0].strip('`')] = set(re.findall(r'`([^`]+)`', cells[1]))
    return table


TABLE = import_table()


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every module of both packages: dotted name, path."""
    for package, root in SOURCES.items():
        for path in sorted((root / package).rglob('*.py')):
            parts = path.relative_to(root).with_suffix('').parts
            yield '.'.join(part for part in parts if part != '__init__'), path


NAMES = {name for name, _ in modules()}


def test_the_table_of_changes_names_existing_code():
    text = PAGE.read_text(encoding='utf-8').partition('## Where to make a change')[2]
    rows = text.partition('\n## ')[0]
    named = re.findall(r'`([\w/]+\.py)` ((?:`\w+`(?:, )?)+)', rows)
    assert len(named) >= 10
    for path, symbols in named:
        source = (ROOT / path).read_text(encoding='utf-8')
        for symbol in re.findall(r'\w+', symbols):
            assert re.search(rf'\b{symbol}\b', source), f'{path} has no {symbol}'


def imports_of(path: Path) -> set[str]:
    """Return the modules of ours that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in NAMES}
        elif isinstance(node, ast.ImportFrom) and node.module in NAMES:
            full = {f'{node.module}.{alias.name}' for alias in node.names}
            found |= {name if name in NAMES else node.module for name in full}
    return found


def room_of(module: str) -> str:
    """Return the row of the table that a module belongs to: the most specific one."""
    candidates = [row for row in TABLE if f'{module}.'.startswith(f'{row}.')]
    return max(candidates, key=len, default='')


def may_import(module: str, imported: str) -> bool:
    room, other = room_of(module), room_of(imported)
    if room == other:
        return True
    allowed = TABLE[room] | TABLE['everybody']
    return any(f'{imported}.'.startswith(f'{name}.') for name in allowed)


def test_the_table_is_read():
    assert len(TABLE) > 20
    assert TABLE['lpr_ros.core.io'] == {'lpr_ros.core.geometry'}
    assert not may_import('lpr_ros.core.loop_closure.verification', 'lpr_ros.core.retrieval')
    assert may_import('lpr_ros.core.retrieval.keyframing', 'lpr_ros.core.geometry.points')
    assert not may_import('lpr_ros.core.database.map_file', 'lpr_ros.core.model.checkpoint')


@pytest.mark.parametrize(('module', 'path'), [pytest.param(*m, id=m[0]) for m in modules()])
def test_a_module_imports_only_what_the_table_allows(module, path):
    assert room_of(module), f'{module}: no row of docs/architecture.md covers it'
    wrong = {name for name in imports_of(path) if not may_import(module, name)}
    assert not wrong, f'{module} ({room_of(module)}) imports {sorted(wrong)}'


def test_every_row_is_about_a_room_that_exists():
    rows = set(TABLE) - {'everybody'}
    named = rows | set().union(*TABLE.values())
    assert not {name for name in named if name not in NAMES}


def test_a_room_has_at_most_fifteen_modules():
    rooms = Counter(path.parent for _, path in modules() if path.name != '__init__.py')
    assert not {str(room): count for room, count in rooms.items() if count > MAX_MODULES}


def test_tests_mirror_the_rooms():
    """A folder of tests has a room of the same name."""
    for folder in {path.parent for path in (ROOT / 'test').rglob('test_*.py')}:
        parts = folder.relative_to(ROOT / 'test').parts
        in_training = parts[:1] == ('training',)
        room = SOURCES['lpr_training'] / 'lpr_training' if in_training else ROOT / 'lpr_ros'
        assert room.joinpath(*(parts[1:] if in_training else parts)).is_dir(), folder
