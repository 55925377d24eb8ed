"""package.xml declares exactly what the package uses and rosdep can install."""

import ast
from pathlib import Path
import re
import sys
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
# Python packages with an apt package in rosdep, by the name they are imported by.
ROSDEP_KEYS = {
    'jinja2': 'python3-jinja2',
    'matplotlib': 'python3-matplotlib',
    'numba': 'python3-numba',
    'numpy': 'python3-numpy',
    'scipy': 'python3-scipy',
    'tqdm': 'python3-tqdm',
    'yaml': 'python3-yaml',
}
PIP_ONLY = {  # no rosdep key with an apt package, or a version that Ubuntu does not have
    'MinkowskiEngine',
    'faiss',
    'gtsam',
    'kiss_icp',
    'kiss_matcher',
    'rosbags',
    'safetensors',
    'small_gicp',
    'torch',
}
OPTIONAL = {'rtabmap_msgs', 'pose_graph_tools_msgs', 'cslam_common_interfaces'}  # of back-ends


def used_packages(*folders: str) -> set[str]:
    """Return the packages whose modules, interfaces or executables the folders use."""
    used = set()
    for path in [path for folder in folders for path in (ROOT / folder).rglob('*.py')]:
        text = path.read_text(encoding='utf-8')
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                used |= {alias.name.partition('.')[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                used.add(node.module.partition('.')[0])
        used |= set(re.findall(r"interface\('(\w+)/", text))
        used |= set(re.findall(r"package='(\w+)'", text))  # nodes of launch files
    return used - {'lpr_ros'} - set(sys.stdlib_module_names)


def declared(tag: str) -> set[str]:
    root = ElementTree.parse(ROOT / 'package.xml').getroot()
    return {node.text for node in root.findall(tag)}


def test_exec_depend_is_what_the_package_and_its_launch_files_use():
    used = used_packages('lpr_ros', 'launch') - PIP_ONLY - OPTIONAL
    assert declared('exec_depend') == {ROSDEP_KEYS.get(name, name) for name in used}


def test_test_depend_is_used_by_the_tests():
    used = {ROSDEP_KEYS.get(name, f'python3-{name}') for name in used_packages('test')}
    assert declared('test_depend') <= used | used_packages('test')
