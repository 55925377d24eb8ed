"""g2o files: the pose graph as every optimiser reads it.

VERTEX_SE3:QUAT id x y z qx qy qz qw
EDGE_SE3:QUAT from to x y z qx qy qz qw, and the upper triangle of the information, row by row

Information is the inverse of the covariance of a small motion on the right, x y z and then
rotation about x y z in radians: what gtsam and Ceres read. g2o itself measures rotation by the
vector part of the quaternion, half the angle, and so gives the rotations a quarter of the weight.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.files import read_text, whole_file
from lpr_ros.core.geometry import pose_from_quaternion, quaternion_from_pose
from lpr_ros.core.pose_graph import Edge, is_covariance

VERTEX, EDGE = 'VERTEX_SE3:QUAT', 'EDGE_SE3:QUAT'
UPPER = np.triu_indices(6)
WORDS = {VERTEX: 2 + 7, EDGE: 3 + 7 + 21}


@dataclass(frozen=True, eq=False)
class G2oGraph:
    """What a g2o file holds."""

    poses: dict[int, NDArray[np.float64]]  # (4, 4) by vertex
    edges: list[Edge]  # a loop is an edge between vertices whose ids are not consecutive


def write_g2o(
    path: Path, poses: Mapping[int, NDArray[np.float64]], edges: Iterable[Edge]
) -> None:
    """Write vertices at these poses, and edges; the file appears whole or not at all."""
    with whole_file(path) as partial, partial.open('w', encoding='utf-8') as stream:
        for vertex, T in poses.items():
            stream.write(f'{VERTEX} {vertex} {_numbers(_pose_values(T))}\n')
        for edge in edges:
            information = np.linalg.inv(edge.covariance)[UPPER]
            values = (*_pose_values(edge.T_from_to), *information)
            stream.write(f'{EDGE} {edge.from_id} {edge.to_id} {_numbers(values)}\n')


def read_g2o(path: Path) -> G2oGraph:
    """Read vertices and edges of poses in space; other kinds of lines are left out."""
    graph = G2oGraph({}, [])
    for number, line in enumerate(read_text(path, 'a g2o text file').splitlines(), start=1):
        words = line.split()
        if words and words[0] in WORDS:
            try:
                _take(graph, words)
            except ValueError as error:
                raise DatasetError(f'{path}, line {number}: {error}') from error
    ends = {i for edge in graph.edges for i in (edge.from_id, edge.to_id)}
    if not ends <= graph.poses.keys():
        raise DatasetError(f'{path}: edges name vertices that it lacks: '
                           f'{sorted(ends - graph.poses.keys())[:5]}')  # fmt: skip
    return graph


def _take(graph: G2oGraph, words: list[str]) -> None:
    """Put one line into the graph."""
    if len(words) != WORDS[words[0]]:
        raise ValueError(f'expected {WORDS[words[0]]} words, got {len(words)}')
    if words[0] == VERTEX:
        graph.poses[int(words[1])] = _pose(words[2:])
        return
    from_id, to_id = int(words[1]), int(words[2])
    upper = np.zeros((6, 6))
    upper[UPPER] = _floats(words[10:])
    information = upper + np.triu(upper, 1).T
    if not is_covariance(information):
        raise ValueError(f'expected positive definite information, got {words[10:]}')
    inverse = np.linalg.inv(information)
    covariance = 0.5 * (inverse + inverse.T)
    if not np.isfinite(covariance).all():
        raise ValueError(f'expected information that can be inverted, got {words[10:]}')
    is_loop = abs(to_id - from_id) != 1
    graph.edges.append(Edge(from_id, to_id, _pose(words[3:10]), covariance, is_loop))


def _pose(words: list[str]) -> NDArray[np.float64]:
    values = _floats(words)
    if np.linalg.norm(values[3:]) < 1e-6:
        raise ValueError(f'the quaternion is zero: {words[3:]}')
    return pose_from_quaternion(values[:3], values[3:])


def _floats(words: list[str]) -> NDArray[np.float64]:
    values = np.array([float(word) for word in words])
    if not np.isfinite(values).all():
        raise ValueError(f'expected finite numbers, got {words}')
    return values


def _pose_values(T: NDArray[np.float64]) -> tuple[float, ...]:
    return (*T[:3, 3], *quaternion_from_pose(T))


def _numbers(values: Iterable[float]) -> str:
    return ' '.join(f'{value:.12g}' for value in values)
