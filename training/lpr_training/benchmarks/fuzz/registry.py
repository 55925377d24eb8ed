"""The list of what is fuzzed, and how large a share of the inputs each gets."""

from collections.abc import Callable
from pathlib import Path

from lpr_training.benchmarks import fuzz_datasets, fuzz_files
from lpr_training.benchmarks.fuzz_messages import pointcloud2
from lpr_training.benchmarks.fuzz_targets import Target

# Weight and maker; what takes long to read (recordings, archives) gets less.
_LISTED: dict[str, tuple[int, Callable[[Path], Target]]] = {
    'pointcloud2': (30, pointcloud2),
    'map': (12, fuzz_files.map_file),
    'checkpoint': (8, fuzz_files.checkpoint),
    'foreign checkpoint': (3, fuzz_files.foreign_checkpoint),
    'config': (8, fuzz_files.config),
    'bag mcap none': (2, fuzz_files.bag('mcap')),
    'bag mcap storage': (2, fuzz_files.bag('mcap', 'storage')),
    'bag sqlite3 none': (2, fuzz_files.bag('sqlite3')),
    'bag sqlite3 message': (1, fuzz_files.bag('sqlite3', 'message')),
    'bag ros1': (2, fuzz_files.ros1_bag),
    'g2o': (5, fuzz_files.g2o),
    'tum': (5, fuzz_files.tum),
    'kitti poses': (5, fuzz_files.kitti_poses),
    'kitti': (5, fuzz_datasets.kitti),
    'wild places v2': (3, fuzz_datasets.wild_places('v2')),
    'wild places v3': (3, fuzz_datasets.wild_places('v3')),
    'oxford': (3, fuzz_datasets.oxford),
    'oxford raw': (4, fuzz_datasets.oxford_raw),
    'places': (4, fuzz_datasets.places),
    'pcd': (8, fuzz_datasets.pcd),
    'packed': (3, fuzz_datasets.packed),
    'protocols': (3, fuzz_datasets.protocols),
    'published': (6, fuzz_datasets.published),
}
TARGETS = {name: maker for name, (_, maker) in _LISTED.items()}
WEIGHTS = {name: weight for name, (weight, _) in _LISTED.items()}
