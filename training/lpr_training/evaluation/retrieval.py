"""Exact nearest neighbours of descriptors, and which of them are true ones on the ground."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.errors import DatasetError

Ranking: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]  # indices, distances
# (queries, database, k) -> the nearest, (Q, at most k)
Search: TypeAlias = Callable[[NDArray[np.floating], NDArray[np.floating], int], Ranking]
# (descriptors, ends) -> the nearest among 0..ends[q] of every row, (N,)
SearchBefore: TypeAlias = Callable[[NDArray[np.floating], NDArray[np.integer]], Ranking]

# Bytes of float64 temporaries per chunk of queries.
CHUNK_BYTES = 64 * 2**20


def nearest(
    queries: NDArray[np.floating], database: NDArray[np.floating], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return indices and Euclidean distances (Q, min(k, N)) of the nearest rows, nearest first.

    Brute force in float64: one matrix product ranks, differences give the final distances, so a
    duplicate is at exactly 0. Ties go to the lower index.
    """
    check_descriptors(queries, 'queries')
    check_descriptors(database, 'database')
    k = min(k, len(database))
    indices = np.empty((len(queries), k), dtype=np.int64)
    distances = np.empty((len(queries), k))
    if k == 0:
        return indices, distances
    centre = database.mean(axis=0, dtype=np.float64)
    candidates = database - centre
    norms = np.einsum('nd,nd->n', candidates, candidates)
    row_bytes = 8 * (len(database) + (k + 1) * database.shape[1])
    for part in chunks(len(queries), row_bytes):
        q = queries[part] - centre
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
    """Return index and distance (N,) of the nearest row among rows 0..ends[q] (end excluded).

    A row without a candidate gets index -1 and an infinite distance.
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
    """Return the x-y distance of positions (..., 2 or more), broadcast, in metres."""
    difference = np.asarray(a, dtype=np.float64)[..., :2] - np.asarray(b)[..., :2]
    return np.hypot(difference[..., 0], difference[..., 1])


def true_hits(
    ranked: NDArray[np.integer],
    query_xy: NDArray[np.floating],
    database_xy: NDArray[np.floating],
    radius_m: float,
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return hits (Q, K) of ranked candidates in the radius, and the number of all true (Q,)."""
    hits = ground_distance(query_xy[:, None], database_xy[ranked]) <= radius_m
    counts = np.empty(len(query_xy), dtype=np.int64)
    for part in chunks(len(query_xy), 40 * max(len(database_xy), 1)):
        apart = ground_distance(query_xy[part, None], database_xy[None])
        counts[part] = (apart <= radius_m).sum(axis=1)
    return hits, counts


def chunks(length: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices over `length` rows that keep temporaries near CHUNK_BYTES."""
    step = max(1, CHUNK_BYTES // row_bytes)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def check_descriptors(descriptors: NDArray[np.floating], what: str) -> None:
    """Refuse descriptors that no distance can rank."""
    if descriptors.ndim != 2:
        raise DatasetError(f'{what}: expected descriptors (N, D), got shape {descriptors.shape}')
    bad = np.flatnonzero(~np.isfinite(descriptors).all(axis=1))
    if len(bad):
        raise DatasetError(f'{what}: {len(bad)} descriptors are not finite, first is {bad[0]}')
