"""The rules of the package that no type checker knows: who imports whom, what is declared."""

import ast
from pathlib import Path
import re
import runpy
import sys
from xml.etree import ElementTree

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / 'lpr_ros' / 'core'
CORE_FILES = sorted(CORE.rglob('*.py'))
FORBIDDEN = {
    'launch',
    'launch_ros',
    'lpr_training',
    'rclpy',
    'sensor_msgs_py',
    'tf2_ros',
    'training',
}
# Import names that differ from the name a package is declared by.
DECLARED_AS = {'yaml': 'pyyaml', 'faiss': 'faiss-cpu'}


def imported_packages(path: Path) -> set[str]:
    """Return the top-level names of every import of a file, also those inside functions."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding='utf-8'))))
    names = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    names |= {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module}
    return {name.split('.')[0] for name in names}


def setup_arguments() -> dict[str, ast.expr]:
    tree = ast.parse((ROOT / 'setup.py').read_text(encoding='utf-8'))
    call = next(
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and getattr(n.func, 'id', '') == 'setup'
    )
    return {keyword.arg: keyword.value for keyword in call.keywords}


def normalized(requirement: str) -> str:
    """Return the canonical name of a requirement, without extras and version."""
    name = re.match(r'[A-Za-z0-9._-]+', requirement).group()
    return re.sub(r'[-_.]+', '-', name).lower()


def declared_dependencies() -> dict[str, list[str]]:
    """Return requirements per extra; the key '' holds those always installed."""
    arguments = setup_arguments()
    tree = ast.parse((ROOT / 'setup.py').read_text(encoding='utf-8'))
    ros = next(
        ast.literal_eval(n.value)
        for n in tree.body
        if isinstance(n, ast.Assign) and n.targets[0].id == 'ROS_PACKAGES'
    )
    declared = {'': ast.literal_eval(arguments['install_requires'])}
    extras = arguments['extras_require']
    for key, value in zip(extras.keys, extras.values, strict=True):
        is_list = isinstance(value, ast.List)
        names = ast.literal_eval(value) if is_list else [f'ros-jazzy-{name}' for name in ros]
        declared[ast.literal_eval(key)] = names
    return declared


def locked(name: str) -> dict[str, set[str]]:
    """Return the hashes of each `package==version ; marker` of a lock file."""
    text = (ROOT / name).read_text(encoding='utf-8').replace(' \\\n', ' ')
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith('#')]
    found = {}
    for line in lines:
        requirement, *hashes = re.split(r'\s+--hash=sha256:', line)
        found[requirement] = set(hashes)
    return found


@pytest.mark.parametrize('path', CORE_FILES, ids=lambda path: str(path.relative_to(CORE)))
def test_core_imports_neither_ros_nor_training(path):
    imported = imported_packages(path)
    assert not imported & FORBIDDEN
    assert not {name for name in imported if name.endswith('_msgs') or name.endswith('_srvs')}


@pytest.mark.parametrize('package', ['gtsam', 'kiss_icp', 'kiss_matcher', 'small_gicp'])
def test_a_library_of_loop_closing_is_imported_in_one_file(package):
    assert len([path for path in CORE_FILES if package in imported_packages(path)]) == 1


def test_package_itself_imports_nothing():
    assert not imported_packages(ROOT / 'lpr_ros' / '__init__.py')


def test_every_third_party_import_of_the_core_is_declared():
    own = {'lpr_ros', *sys.stdlib_module_names}
    used = {name for path in CORE_FILES for name in imported_packages(path)} - own
    declared = declared_dependencies()
    optional = {'MinkowskiEngine'}  # imported in one file, which says so where it is absent
    always = {normalized(name) for name in declared['']}
    missing = {
        name for name in used - optional if normalized(DECLARED_AS.get(name, name)) not in always
    }
    assert not missing
    assert optional <= {name.partition('==')[0] for name in declared['minkowski']}


@pytest.mark.parametrize(
    ('package', 'user'),
    [
        ('MinkowskiEngine', 'minkowski_layers.py'),
        ('faiss', 'faiss_index.py'),
    ],
)
def test_a_heavy_package_is_imported_in_one_file_only(package, user):
    assert [path.name for path in CORE_FILES if package in imported_packages(path)] == [user]


def test_manifest_makes_an_ament_python_package():
    """An invalid e-mail makes colcon treat the package as plain Python, silently."""
    root = ElementTree.parse(ROOT / 'package.xml').getroot()
    assert (root.tag, root.get('format')) == ('package', '3')
    assert root.findtext('name') == 'lpr_ros'
    assert root.findtext('export/build_type') == 'ament_python'
    email = root.find('maintainer').get('email')
    assert re.fullmatch(r'[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}', email)
    assert (ROOT / 'resource' / 'lpr_ros').is_file()
    dependencies = [node.text for node in root if node.tag.endswith('depend')]
    assert len(dependencies) == len(set(dependencies))


def test_manifest_and_setup_agree():
    root = ElementTree.parse(ROOT / 'package.xml').getroot()
    arguments = setup_arguments()
    assert root.findtext('version') == ast.literal_eval(arguments['version'])
    assert root.findtext('license') == ast.literal_eval(arguments['license'])
    email = ast.literal_eval(arguments['maintainer_email'])
    assert root.find('maintainer').get('email') == email
    declared = {
        normalized(name).removeprefix('ros-jazzy-').replace('-', '_')
        for name in declared_dependencies()['ros']
    }
    in_manifest = {node.text for node in root if node.tag in ('exec_depend', 'test_depend')}
    assert declared <= in_manifest


def test_every_dependency_is_locked_with_hashes_and_torch_pinned():
    declared = declared_dependencies()
    assert 'torch==2.13.0' in declared['']
    assert all('==' in name for name in declared['minkowski'])  # source only, built by hand
    in_lock = {name for extra, names in declared.items() if extra != 'minkowski' for name in names}
    run, everything = locked('requirements.lock'), locked('requirements-dev.lock')
    for names, lock in ((declared[''], run), (in_lock, everything)):
        missing = {normalized(name) for name in names} - {normalized(name) for name in lock}
        assert missing == {'torch'}, 'run make lock'
    for name, hashes in everything.items():
        assert re.match(r'[a-z0-9-]+==[0-9][0-9A-Za-z.]*( ;|$)', name)
        assert hashes, name
        assert all(re.fullmatch('[0-9a-f]{64}', digest) for digest in hashes), name
    pinned = {name.partition(' ;')[0]: hashes for name, hashes in everything.items()}
    for name, hashes in run.items():
        assert pinned[name.partition(' ;')[0]] == hashes


def test_core_never_edits_the_import_path():
    for path in CORE_FILES:
        text = path.read_text(encoding='utf-8')
        assert not re.search(r'sys\.path\s*(\.\w+\(|\[|\+?=)', text), path


def test_shipped_parameter_files_are_yaml():
    for path in sorted((ROOT / 'config').glob('*.yaml')):
        assert isinstance(yaml.safe_load(path.read_text(encoding='utf-8')), dict), path


def test_the_architecture_page_names_every_module_where_it_is():
    page = (ROOT / 'docs' / 'architecture.md').read_text(encoding='utf-8')
    sections = {part.partition('\n')[0]: part for part in page.split('### ')[1:]}
    for path in (ROOT / 'lpr_ros').rglob('*.py'):
        folder = str(path.parent.relative_to(ROOT))
        assert f'| `{path.name}` | ' in sections[folder], 'run python -m lpr_ros.cli.generate_docs'


def test_the_architecture_picture_is_what_its_script_draws():
    script = ROOT / 'docs' / 'images' / 'architecture.py'
    drawn = runpy.run_path(str(script))['draw']()
    assert script.with_suffix('.svg').read_text(encoding='utf-8') == drawn
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / 'lpr_ros').rglob('*.py')}
    for named in re.findall(r'[\w/]+\.py', drawn):
        assert any(module.endswith('/' + named) for module in modules), named
    ElementTree.fromstring(drawn)
