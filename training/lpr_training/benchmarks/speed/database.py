"""Descriptor search among many places: query time, memory and recall of several indexes.

Two kinds of descriptors. `places`: a drive through a city with revisits, where descriptors vary
smoothly with position, plus noise; a revisit lies at about 0.6 of the distance of an unrelated
place. `gaussian`: independent values, whose nearest neighbor is hardly nearer than any other row,
which is hard for every index.
"""

import argparse
from collections.abc import Callable, Sequence
import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lpr_ros.core.database.descriptor_index import DescriptorIndex
from lpr_ros.core.database.faiss_index import squared_distances
from lpr_ros.core.markdown import markdown_table
from lpr_training.benchmarks.options import add_option
from lpr_training.benchmarks.speed.search_methods import METHODS, Method

SIZES = (1_000, 10_000, 100_000, 1_000_000)
DIMS = (256, 1024)
KINDS = ('places', 'gaussian')
TARGET_MS = {100_000: 10.0, 1_000_000: 25.0}
TARGET_RECALL = 0.99
TARGET_STALL_MS = 100.0
CHUNK = 20_000
RECENT = 50  # newest keyframes, which are not eligible
STREET_M = 100.0
STEP_M = 2.0
ALIKE_M = 15.0
NOISE = 0.8


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--sizes', nargs='+', type=int, default=SIZES, help='Numbers of keyframes (1e3 to 1e6)')
    add('--dims', nargs='+', type=int, default=DIMS, help='Descriptor dimensions (256 1024)')
    add('--kinds', nargs='+', choices=KINDS, default=KINDS, help='Kinds of descriptors (both)')
    names = [method.name for method in METHODS]
    add('--methods', nargs='+', choices=names, default=names, help='Indexes to compare (all)')
    add_option(parser, '--queries', 200, 'Queries per case')


def run(
    sizes: Sequence[int] = SIZES,
    dims: Sequence[int] = DIMS,
    queries: int = 200,
    kinds: Sequence[str] = KINDS,
    methods: Sequence[str] = tuple(method.name for method in METHODS),
) -> dict[str, Any]:
    """Measure every index at every size and dimension, and the time to add a keyframe."""
    rows = []
    plan = [(kind, dim, size) for kind in kinds for dim in dims for size in sizes]
    bar = tqdm(plan, unit='case')
    for kind, dim, size in bar:
        bar.set_description(f'{kind}, {size} x {dim}')
        rows += measure_case(kind, size, dim, queries, methods)
    stalls = [measure_stall(size, dim) for dim in dims for size in sizes if size <= 100_000]
    return {
        'cases': rows,
        'stalls': stalls,
        'queries': queries,
        'cores': os.cpu_count(),
        'load_average': os.getloadavg()[0],
    }


def measure_case(
    kind: str, size: int, dim: int, queries: int, methods: Sequence[str]
) -> list[dict[str, Any]]:
    """Measure indexes on the same rows and queries."""
    rng = np.random.default_rng(size + dim)
    stored, sampled = DATA[kind](size, dim, queries, rng)
    eligible = np.ones(size, dtype=np.bool_)
    eligible[-RECENT:] = False
    truth = [exact_nearest(query, stored, eligible) for query in sampled]
    return [
        {
            'kind': kind,
            'keyframes': size,
            'dim': dim,
            **measure_method(method, stored, sampled, eligible, truth),
        }
        for method in METHODS
        if method.name in methods and stored.size <= method.max_floats
    ]


def measure_method(
    method: Method,
    stored: NDArray[np.float32],
    queries: NDArray[np.float32],
    eligible: NDArray[np.bool_],
    truth: Sequence[int],
) -> dict[str, Any]:
    """Build once, then run the queries one by one, as a robot does."""
    search = method.make(stored.shape[1])
    started = time.perf_counter()
    search.add(stored)
    build_s = time.perf_counter() - started
    search.nearest(queries[0], eligible)
    wall_ms, cpu_ms, right = [], [], 0
    for query, true in zip(queries, truth, strict=True):
        wall, cpu = time.perf_counter(), time.thread_time()
        found = search.nearest(query, eligible)
        cpu_ms.append((time.thread_time() - cpu) * 1e3)
        wall_ms.append((time.perf_counter() - wall) * 1e3)
        right += found == true
    return {
        'method': method.name,
        'query_ms': float(np.median(wall_ms)),
        'query_p95_ms': float(np.quantile(wall_ms, 0.95)),
        'query_cpu_ms': float(np.median(cpu_ms)),
        'memory_mb': search.nbytes / 1e6,
        'build_s': build_s,
        'recall_at_1': right / len(queries),
    }


