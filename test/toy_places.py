"""Write small datasets in the benchmark formats; visits of a place see the same objects."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lpr_ros.core.timing import NS_PER_S
from lpr_training.datasets.oxford import INHOUSE, POINTS, write_oxford
from lpr_training.datasets.places import write_places
from lpr_training.datasets.splits.oxford import REGIONS
from lpr_training.datasets.splits.wild_places import POLYGONS
from lpr_training.datasets.wild_places import write_wild_places

# --set assignments of a network that trains in seconds.
TINY = (
    'model.backbone.planes=[8,16]',
    'model.backbone.layers=[1,1]',
    'model.backbone.num_top_down=1',
    'model.backbone.conv0_kernel_size=3',
    'model.backbone.feature_size=16',
    'model.pooling.hidden=12',
    'batch_size=8',
    'chunk_size=4',
)
TINY_OXFORD = (*TINY, 'model.input.step=[0.04,0.04,0.04]')
TRAINING_AREA = (5734000.0, 618000.0)  # northing, easting; outside all test regions


@dataclass(frozen=True, eq=False)
class Cloud:
    points: NDArray[np.float32]
    T_world_sensor: NDArray[np.float64]
    stamp_ns: int


def pose(x: float, y: float) -> NDArray[np.float64]:
    T = np.eye(4)
    T[:2, 3] = x, y
    return T


def unit_cloud(place: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return the cloud of one visit: clusters of the place, slightly displaced."""
    world = np.random.default_rng([7, place])
    centers = world.uniform(-0.8, 0.8, (25, 3)) + rng.normal(0.0, 0.01, (25, 3))
    points = centers[np.arange(POINTS) % 25] + world.uniform(-0.08, 0.08, (POINTS, 3))
    return np.clip(points, -1.0, 1.0).astype(np.float32)


def visits(
    first: int, count: int, northing: float, easting: float, spacing: float, rng
) -> list[Cloud]:
    """Return one visit of `count` places along the northing, with an offset of about 1 m."""
    return [
        Cloud(
            unit_cloud(first + i, rng),
            pose(easting + rng.normal(0, 1.0), northing + spacing * i),
            (1 + i) * NS_PER_S,
        )
        for i in range(count)
    ]


def write_oxford_folder(root: Path) -> Path:
    """Write two Oxford runs, training and evaluation, and two of each In-house set."""
    rng = np.random.default_rng(0)
    for run in ('2014-01', '2014-02'):
        clouds = visits(0, 10, *TRAINING_AREA, 60.0, rng)
        write_oxford(root, run, clouds, part='training')
        northing, easting = REGIONS['oxford'][0]
        clouds = visits(100, 10, northing - 130.0, easting, 28.0, rng)
        write_oxford(root, run, clouds, part='evaluation')
    for number, name in enumerate(('university', 'residential', 'business')):
        northing, easting = (REGIONS[name] or REGIONS['university'])[0]
        for run in ('1', '2'):
            clouds = visits(200 + 50 * number, 3, northing - 100.0, easting, 35.0, rng)
            write_oxford(root, f'{name}_run{run}', clouds, layout=INHOUSE)
    return root


def metric_cloud(place: int, rng: np.random.Generator, points: int = 500) -> NDArray[np.float32]:
    """Return the cloud of one visit in meters, within 20 m."""
    return 20.0 * unit_cloud(place, rng)[:points]


def write_wild_places_folder(root: Path) -> Path:
    """Write all eight sequences, each with two laps of training and test places."""
    rng = np.random.default_rng(1)
    for letter, site in (('V', 'Venman'), ('K', 'Karawatha')):
        test_x, test_y = np.mean(POLYGONS[site][0], axis=0)
        spots = [(1000.0 + 30.0 * i, 1000.0) for i in range(4)]
        spots += [(test_x + 25.0 * i, test_y) for i in range(3)]
        first = 300 if letter == 'V' else 400
        for number in range(1, 5):
            clouds = [
                Cloud(
                    metric_cloud(first + i, rng),
                    pose(x + rng.normal(0, 0.3), y),
                    (1 + i + lap * 1000) * NS_PER_S,
                )
                for lap in range(2)
                for i, (x, y) in enumerate(spots)
            ]
            write_wild_places(root, 'v3', f'{letter}-{number:02d}', clouds)
    return root


def circle_drive(frames: int, laps: int) -> NDArray[np.float64]:
    """Return poses (laps * frames, 4, 4) along a circle of 60 m radius."""
    angles = np.arange(laps * frames) * (2.0 * np.pi / frames)
    T = np.tile(np.eye(4), (len(angles), 1, 1))
    T[:, 0, 3], T[:, 1, 3] = 60.0 * np.cos(angles), 60.0 * np.sin(angles)
    heading = angles + np.pi / 2
    T[:, 0, 0], T[:, 0, 1] = np.cos(heading), -np.sin(heading)
    T[:, 1, 0], T[:, 1, 1] = np.sin(heading), np.cos(heading)
    return T


def pillars(T: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the pillars near a pose in its frame: x-y (n, 2), heights (n,)."""
    world = np.random.default_rng(11)
    xy = world.uniform(-90.0, 90.0, (1500, 2))
    heights = world.integers(2, 9, 1500)
    seen = (xy - T[:2, 3]) @ T[:2, :2]
    near = (np.abs(seen) < 24.5).all(axis=1)
    return seen[near], heights[near]


def write_bev_file(path: Path, frames: int = 39, laps: int = 2) -> Path:
    """Write laps around the circle as bird's-eye counts."""
    poses = circle_drive(frames, laps)
    counts = np.zeros((len(poses), 151, 151), np.uint8)
    for image, T in zip(counts, poses, strict=True):
        xy, heights = pillars(T)
        rows, columns = (75 - np.floor(xy / 0.4).astype(int)).T
        image[rows, columns] = heights
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, counts=counts, T_world_sensor=poses[:, :3])
    return path


def write_drive(root: Path, run: str, frames: int = 39, laps: int = 2) -> Path:
    """Write the same drive as metric clouds in the format `places`."""
    clouds = []
    for i, T in enumerate(circle_drive(frames, laps)):
        xy, heights = pillars(T)
        stacked = [
            np.column_stack([*np.tile(p, (h, 1)).T, 0.4 * np.arange(h)])
            for p, h in zip(xy, heights, strict=True)
        ]
        points = np.concatenate(stacked).astype(np.float32)
        clouds.append(Cloud(points, T, (1 + i) * NS_PER_S))
    write_places(root, run, clouds)
    return root
