"""Write a simulated drive in the layout of a dataset, scan by scan."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
import logging
from pathlib import Path

import numpy as np

from lpr_ros.core.errors import CloudError
from lpr_training.datasets.bag_writer import write_bag
from lpr_training.datasets.base import PlaceSample, RecordedScan
from lpr_training.datasets.kitti import write_kitti
from lpr_training.datasets.oxford import write_oxford
from lpr_training.datasets.oxford_submaps import normalize, remove_ground
from lpr_training.datasets.wild_places import write_wild_places

logger = logging.getLogger(__name__)

Scans = Iterable[RecordedScan]
OXFORD_RANGE_M = 25.0  # the extent of a submap of the benchmark


def _bag(args: Namespace, scans: Scans) -> Path:
    write_bag(args.out, scans, clock=args.clock)
    return Path(args.out)


def _kitti(args: Namespace, scans: Scans) -> Path:
    sequence = args.run or '00'
    write_kitti(args.out, sequence, scans)
    return Path(args.out) / 'sequences' / sequence


def _oxford(args: Namespace, scans: Scans) -> Path:
    run = args.run or f'{args.world}-{args.seed}-{args.day}'
    write_oxford(args.out, run, oxford_clouds(scans, run, args.seed), part=args.part)
    return Path(args.out) / 'oxford' / run


def _wild_places(layout: str) -> Callable[[Namespace, Scans], Path]:
    def write(args: Namespace, scans: Scans) -> Path:
        write_wild_places(args.out, layout, args.run or 'V-01', scans)
        return Path(args.out)

    return write


FORMATS: dict[str, Callable[[Namespace, Scans], Path]] = {
    'bag': _bag,
    'kitti': _kitti,
    'oxford': _oxford,
    'wild_places_v2': _wild_places('v2'),
    'wild_places_v3': _wild_places('v3'),
}


def moved(scans: Scans, origin: Sequence[float]) -> Iterator[RecordedScan]:
    """Yield the scans with the world moved to (x, y)."""
    for scan in scans:
        T_world_sensor = scan.T_world_sensor.copy()
        T_world_sensor[:2, 3] += origin
        yield replace(scan, T_world_sensor=T_world_sensor)


def oxford_clouds(scans: Scans, run: str, seed: int) -> Iterator[PlaceSample]:
    """Reduce scans to clouds of the Oxford benchmark: no ground, 4096 points in [-1, 1]."""
    for index, scan in enumerate(scans):
        rng = np.random.default_rng([seed, index, 3])
        near = np.linalg.norm(scan.points[:, :2], axis=1) < OXFORD_RANGE_M
        points = remove_ground(scan.points[near].astype(np.float64), rng, band_m=0.25)
        try:
            cloud, center = normalize(points, rng)
        except CloudError as error:
            logger.warning('skipping scan %d, too few points above the ground: %s', index, error)
            continue
        T_world_cloud = scan.T_world_sensor.copy()
        T_world_cloud[:3, 3] += scan.T_world_sensor[:3, :3] @ center
        yield PlaceSample(cloud.astype(np.float32), T_world_cloud, scan.stamp_ns, run, str(index))