def measure_stall(size: int, dim: int) -> dict[str, Any]:
    """Time adding keyframes while an index of this size is built in the background."""
    rng = np.random.default_rng(0)
    stored, extra = gaussian(size, dim, 2000, rng)
    index = DescriptorIndex(dim, brute_force_bytes=0)
    index.extend(stored)
    wall_ms, cpu_ms, added_during_build = [], [], 0
    for row in extra:
        wall, cpu = time.perf_counter(), time.thread_time()
        index.extend(row[None])
        index.build_if_due()
        cpu_ms.append((time.thread_time() - cpu) * 1e3)
        wall_ms.append((time.perf_counter() - wall) * 1e3)
        added_during_build += index.is_exact
        time.sleep(0.001)
    index.wait()
    return {
        'keyframes': size,
        'dim': dim,
        'added_during_build': added_during_build,
        'add_ms': float(np.median(wall_ms)),
        'add_max_ms': max(wall_ms),
        'add_max_cpu_ms': max(cpu_ms),
    }


def exact_nearest(
    query: NDArray[np.float32], stored: NDArray[np.float32], eligible: NDArray[np.bool_]
) -> int:
    """Return the index of the nearest eligible row."""
    return int(np.argmin(np.where(eligible, squared_distances(query, stored), np.inf)))


def places(
    size: int, dim: int, queries: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return descriptors along a drive, and of revisits a few meters off it."""
    waves = (rng.normal(size=(2, dim)) / ALIKE_M).astype(np.float32)
    phases = rng.uniform(0.0, 2.0 * np.pi, dim).astype(np.float32)

    def describe(xy: NDArray[np.float32]) -> NDArray[np.float32]:
        clean = np.cos(xy @ waves + phases) * np.float32(np.sqrt(2.0 / dim))
        noise = rng.standard_normal(clean.shape, dtype=np.float32)
        return clean + noise * np.float32(NOISE / np.sqrt(dim))

    xy = drive(size, rng)
    stored = np.empty((size, dim), dtype=np.float32)
    for start in range(0, size, CHUNK):
        stored[start : start + CHUNK] = describe(xy[start : start + CHUNK])
    revisited = xy[rng.integers(0, size - RECENT, queries)]
    offset = revisited + rng.normal(size=(queries, 2), scale=STEP_M).astype(np.float32)
    return stored, describe(offset)


def drive(size: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return (size, 2) positions along a street grid, each street driven about twice."""
    steps = round(STREET_M / STEP_M)
    streets = -(-size // steps)
    side = max(3, round(np.sqrt(streets / 4)))
    corner, heading = np.zeros(2, dtype=np.int64), 0
    directions = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])
    parts = []
    for turn in rng.choice([0, 0, 1, 3], streets):
        heading = (heading + turn) % 4
        while not (
            (corner + directions[heading] >= 0) & (corner + directions[heading] < side)
        ).all():
            heading = int(rng.integers(4))
        along = directions[heading] * STEP_M * np.arange(steps)[:, None]
        parts.append(corner * STREET_M + along)
        corner = corner + directions[heading]
    return np.concatenate(parts)[:size].astype(np.float32)


def gaussian(
    size: int, dim: int, queries: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return independent normally distributed descriptors and queries."""
    scale = np.float32(1.0 / np.sqrt(dim))
    stored = rng.standard_normal((size, dim), dtype=np.float32) * scale
    return stored, rng.standard_normal((queries, dim), dtype=np.float32) * scale


Data = Callable[
    [int, int, int, np.random.Generator], tuple[NDArray[np.float32], NDArray[np.float32]]
]
DATA: dict[str, Data] = {'places': places, 'gaussian': gaussian}


def table(result: dict[str, Any]) -> str:
    """Return queries and insertions as two markdown tables."""
    head = ('descriptors', 'keyframes', 'dim', 'index', 'ms', 'p95 ms', 'CPU ms', 'target ms')
    queries = markdown_table(
        (*head, 'recall@1', 'MB', 'build s'),
        [
            (
                *(row[key] for key in ('kind', 'keyframes', 'dim', 'method')),
                *(f'{row[key]:.2f}' for key in ('query_ms', 'query_p95_ms', 'query_cpu_ms')),
                TARGET_MS.get(row['keyframes'], '-'),
                f'{row["recall_at_1"]:.3f}',
                f'{row["memory_mb"]:.0f}',
                f'{row["build_s"]:.1f}',
            )
            for row in result['cases']
        ],
    )
    insertions = markdown_table(
        ('keyframes', 'dim', 'added during build', 'median ms', 'max ms', 'max CPU ms'),
        [
            (
                *(row[key] for key in ('keyframes', 'dim', 'added_during_build')),
                f'{row["add_ms"]:.2f}',
                f'{row["add_max_ms"]:.1f}',
                f'{row["add_max_cpu_ms"]:.2f}',
            )
            for row in result['stalls']
        ],
    )
    return (
        f'{result["cores"]} cores, load average {result["load_average"]:.1f}\n\n{queries}\n'
        f'Target recall@1 on places: {TARGET_RECALL}. Adding keyframes while an index is built '
        f'(target: below {TARGET_STALL_MS:.0f} ms):\n\n{insertions}'
    )
