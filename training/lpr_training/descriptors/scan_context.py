"""Scan Context, a handcrafted baseline: a polar grid of heights (Kim and Kim, IROS 2018).

A context is (rings, sectors) float32: the maximum height above ground in each bin, 0 if empty.
A yaw of the sensor shifts the columns, so contexts are compared at every column shift.
"""

from dataclasses import dataclass
import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.config import Config, option

Context: TypeAlias = NDArray[np.float32]

CHUNK = 16384  # points whose temporaries fit the cache: 25 % less time for a full scan


@dataclass(frozen=True)
class ScanContextConfig(Config):
    """Size of the polar grid and of the search."""

    rings: int = option(20, 'Number of range bins', low=1)
    sectors: int = option(60, 'Number of azimuth bins', low=1)
    max_range_m: float = option(80.0, 'Ignore points at or beyond this range', unit='m', low=0.1)
    sensor_height_m: float = option(
        2.0, 'Height of the sensor above the ground, added to z', unit='m'
    )
    candidates: int = option(
        10, 'Number of ring-key neighbors whose full contexts are compared', low=1
    )


def describe(points: NDArray[np.floating], config: ScanContextConfig) -> Context:
    """Return the context of points (N, 3) in meters, sensor frame."""
    context = np.zeros((config.rings, config.sectors), dtype=np.float32)
    for start in range(0, len(points), CHUNK):
        chunk = points[start : start + CHUNK]
        _update_heights(context, chunk, config.max_range_m, config.sensor_height_m)
    return context


def _update_heights(
    context: Context, points: NDArray[np.floating], max_range_m: float, sensor_height_m: float
) -> None:
    """Update the maximum heights of a context with more points."""
    rings, sectors = context.shape
    x, y, z = np.ascontiguousarray(points.T, dtype=np.float32)
    with np.errstate(over='ignore'):
        radius = np.sqrt(x * x + y * y)
    turn = np.arctan2(y, x) * (sectors / (2.0 * math.pi))
    inside = radius < max_range_m  # False for NaN and infinity
    ring = (radius[inside] * (rings / max_range_m)).astype(np.int32)
    sector = np.floor(turn[inside]).astype(np.int32)
    # Rounding can put points at the outer edge or at a full turn one bin too far.
    cell = np.minimum(ring, rings - 1) * sectors + sector % sectors
    height = (z + np.float32(sensor_height_m))[inside]
    np.maximum.at(context.reshape(-1), cell, height)


def ring_keys(contexts: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean height of each ring, (..., R, S) -> (..., R), which is yaw-invariant."""
    return contexts.mean(axis=-1)


def compare(
    query: Context, candidates: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return distance and yaw (K,) of candidates (K, R, S) at the best of all column shifts.

    The distance is the mean of 1 - cosine over the columns that are non-empty in both, in [0, 1],
    or 1 if there are none. The yaw aligns the query: p_match = Rz(yaw) p_query.
    """
    sectors = query.shape[1]
    q, has_q = _unit_columns(query)
    c, has_c = _unit_columns(candidates)
    cosine = np.matmul(q.T, c)  # (K, S, S): query column, candidate column
    both = has_q[:, None] & has_c[:, None, :]
    columns = np.arange(sectors)
    shifted = (columns[None, :] + columns[:, None]) % sectors  # [shift, query column]
    similarity = cosine[:, columns, shifted].sum(axis=2)
    overlap = both[:, columns, shifted].sum(axis=2)
    distance = 1.0 - similarity / np.maximum(overlap, 1)
    shift = distance.argmin(axis=1)
    best = np.take_along_axis(distance, shift[:, None], axis=1)[:, 0]
    yaw = (shift * (2.0 * math.pi / sectors) + math.pi) % (2.0 * math.pi) - math.pi
    return best.astype(np.float32), yaw


def rank(
    queries: NDArray[np.float32], database: NDArray[np.float32], config: ScanContextConfig
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return indices and distances (Q, K) of the ring-key candidates, nearest context first."""
    keys, query_keys = ring_keys(database), ring_keys(queries)
    count = min(config.candidates, len(database))
    indices = np.empty((len(queries), count), dtype=np.int64)
    distances = np.empty((len(queries), count))
    for i, query in enumerate(queries):
        found = _nearest_keys(query_keys[i], keys, count)
        distance, _ = compare(query, database[found])
        order = np.argsort(distance, kind='stable')
        indices[i], distances[i] = found[order], distance[order]
    return indices, distances


def match_before(
    contexts: NDArray[np.float32], ends: NDArray[np.integer], config: ScanContextConfig
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return index, distance and yaw (N,) of the best of the first ends[q] contexts for row q.

    A row without candidates gets index -1, an infinite distance and yaw 0.
    """
    keys = ring_keys(contexts)
    indices = np.full(len(contexts), -1, dtype=np.int64)
    distances, yaws = np.full(len(contexts), np.inf), np.zeros(len(contexts))
    for i in np.flatnonzero(np.asarray(ends) > 0):
        found = _nearest_keys(keys[i], keys[: ends[i]], config.candidates)
        distance, yaw = compare(contexts[i], contexts[found])
        best = distance.argmin()
        indices[i], distances[i], yaws[i] = found[best], distance[best], yaw[best]
    return indices, distances, yaws


def _nearest_keys(
    key: NDArray[np.float32], keys: NDArray[np.float32], count: int
) -> NDArray[np.int64]:
    """Return the rows of the nearest ring keys, unordered."""
    squared = np.square(keys - key).sum(axis=1)
    if len(squared) <= count:
        return np.arange(len(squared))
    return np.argpartition(squared, count - 1)[:count]


def _unit_columns(
    contexts: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return columns normalized to unit length, and which of them (..., S) are not empty."""
    norms = np.sqrt(np.square(contexts).sum(axis=-2, keepdims=True))
    is_filled = norms > 0
    columns = np.divide(contexts, norms, out=np.zeros_like(contexts), where=is_filled)
    return columns, is_filled[..., 0, :]
