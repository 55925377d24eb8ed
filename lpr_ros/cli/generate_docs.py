"""Files that are written from the configuration, so that nothing is declared twice.

    python -m lpr_ros.documents    rewrites config/lpr.yaml and the tables of README.md and
                                   docs/architecture.md

A test fails when they are not what this would write.
"""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
import re
from typing import Any

from lpr_ros.core.config import Config
from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.resources import REPOSITORY
from lpr_ros.node_config import NodeConfig
from lpr_ros.parameters import Leaf, leaves, parameters_table
from lpr_ros.pose_graph_node import PoseGraphNodeConfig

YAML_HEAD = """\
# Every parameter of lpr_node at its default. Copy what you change: what is left out keeps its
# default. Written by python -m lpr_ros.documents. (start): read at start only, the rest may be
# changed while it runs: ros2 param set /lpr_node support.min_probability 0.5
/**:
  ros__parameters:
"""
TOPICS = (
    ('in', '`points`', '`sensor_msgs/PointCloud2`',
     'of any driver: float32 or float64, organised or not, padded, either byte order'),
    ('in', '`odometry`', '`nav_msgs/Odometry`', 'optional; interpolated at the stamp of the scan'),
    ('out', '`~/loop_closures`', '`nav_msgs/Odometry`',
     'verified loops as constraints: frame `keyframe/<match>`, child frame `keyframe/<query>`, '
     'stamp of the query, pose T_match_query with its covariance'),
    ('out', '`~/candidates`', '`std_msgs/Float64MultiArray`',
     'every retrieval before verification, columns `query_id,match_id,distance,probability`'),
    ('out', '`~/keyframes`', '`nav_msgs/Path`',
     'transient local; the place in it is the id, the frame of each pose its session'),
    ('out', '`~/markers`', '`visualization_msgs/MarkerArray`',
     'keyframes, accepted and rejected edges'),
    ('out', '`/diagnostics`', '`diagnostic_msgs/DiagnosticArray`',
     'rates, times (mean, p95), drops by kind, size of the database, device, last error'),
    ('service', '`~/save_map`', '`std_srvs/Trigger`', 'writes all keyframes to `map_path`'),
    ('service', '`~/load_map`', '`std_srvs/Trigger`', 'begins anew among those of `map_path`'),
    ('service', '`~/reset`', '`std_srvs/Trigger`', 'forgets all keyframes'),
)  # fmt: skip


def topics_table() -> str:
    """Return the topics and services of lpr_node as the table of the documentation."""
    return markdown_table(('', 'name', 'type', 'what'), TOPICS)


def parameters_yaml(config: Config) -> str:
    """Return the parameters as a ROS parameter file with a comment on every line."""
    described = {leaf.name: leaf for leaf in leaves(config)}
    return YAML_HEAD + ''.join(_lines(config, described, '', 4))


def _lines(config: Config, described: dict[str, Leaf], prefix: str, indent: int) -> Iterator[str]:
    """Write the values of a section, then the sections in it."""
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    for name, value in values.items():
        if not isinstance(value, Config):
            leaf = described[prefix + name]
            # ROS cannot read the type of an empty list.
            hidden = '# ' if leaf.default == [] else ''
            yield f'{" " * indent}{hidden}{name}: {_scalar(leaf.default)}  # {_comment(leaf)}\n'
    for name, value in values.items():
        if isinstance(value, Config):
            about = (type(value).__doc__ or '').partition('\n')[0]
            yield f'{" " * indent}{name}:  # {about}\n'
            yield from _lines(value, described, f'{prefix}{name}.', indent + 2)


def _comment(leaf: Leaf) -> str:
    unit = f'[{leaf.unit}] ' if leaf.unit else ''
    allowed = f'; {leaf.constraints}' if leaf.constraints else ''
    return f'{unit}{leaf.description}{allowed}{" (start)" if leaf.fixed else ""}'


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        text = repr(value)
        # Without a point, YAML takes 1e-06 for text.
        return text if '.' in text or 'e' not in text else text.replace('e', '.0e')
    if isinstance(value, list):
        return f'[{", ".join(map(_scalar, value))}]'
    return f"'{value}'" if value == '' else str(value)


def modules_tables(root: Path) -> str:
    """Return what every module of the package is for, by the first line of its docstring."""
    package = root / 'lpr_ros'
    folders = sorted({path.parent for path in package.rglob('*.py')})
    return '\n'.join(
        f'### {folder.relative_to(root)}\n\n'
        + markdown_table(
            ('module', 'what it is for'),
            [(f'`{p.name}`', _first_line(p)) for p in sorted(folder.glob('*.py'))],
        )
        for folder in folders
    )


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding='utf-8'))) or ''
    return text.partition('\n')[0].replace('|', r'\|')


def with_section(text: str, name: str, content: str) -> str:
    """Return a document with what stands between its marks of that name replaced."""
    begin, end = f'<!-- {name}: by lpr_ros.documents -->\n', f'<!-- end of {name} -->'
    pattern = re.compile(re.escape(begin) + '.*?' + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f'expected the marks {begin!r} and {end!r}')
    return pattern.sub(lambda _: begin + content + end, text)


def documents(root: Path) -> dict[Path, str]:
    """Return every written file with what should be in it."""
    config = NodeConfig()
    readme = (root / 'README.md').read_text(encoding='utf-8')
    readme = with_section(readme, 'topics', topics_table())
    readme = with_section(readme, 'parameters', parameters_table(config))
    graph = parameters_table(PoseGraphNodeConfig())
    readme = with_section(readme, 'parameters of pose_graph_node', graph)
    page = root / 'docs' / 'architecture.md'
    modules = with_section(page.read_text(encoding='utf-8'), 'modules', modules_tables(root))
    return {
        root / 'config' / 'lpr.yaml': parameters_yaml(config),
        root / 'README.md': readme,
        page: modules,
    }


def main() -> None:
    """Rewrite them."""
    for path, text in documents(REPOSITORY).items():
        path.write_text(text, encoding='utf-8')


if __name__ == '__main__':
    main()
