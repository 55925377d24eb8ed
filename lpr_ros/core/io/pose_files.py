"""Pose files: TUM (stamp x y z qx qy qz qw) and KITTI (3x4 matrices, row-major)."""

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError, short_repr
from lpr_ros.core.files import atomic_file, read_text
from lpr_ros.core.geometry.se3 import (
    MAX_POSITION_M,
    is_pose,
    pose_from_quaternion,
    quaternion_from_pose,
)
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.timing import NS_PER_S

END_NS = 2**63  # of int64 stamps


def is_kitti_file(path: Path) -> bool:
    """Return whether a pose file is KITTI (12 numbers per line), not TUM (8)."""
    lines = read_text(Path(path), 'a TUM or KITTI pose file').splitlines()
    first = next((line for line in lines if line and line[0] != '#'), '')
    return len(first.replace(',', ' ').split()) == 12


def read_pose_file(path: Path, stamps_ns: NDArray[np.int64]) -> Trajectory:
    """Read a TUM file, or a KITTI file with one pose per scan."""
    if not is_kitti_file(path):
        return read_tum(path)
    T = read_kitti_poses(path)
    if len(T) != len(stamps_ns):
        raise DatasetError(
            f'{path}: expected one pose for each of the {len(stamps_ns)} clouds, got {len(T)}'
        )
    return Trajectory.from_unordered(stamps_ns, T)


def exact_ns(text: str, unit_ns: int) -> int:
    """Convert a decimal time of the given unit to integer nanoseconds without a float."""
    try:
        nanoseconds = Decimal(text) * unit_ns
        in_range = abs(nanoseconds) < END_NS
    except (ArithmeticError, ValueError) as error:  # InvalidOperation among them
        raise DatasetError(f'expected a time, got {short_repr(text)}') from error
    if not in_range:
        raise DatasetError(f'expected a time within 292 years of 1970, got {short_repr(text)}')
    return int(nanoseconds.to_integral_value())


def ns_from_seconds(text: str) -> int:
    """Convert decimal seconds to integer nanoseconds."""
    return exact_ns(text, NS_PER_S)


def seconds_from_ns(stamp_ns: int) -> str:
    """Format integer nanoseconds as decimal seconds; the inverse of `ns_from_seconds`."""
    sign = '-' if stamp_ns < 0 else ''
    whole, part = divmod(abs(stamp_ns), NS_PER_S)
    return f'{sign}{whole}.{part:09d}'


def read_tum(path: Path) -> Trajectory:
    """Read a TUM trajectory; stamps are in seconds, # starts a comment."""
    stamps: list[int] = []
    values: list[list[float]] = []
    for line, words in _rows(path):
        if len(words) != 8:
            raise DatasetError(
                f'{path}, line {line}: expected 8 values (stamp x y z qx qy qz qw), '
                f'got {len(words)}'
            )
        try:
            stamps.append(ns_from_seconds(words[0]))
        except DatasetError as error:
            raise DatasetError(f'{path}, line {line}: {error}') from error
        values.append(_numbers(path, line, words[1:]))
        if np.linalg.norm(values[-1][3:]) < 1e-6:
            raise DatasetError(
                f'{path}, line {line}: expected a unit quaternion, got zero: {words[4:]}'
            )
    if not stamps:
        raise DatasetError(f'{path}: expected lines "stamp x y z qx qy qz qw", found none')
    table = np.array(values)
    return Trajectory.from_unordered(stamps, pose_from_quaternion(table[:, :3], table[:, 3:]))


def write_tum(path: Path, trajectory: Trajectory) -> None:
    """Write a TUM trajectory."""
    quaternions = quaternion_from_pose(trajectory.T)
    with atomic_file(path) as partial, partial.open('w', encoding='utf-8') as stream:
        stream.write('# stamp_s x y z qx qy qz qw\n')
        for stamp, T, q in zip(trajectory.stamps_ns, trajectory.T, quaternions, strict=True):
            numbers = ' '.join(f'{v:.12g}' for v in (*T[:3, 3], *q))
            stream.write(f'{seconds_from_ns(int(stamp))} {numbers}\n')


def read_kitti_poses(path: Path) -> NDArray[np.float64]:
    """Read (N, 4, 4) poses, one per line of 12 numbers."""
    poses: list[NDArray[np.float64]] = []
    for line, words in _rows(path):
        if len(words) != 12:
            raise DatasetError(f'{path}, line {line}: expected 12 values, got {len(words)}')
        rows = np.reshape(_numbers(path, line, words), (3, 4))
        T = np.vstack([rows, [0.0, 0.0, 0.0, 1.0]])
        if not is_pose(T):
            raise DatasetError(
                f'{path}, line {line}: expected a rotation and a position within '
                f'{MAX_POSITION_M:g} m, got {T[:3].tolist()}'
            )
        poses.append(T)
    if not poses:
        raise DatasetError(f'{path}: expected lines of 12 numbers, found none')
    return np.stack(poses)


def write_kitti_poses(path: Path, poses: Iterable[NDArray[np.float64]]) -> None:
    """Write poses as KITTI lines of 12 numbers."""
    with atomic_file(path) as partial, partial.open('w', encoding='utf-8') as stream:
        for T in poses:
            stream.write(kitti_pose_line(T))


def kitti_pose_line(T: NDArray[np.float64]) -> str:
    """Return one line of a KITTI pose file."""
    return ' '.join(f'{v:.12e}' for v in T[:3].ravel()) + '\n'


def _rows(path: Path) -> Iterable[tuple[int, list[str]]]:
    """Yield (line number, words) of every line with data."""
    for number, line in enumerate(read_text(path, 'a text file of poses').splitlines(), start=1):
        words = line.split('#', 1)[0].replace(',', ' ').split()
        if words:
            yield number, words


def _numbers(path: Path, line: int, words: list[str]) -> list[float]:
    try:
        values = [float(word) for word in words]
    except ValueError as error:
        raise DatasetError(f'{path}, line {line}: expected numbers, got {words}') from error
    if not np.isfinite(values).all():
        raise DatasetError(f'{path}, line {line}: expected finite numbers, got {words}')
    return values
