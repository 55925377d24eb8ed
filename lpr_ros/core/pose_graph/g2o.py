"""Writer of g2o pose graph files.

VERTEX_SE3:QUAT id x y z qx qy qz qw
EDGE_SE3:QUAT from to x y z qx qy qz qw, and the upper triangle of the information matrix by rows

The information matrix is the inverse of the covariance of a small motion in the `to` frame: x y z,
then the rotation vector in radians, as gtsam and Ceres read it. g2o itself measures rotation by
the vector part of the quaternion, half the angle, so it weights rotations by a quarter.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.files import atomic_file
from lpr_ros.core.geometry.se3 import quaternion_from_pose
from lpr_ros.core.pose_graph.graph import Edge

VERTEX, EDGE = 'VERTEX_SE3:QUAT', 'EDGE_SE3:QUAT'
UPPER = np.triu_indices(6)


def write_g2o(path: Path, poses: Mapping[int, NDArray[np.float64]], edges: Iterable[Edge]) -> None:
    """Write vertices at these poses, and edges, atomically."""
    with atomic_file(path) as partial, partial.open('w', encoding='utf-8') as stream:
        for vertex, T in poses.items():
            stream.write(f'{VERTEX} {vertex} {_format(_pose_values(T))}\n')
        for edge in edges:
            information = np.linalg.inv(edge.covariance)[UPPER]
            values = (*_pose_values(edge.T_from_to), *information)
            stream.write(f'{EDGE} {edge.from_id} {edge.to_id} {_format(values)}\n')


def _pose_values(T: NDArray[np.float64]) -> tuple[float, ...]:
    return (*T[:3, 3], *quaternion_from_pose(T))


def _format(values: Iterable[float]) -> str:
    return ' '.join(f'{value:.12g}' for value in values)
