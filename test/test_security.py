"""Nothing that comes from outside is run: the calls that would, and the one place excepted."""

import ast
import json
import os
from pathlib import Path
import pickle
import runpy
import subprocess
import sys

import numpy as np
import pytest

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.splits.published_pickles import read_pickle

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted([*ROOT.glob('lpr_ros/**/*.py'), *ROOT.glob('training/**/*.py')])

# Each of these can run code out of the data it is given, or of a string.
FORBIDDEN = {
    'eval', 'exec', 'compile', '__import__', 'os.system', 'os.popen', 'pickle.load',
    'pickle.loads', 'pickle.Unpickler', 'cPickle.load', 'dill.load', 'joblib.load',
    'marshal.loads', 'marshal.load', 'shelve.open', 'yaml.load', 'yaml.unsafe_load',
    'yaml.full_load', 'yaml.load_all', 'torch.jit.load', 'torch.hub.load',
}  # fmt: skip
# Allowed only with this argument.
REQUIRED = {'torch.load': ('weights_only', True), 'numpy.load': ('allow_pickle', False)}
NETWORK = {'urllib', 'http', 'requests', 'socket', 'socketserver', 'ftplib', 'smtplib', 'aiohttp'}


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` of an expression made of names, '' of any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        prefix = dotted(node.value)
        return f'{prefix}.{node.attr}' if prefix else ''
    return ''


def imported(nodes: list[ast.AST]) -> dict[str, str]:
    """Return what the names that a module imports stand for: `np` for `numpy`."""
    names = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom):
            names |= {
                alias.asname or alias.name: f'{node.module}.{alias.name}' for alias in node.names
            }
    return names


def problems_of(source: str) -> list[str]:
    """List the calls of a module that could run what they read."""
    found = []
    nodes = list(ast.walk(ast.parse(source)))
    names = imported(nodes)
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        first, dot, rest = dotted(node.func).partition('.')
        name = f'{names.get(first, first)}{dot}{rest}'
        values = {k.arg: getattr(k.value, 'value', None) for k in node.keywords}
        if name in FORBIDDEN:
            found.append(f'line {node.lineno}: {name}')
        if name in REQUIRED and values.get(REQUIRED[name][0]) is not REQUIRED[name][1]:
            found.append(f'line {node.lineno}: {name} without {REQUIRED[name]}')
        if values.get('shell') is True:
            found.append(f'line {node.lineno}: {name} through a shell')
    return found


@pytest.mark.parametrize('path', SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_call_runs_what_it_reads(path):
    assert not problems_of(path.read_text(encoding='utf-8'))


@pytest.mark.parametrize('source', [
    'pickle.load(f)', 'torch.load(p)', 'torch.load(p, weights_only=False)', 'yaml.load(t)',
    'import numpy as np; np.load(p)', 'numpy.load(p, allow_pickle=True)', 'eval(text)',
    'subprocess.run(x, shell=True)', 'from pickle import loads; loads(x)',
    'from pickle import load as read; read(x)', 'import pickle as p; p.load(f)',
])  # fmt: skip
def test_the_scan_sees_each_of_them(source):
    assert len(problems_of(source)) == 1


def test_one_file_unpickles_and_only_through_stand_ins():
    """The published benchmark is pickles; every global in them is answered by our own code."""
    users = [path.name for path in SOURCES if 'pickle.Unpickler' in path.read_text()]
    assert users == ['published_pickles.py']


def network_uses(source: str) -> set[str]:
    """Return the network modules that are imported; of socket, what of it is used."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    names |= {n.module or '' for n in nodes if isinstance(n, ast.ImportFrom)}
    used = {dotted(n) for n in nodes if isinstance(n, ast.Attribute)}
    return ({name.split('.')[0] for name in names} & NETWORK - {'socket'}) | {
        name for name in used if name.startswith('socket.')
    }


@pytest.mark.parametrize('path', SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_opens_the_network(path):
    """A pair of sockets between a process and its child is no network."""
    assert network_uses(path.read_text(encoding='utf-8')) <= {'socket.socketpair'}


def test_the_scan_sees_the_network():
    assert network_uses('import socket\nsocket.create_connection(x)')
    assert network_uses('from urllib.request import urlopen')


class Pretended:
    """Pickles as a call of NumPy's with the given arguments and state."""

    def __init__(self, call, arguments, state=None):
        self.parts = (call, arguments, state) if state is not None else (call, arguments)

    def __reduce__(self):
        return self.parts


def test_a_pickled_dtype_cannot_make_pointers_of_bytes(tmp_path):
    """NumPy's own unpickling believes a state that says an object array has no objects in it."""
    innocent = Pretended(np.dtype, ('O8', False, True), (3, '|', None, None, None, -1, -1, 0))
    reconstruct = np.zeros(1).__reduce__()[0]
    array = Pretended(
        reconstruct, (np.ndarray, (0,), b'b'), (1, (1,), innocent, False, b'\x10' * 8)
    )
    path = tmp_path / 'a.pickle'
    path.write_bytes(pickle.dumps({0: {'query': 'a', 'positives': array}}, protocol=2))
    with pytest.raises(DatasetError, match='expected numbers or text, got dtype'):
        read_pickle(path)


def test_a_pickle_cannot_ask_for_more_memory_than_its_size_allows(tmp_path):
    """One byte more in the number of a memo entry, and CPython sets aside 64 GB."""
    path = tmp_path / 'a.pickle'
    path.write_bytes(b'\x80\x02]r\xff\xff\xff\x7f.')
    with pytest.raises(DatasetError, match='MemoryError'):
        read_pickle(path)
    path.write_bytes(pickle.dumps([1, 2], protocol=2))
    assert read_pickle(path) == [1, 2]


def test_numba_caches_only_in_a_folder_that_no_one_else_can_write(tmp_path):
    """Numba unpickles its cache: next to the source, anyone who can write there runs code."""
    code = """
from lpr_ros.core.model import wall_alignment, wall_alignment_numba
from lpr_ros.core.sparse import kernel_map, kernel_map_numba
maps = kernel_map_numba
for f in (wall_alignment_numba.alignment, maps.rows_ahead, maps.list_pairs):
    print(f.stats.cache_path)
"""

    def cache_paths(**environment):
        kept = {k: v for k, v in os.environ.items() if k != 'NUMBA_CACHE_DIR'}
        command = [sys.executable, '-c', code]
        done = subprocess.run(
            command, env={**kept, **environment}, capture_output=True, text=True, timeout=200
        )
        return done.stdout.split() or done.stderr.splitlines()[-1]

    paths = cache_paths(XDG_CACHE_HOME=str(tmp_path))
    assert len(paths) == 3
    assert all(Path(path).is_relative_to(tmp_path / 'lpr_ros' / 'numba') for path in paths)
    (tmp_path / 'lpr_ros' / 'numba').chmod(0o777)
    assert 'RuntimeError: no cache folder' in cache_paths(XDG_CACHE_HOME=str(tmp_path))
    chosen = cache_paths(NUMBA_CACHE_DIR=str(tmp_path / 'chosen'))
    assert all(Path(path).is_relative_to(tmp_path / 'chosen') for path in chosen)


def test_no_source_uses_the_default_cache_of_numba():
    users = [path.name for path in SOURCES if 'cache=True' in path.read_text()]
    assert users == ['numba_compile.py']


def test_sbom_lists_what_is_installed_with_licenses(tmp_path, capsys):
    main = runpy.run_path(str(ROOT / '.ci' / 'sbom.py'))['main']
    assert main([str(tmp_path / 'build' / 'sbom.json')]) == 0
    bom = json.loads((tmp_path / 'build' / 'sbom.json').read_text())
    assert (bom['bomFormat'], bom['specVersion']) == ('CycloneDX', '1.5')
    found = {entry['name']: entry for entry in bom['components']}
    assert found['numpy']['version'] == np.__version__
    assert found['numpy']['purl'] == f'pkg:pypi/numpy@{np.__version__}'
    assert {'torch', 'faiss-cpu', 'pyyaml', 'safetensors'} <= found.keys()
    assert list(found) == sorted(found)
    licenses = {n: entry['licenses'][0]['license']['name'] for n, entry in found.items()}
    assert 'BSD' in licenses['numpy']
    assert 'torch' in capsys.readouterr().out
