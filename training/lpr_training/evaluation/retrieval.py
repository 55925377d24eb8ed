"""Exact nearest-neighbor search in descriptor space, and ground truth from positions.

A frame of a drive is a revisit if an earlier frame outside the excluded recent past is within a
radius on the ground: `find_revisits`. It needs positions only and serves datasets. The drive
evaluation of `lpr_ros.core.offline.evaluation` asks the place database of the pipeline which
keyframes were eligible instead, because that depends on its sessions and exclusion settings.

`ends[q]` is the number of frames that frame q may be matched with: frames 0 to ends[q] - 1. An
exclusion by frame count, time or traveled distance has this form.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.timing import NS_PER_S

Ranking: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]  # indices, distances
# (queries, database, k) -> nearest rows (Q, at most k)
Search: TypeAlias = Callable[[NDArray[np.floating], NDArray[np.floating], int], Ranking]
# (descriptors, ends) -> nearest earlier row of every row (N,)
SearchBefore: TypeAlias = Callable[[NDArray[np.floating], NDArray[np.integer]], Ranking]
CHUNK_BYTES = 64 * 2**20  # float64 temporaries per chunk of queries
EXCLUSION_UNITS = ('frames', 'time', 'distance')


def nearest(
    queries: NDArray[np.floating], database: NDArray[np.floating], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return indices and Euclidean distances (Q, min(k, N)) of the nearest rows, nearest first.

    Brute force in float64: a matrix product ranks the rows, and the distances are computed from
    differences, so that a duplicate is at exactly 0. Ties go to the lower index.
    """
    check_descriptors(queries, 'queries')
    check_descriptors(database, 'database')
    k = min(k, len(database))
    indices = np.empty((len(queries), k), dtype=np.int64)
    distances = np.empty((len(queries), k))
    if k == 0:
        return indices, distances
    center = database.mean(axis=0, dtype=np.float64)
    candidates = database - center
    norms = np.einsum('nd,nd->n', candidates, candidates)
    row_bytes = 8 * (len(database) + (k + 1) * database.shape[1])
    for part in chunks(len(queries), row_bytes):
        q = queries[part] - center
        ranking = norms - 2.0 * (q @ candidates.T)
        best = np.sort(np.argpartition(ranking, k - 1, axis=1)[:, :k], axis=1)
        apart = np.linalg.norm(q[:, None, :] - candidates[best], axis=2)
        order = np.argsort(apart, axis=1, kind='stable')
        indices[part] = np.take_along_axis(best, order, axis=1)
        distances[part] = np.take_along_axis(apart, order, axis=1)
    return indices, distances


