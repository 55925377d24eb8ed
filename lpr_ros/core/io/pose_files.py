"""Pose files: TUM (stamp x y z qx qy qz qw) and KITTI (the first three rows of each matrix)."""

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.clock import NS_PER_S
from lpr_ros.core.errors import DatasetError, shown
from lpr_ros.core.files import read_text, whole_file
from lpr_ros.core.geometry import Trajectory, pose_from_quaternion, quaternion_from_pose

LATEST_NS = 2**63


def exact_ns(text: str, unit_ns: int) -> int:
    """Turn a decimal time of the given unit into integer nanoseconds, not through a float."""
    try:
        nanoseconds = Decimal(text) * unit_ns
        is_within = abs(nanoseconds) < LATEST_NS
    except (ArithmeticError, ValueError) as error:  # InvalidOperation among them
        raise DatasetError(f'expected a time, got {shown(text)}') from error
    if not is_within:
        raise DatasetError(f'expected a time within 292 years of 1970, got {shown(text)}')
    return int(nanoseconds.to_integral_value())


def ns_from_seconds(text: str) -> int:
    """Turn decimal seconds into integer nanoseconds."""
    return exact_ns(text, NS_PER_S)


def seconds_from_ns(stamp_ns: int) -> str:
    """Write integer nanoseconds as decimal seconds, the inverse of `ns_from_seconds`."""
    sign = '-' if stamp_ns < 0 else ''
    whole, part = divmod(abs(stamp_ns), NS_PER_S)
    return f'{sign}{whole}.{part:09d}'


def read_tum(path: Path) -> Trajectory:
    """Read a TUM trajectory; the stamps are seconds, comment lines start with #."""
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
            raise DatasetError(f'{path}, line {line}: the quaternion is zero: {words[4:]}')
    if not stamps:
        raise DatasetError(f'{path}: expected lines "stamp x y z qx qy qz qw", found none')
    table = np.array(values)
    return Trajectory.from_unordered(stamps, pose_from_quaternion(table[:, :3], table[:, 3:]))


def write_tum(path: Path, trajectory: Trajectory) -> None:
    """Write a TUM trajectory that `read_tum` reads back."""
    quaternions = quaternion_from_pose(trajectory.T)
    with whole_file(path) as partial, partial.open('w', encoding='utf-8') as stream:
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
        poses.append(np.vstack([rows, [0.0, 0.0, 0.0, 1.0]]))
    if not poses:
        raise DatasetError(f'{path}: expected lines of 12 numbers, found none')
    return np.stack(poses)


def write_kitti_poses(path: Path, poses: Iterable[NDArray[np.float64]]) -> None:
    """Write poses one per line, as `read_kitti_poses` reads them."""
    with whole_file(path) as partial, partial.open('w', encoding='utf-8') as stream:
        for T in poses:
            stream.write(kitti_pose_line(T))


def kitti_pose_line(T: NDArray[np.float64]) -> str:
    """Return one line of a KITTI pose file."""
    return ' '.join(f'{v:.12e}' for v in T[:3].ravel()) + '\n'


def _rows(path: Path) -> Iterable[tuple[int, list[str]]]:
    """Yield (line number, words) of every line that holds data."""
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
