"""Submaps from raw Oxford RobotCar recordings: LMS push-broom scans along INS poses.

ROOT/<run>/lms_front.timestamps (time chunk), lms_front/<time>.bin (float64 x y reflectance),
gps/ins.csv, and ROOT/extrinsics/{lms_front,ins}.txt as in the RobotCar SDK. A submap covers 20 m
of trajectory, without ground, as 4096 points in [-1, 1] with all coordinates negated as published.
T_world_sensor is a translation (x easting, y northing) to the middle of the trajectory. The
published tables use the center of the points instead, which is unknown before they are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option
from lpr_ros.core.errors import CloudError, DatasetError
from lpr_ros.core.files import wrap_read_errors
from lpr_ros.core.geometry.se3 import invert, pose_from_euler, rotation_angle_rad
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.io.raw_clouds import read_raw
from lpr_training.datasets.base import UNIT_CUBE, DatasetTable, PlaceDataset, describe_folder
from lpr_training.datasets.formats.csv_table import Table
from lpr_training.datasets.oxford_submaps import normalize, remove_ground

INS_POSITION = ('northing', 'easting', 'down')
INS_ANGLES = ('roll', 'pitch', 'yaw')
NS_PER_US = 1000
SPACING_M = {'training': 10.0, 'evaluation': 20.0}


@dataclass(frozen=True)
class SubmapConfig(Config):
    """Submap construction, as published with PointNetVLAD."""

    length_m: float = option(20.0, 'Length of trajectory covered by a submap', unit='m', low=0.1)
    scan_distance_m: float = option(
        0.025, 'Minimum distance between used scans', unit='m', low=0.0
    )
    scan_angle_deg: float = option(
        30.0,
        'Rotation after which a scan is used, whatever its distance to the one before',
        unit='deg',
        low=0.0,
    )
    skip_first: int = option(
        5000, 'Number of scans skipped at the start, in the parking lot', low=0
    )
    skip_last: int = option(1000, 'Number of scans skipped at the end', low=0)


DEFAULT_CONFIG = SubmapConfig()


class OxfordRawDataset(PlaceDataset):
    """Submaps of raw runs; building one reads some hundred scans, about a second."""

    clouds = UNIT_CUBE

    def __init__(
        self,
        root: Path,
        *,
        part: str = 'evaluation',
        runs: Sequence[str] | None = None,
        laser: str = 'lms_front',
        config: SubmapConfig = DEFAULT_CONFIG,
    ):
        self._root, self._laser, self._config = Path(root), laser, config
        if part not in SPACING_M:
            raise DatasetError(f'part {part!r}: expected one of {sorted(SPACING_M)}')
        self._spacing_m = SPACING_M[part]
        found = sorted(p.parent.name for p in self._root.glob(f'*/{laser}.timestamps'))
        unknown = sorted(set(runs or ()) - set(found))
        if not found or unknown:
            raise DatasetError(
                f'expected {self._root}/{unknown[0] if unknown else "<run>"}/{laser}.timestamps, '
                f'{laser}/*.bin and gps/ins.csv, found {describe_folder(self._root)}'
            )
        self._T_ins_laser = invert(self._extrinsic('ins')) @ self._extrinsic(laser)
        self._scans: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        super().__init__(DatasetTable.join([self._plan_run(r) for r in runs or found]))

    def _extrinsic(self, sensor: str) -> NDArray[np.float64]:
        """Read the pose of a sensor in the vehicle frame, x y z roll pitch yaw."""
        path = self._root / 'extrinsics' / f'{sensor}.txt'
        with wrap_read_errors(path, 'x y z roll pitch yaw'):
            values = np.array(path.read_text(encoding='utf-8').split(), dtype=np.float64)
        if values.shape != (6,):
            raise DatasetError(f'{path}: expected 6 numbers, got {len(values)}')
        return pose_from_euler(values[:3], values[3:])

    def _plan_run(self, run: str) -> DatasetTable:
        times_us, chunks = read_timestamps(self._root / run / f'{self._laser}.timestamps')
        last = len(times_us) - self._config.skip_last
        times_us = times_us[self._config.skip_first : last]
        chunks = chunks[self._config.skip_first : last]
        T, covered = read_ins(self._root / run / 'gps' / 'ins.csv').sample(times_us * NS_PER_US)
        windows = [
            window
            for chunk in np.unique(chunks)
            for window in plan_submaps(
                T, np.flatnonzero((chunks == chunk) & covered), self._spacing_m, self._config
            )
        ]
        if not windows:
            raise DatasetError(
                f'{self._root / run}: expected {self._config.length_m} m of trajectory, '
                f'got {len(times_us)} scans, {int(covered.sum())} of them with a pose'
            )
        self._scans += [(times_us[w], T[w]) for w in windows]
        T_world = np.tile(np.eye(4), (len(windows), 1, 1))
        middles = np.array([T[w, :3, 3].mean(axis=0) for w in windows])
        T_world[:, :3, 3] = middles[:, [1, 0, 2]] * [1.0, 1.0, -1.0]
        names = tuple(str(times_us[w[0]]) for w in windows)
        stamps = np.array([int(n) * NS_PER_US for n in names], dtype=np.int64)
        return DatasetTable(T_world, stamps, (run,) * len(names), names)

    def points(self, index: int) -> NDArray[np.float32]:
        """Build one submap (4096, 3) in [-1, 1]."""
        rng = np.random.default_rng(int(self.stamps_ns[index]))  # deterministic per submap
        try:
            gathered = remove_ground(self.gather(index), rng)
            return normalize(-gathered, rng)[0].astype(np.float32)
        except CloudError as error:
            raise DatasetError(
                f'{self._root / self.runs[index]}, submap {self.names[index]}: {error}'
            ) from error

    def gather(self, index: int) -> NDArray[np.float64]:
        """Return the points of a submap in meters, in the INS frame of its first scan."""
        times_us, T_world_ins = self._scans[index]
        folder = self._root / self.runs[index] / self._laser
        parts = []
        for T_first_ins, time_us in zip(
            invert(T_world_ins[0]) @ T_world_ins, times_us, strict=True
        ):
            scan = read_raw(folder / f'{time_us}.bin', '<f8', 3)
            T = T_first_ins @ self._T_ins_laser
            parts.append(
                scan[:, :2] @ T[:3, :2].T + T[:3, 3]
            )  # z = 0; the third column is reflectance
        return np.concatenate(parts)


def read_timestamps(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the stamp in microseconds and the chunk of each scan."""
    with wrap_read_errors(path, 'lines "microseconds chunk"'):
        table = np.loadtxt(path, dtype=np.int64, ndmin=2)
    if table.shape[1] != 2:
        raise DatasetError(f'{path}: expected lines "microseconds chunk", got {table[:1]}')
    return table[:, 0], table[:, 1]