def nearest_before(
    descriptors: NDArray[np.floating], ends: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return index and distance (N,) of the nearest of the first ends[q] rows to row q.

    A row without candidates gets index -1 and an infinite distance.
    """
    check_descriptors(descriptors, 'descriptors')
    indices = np.full(len(descriptors), -1, dtype=np.int64)
    distances = np.full(len(descriptors), np.inf)
    x = descriptors - descriptors.mean(axis=0, dtype=np.float64)
    norms = np.einsum('nd,nd->n', x, x)
    columns = np.arange(len(x))
    for part in chunks(len(x), 8 * (len(x) + 2 * x.shape[1])):
        ranking = norms - 2.0 * (x[part] @ x.T)
        ranking[columns[None, :] >= ends[part, None]] = np.inf
        best = ranking.argmin(axis=1)
        found = ends[part] > 0
        indices[part] = np.where(found, best, -1)
        distances[part] = np.where(found, np.linalg.norm(x[part] - x[best], axis=1), np.inf)
    return indices, distances


def ground_distance(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the x-y distance between positions (..., 2 or more) in meters, with broadcasting."""
    difference = np.asarray(a, dtype=np.float64)[..., :2] - np.asarray(b)[..., :2]
    return np.hypot(difference[..., 0], difference[..., 1])


def true_hits(
    ranked: NDArray[np.integer],
    query_xy: NDArray[np.floating],
    database_xy: NDArray[np.floating],
    radius_m: float,
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which ranked candidates (Q, K) are within the radius, and how many rows are (Q,)."""
    hits = ground_distance(query_xy[:, None], database_xy[ranked]) <= radius_m
    counts = np.empty(len(query_xy), dtype=np.int64)
    for part in chunks(len(query_xy), 40 * max(len(database_xy), 1)):
        apart = ground_distance(query_xy[part, None], database_xy[None])
        counts[part] = (apart <= radius_m).sum(axis=1)
    return hits, counts


def exclude_recent(
    by: str,
    amount: float,
    positions: NDArray[np.floating],
    stamps_ns: NDArray[np.integer] | None = None,
) -> NDArray[np.int64]:
    """Return `ends` (N,): candidates are at least `amount` frames, seconds or meters older."""
    if by not in EXCLUSION_UNITS or amount < 0:
        raise DatasetError(
            f'exclusion of {amount!r} by {by!r}: expected an amount >= 0 and a unit among '
            f'{EXCLUSION_UNITS}'
        )
    frames = np.arange(len(positions))
    if by == 'frames':
        latest, clock = frames - round(amount), frames
    elif by == 'time':
        clock = check_stamps(stamps_ns, len(positions))
        latest = clock - round(amount * NS_PER_S)
    else:
        steps = ground_distance(positions[1:], positions[:-1])
        clock = np.concatenate([np.zeros(min(len(frames), 1)), np.cumsum(steps)])
        latest = clock - amount
    # Even with nothing excluded, a frame is not its own candidate.
    return np.minimum(np.searchsorted(clock, latest, side='right'), frames)


def find_revisits(
    positions: NDArray[np.floating],
    ends: NDArray[np.integer],
    radius_m: float,
    *,
    inclusive: bool = True,
) -> NDArray[np.bool_]:
    """Return which frames (N,) have a candidate within the radius, see the module docstring."""
    nearest_m = distance_to_past(positions, ends)
    revisits: NDArray[np.bool_] = nearest_m <= radius_m if inclusive else nearest_m < radius_m
    return revisits


def distance_to_past(
    positions: NDArray[np.floating], ends: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return the ground distance (N,) to the nearest candidate, infinite without candidates."""
    columns = np.arange(len(positions))
    nearest_m = np.full(len(positions), np.inf)
    for part in chunks(len(positions), 40 * max(len(positions), 1)):
        apart = ground_distance(positions[part, None], positions[None])
        is_candidate = columns[None, :] < np.asarray(ends)[part, None]
        nearest_m[part] = np.where(is_candidate, apart, np.inf).min(axis=1, initial=np.inf)
    return nearest_m


def chunks(length: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices over `length` rows that keep temporaries near CHUNK_BYTES."""
    step = max(1, CHUNK_BYTES // row_bytes)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def check_descriptors(descriptors: NDArray[np.floating], what: str) -> None:
    """Raise DatasetError unless the descriptors are a finite (N, D) array."""
    if descriptors.ndim != 2:
        raise DatasetError(f'{what}: expected descriptors (N, D), got shape {descriptors.shape}')
    bad = np.flatnonzero(~np.isfinite(descriptors).all(axis=1))
    if len(bad):
        raise DatasetError(
            f'{what}: {len(bad)} descriptors are not finite, the first is row {bad[0]}'
        )


def check_stamps(stamps_ns: NDArray[np.integer] | None, count: int) -> NDArray[np.int64]:
    """Return the stamps; raise DatasetError unless there are `count`, in time order."""
    if stamps_ns is None or len(stamps_ns) != count:
        got = 'none' if stamps_ns is None else len(stamps_ns)
        raise DatasetError(f'excluding by time needs {count} stamps, got {got}')
    stamps = np.asarray(stamps_ns, dtype=np.int64)
    backwards = np.flatnonzero(np.diff(stamps) < 0)
    if len(backwards):
        raise DatasetError(f'stamps go backwards after frame {backwards[0]}')
    return stamps
