"""The 3-D view of the report: its data, and the picture where there is no WebGL."""

import base64
from dataclasses import dataclass
import json
from typing import Any

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
import numpy as np
from numpy.typing import DTypeLike, NDArray

from lpr_ros.core.geometry.points import first_in_voxels
from lpr_ros.core.geometry.se3 import transform_points
from lpr_ros.core.offline.result import DriveResult
from lpr_ros.core.offline.summary import odometry_poses
from lpr_ros.core.timing import NS_PER_S
from lpr_ros.report.theme import Theme, legend_below, new_figure
from lpr_ros.report.trajectory_figures import Poses, draw_drive

MAX_POINTS = 200_000  # 1.6 MB of the page
MAX_PICTURE_POINTS = 60_000
VOXEL_M, COARSER = 0.2, 1.25  # first voxel size, and the factor to the next
# Points are rasterized, so the page cannot recolor them; these work on light and dark.
HEIGHT_COLORS = LinearSegmentedColormap.from_list('height', ['#b4bcc8', '#8296ab', '#5a7391'])


@dataclass(frozen=True, eq=False)
class MapPoints:
    """Points of the corrected map, in the order in which the drive saw them."""

    xyz: NDArray[np.float32]
    keyframe: NDArray[np.int32]  # that saw each point first

    @property
    def heights(self) -> tuple[float, float]:
        """The heights between which colors differ: those of almost all points."""
        if not len(self.xyz):
            return 0.0, 1.0
        low, high = np.percentile(self.xyz[:, 2], (4.0, 97.0))
        return float(low), float(max(high, low + 1.0))

    def thinned(self, voxel_m: float) -> 'MapPoints':
        """Return the first point of each voxel."""
        first = first_in_voxels(self.xyz, voxel_m)
        return MapPoints(self.xyz[first], self.keyframe[first])


def map_points(result: DriveResult, max_points: int = MAX_POINTS) -> MapPoints:
    """Return the clouds of the keyframes at their corrected poses, thinned to a number of points.

    Memory is bounded: with every cloud, what has become too much is thinned.
    """
    found = MapPoints(np.empty((0, 3), np.float32), np.empty(0, np.int32))
    voxel_m = VOXEL_M
    for i, T in sorted(result.correction.poses.items()):
        xyz = transform_points(T, result.database[i].points)
        added = MapPoints(xyz, np.full(len(xyz), i, np.int32)).thinned(voxel_m)
        found = MapPoints(
            np.concatenate([found.xyz, added.xyz]),
            np.concatenate([found.keyframe, added.keyframe]),
        )
        while len(found.xyz) > 4 * max_points:
            found, voxel_m = found.thinned(voxel_m), voxel_m * COARSER
    found = found.thinned(voxel_m)
    while len(found.xyz) > max_points:
        voxel_m *= COARSER
        found = found.thinned(voxel_m)
    return found


def scene_json(result: DriveResult, points: MapPoints) -> str:
    """Return what scene.js draws: arrays as base64, one row per keyframe, and the loops."""
    count, poses = len(result.database), result.correction.poses
    stamps = np.array([result.database.place(i).stamp_ns for i in range(count)], dtype=np.int64)
    start_ns = stamps[result.first_id] if result.places else 0
    sessions = [result.database.place(i).session for i in range(count)]
    path = _positions(poses, count)
    low, high = np.nanmin(path, axis=0), np.nanmax(path, axis=0)
    center = 0.5 * (low + high)
    unit_m = max(
        0.01, float(np.abs(points.xyz - center).max(initial=0.0)) / np.iinfo(np.int16).max
    )
    pairs = sorted((loop.query_id, loop.match_id) for loop in result.loops)
    loops = [pair for pair in pairs if pair not in result.correction.rejected]
    scene = {
        'center': [0.0, 0.0, 0.0],
        'radius_m': max(10.0, 0.5 * float(np.linalg.norm((high - low)[:2]))),
        'heights': [height - center[2] for height in points.heights],
        'unit_m': unit_m,
        'points': _base64(np.rint((points.xyz - center) / unit_m), np.int16),
        'points_until': _base64(np.searchsorted(points.keyframe, range(1, count + 1)), np.int32),
        # The existing map is there from the start.
        'seconds': _base64(np.maximum(stamps - start_ns, 0) / NS_PER_S, np.float32),
        'corrected': _base64(path - center, np.float32),
        'odometry': _base64(_positions(odometry_poses(result), count) - center, np.float32),
        'starts': [i for i in range(1, count) if sessions[i] != sessions[i - 1]],
        'loops': _base64(loops, np.int32),
    }
    return json.dumps(scene, allow_nan=False)


def map_figure(result: DriveResult, points: MapPoints, theme: Theme) -> Figure:
    """Draw the corrected map from above, with the drive."""
    figure = new_figure(theme, 10.6, 6.2)
    axes = figure.add_subplot()
    xyz = points.xyz[:: -(-len(points.xyz) // MAX_PICTURE_POINTS) or 1]
    axes.scatter(
        xyz[:, 0], xyz[:, 1], c=xyz[:, 2], s=0.6, linewidths=0, rasterized=True, zorder=1,
        cmap=HEIGHT_COLORS, vmin=points.heights[0], vmax=points.heights[1],
    )  # fmt: skip
    draw_drive(axes, result, result.correction.poses, theme, '')
    legend_below(figure, axes, theme, 6)
    return figure


def _positions(poses: Poses, count: int) -> NDArray[np.float64]:
    """Return the positions by ID; NaN where there is no pose."""
    positions = np.full((count, 3), np.nan)
    for i, T in poses.items():
        positions[i] = T[:3, 3]
    return positions


def _base64(values: Any, dtype: DTypeLike) -> str:
    array = np.asarray(values, dtype=np.dtype(dtype).newbyteorder('<'))
    return base64.b64encode(array.tobytes()).decode('ascii')