def read_ins(path: Path) -> Trajectory:
    """Read the INS poses in a north-east-down world."""
    table = Table(path, ('timestamp', *INS_POSITION, *INS_ANGLES))
    if len(table) == 0:
        raise DatasetError(f'{path}: expected at least one pose, got none')
    T = pose_from_euler(table.numbers(INS_POSITION), table.numbers(INS_ANGLES))
    return Trajectory.from_unordered(table.stamps_ns('timestamp', NS_PER_US), T)


def plan_submaps(
    T: NDArray[np.float64], scans: NDArray[np.int64], spacing_m: float, config: SubmapConfig
) -> list[NDArray[np.int64]]:
    """Split consecutive scans into submaps; an incomplete last one is dropped."""
    used = _skip_stationary(T, scans, config)
    positions = T[used, :2, 3]
    windows = []
    start = 0
    while start < len(used):
        distance = np.linalg.norm(positions[start:] - positions[start], axis=1)
        ends = np.flatnonzero(distance >= config.length_m)
        if len(ends) == 0:
            break
        windows.append(used[start : start + ends[0] + 1])
        start += int(np.flatnonzero(distance >= spacing_m)[0])
    return windows


def _skip_stationary(
    T: NDArray[np.float64], scans: NDArray[np.int64], config: SubmapConfig
) -> NDArray[np.int64]:
    """Drop scans without motion or rotation since the last used one."""
    limit_m, limit_rad = config.scan_distance_m, np.deg2rad(config.scan_angle_deg)
    used: list[int] = []
    for i in scans:
        if used:
            last = T[used[-1]]
            moved_m = np.hypot(*(T[i, :2, 3] - last[:2, 3]))
            is_near = moved_m < limit_m
            if is_near and rotation_angle_rad(last[:3, :3].T @ T[i, :3, :3]) < limit_rad:
                continue
        used.append(int(i))
    return np.array(used, dtype=np.int64)
