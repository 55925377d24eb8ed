"""The fuzz targets and the share of the inputs that each gets."""

from collections.abc import Callable
from pathlib import Path

from lpr_training.benchmarks.fuzz import datasets, files
from lpr_training.benchmarks.fuzz.definitions import definitions, idl_definitions
from lpr_training.benchmarks.fuzz.messages import pointcloud2
from lpr_training.benchmarks.fuzz.special_files import special_files
from lpr_training.benchmarks.fuzz.stored_keyframes import stored_keyframes
from lpr_training.benchmarks.fuzz.target import Target

# Weight and factory; slow targets (recordings, archives) get fewer inputs.
_ENTRIES: dict[str, tuple[int, Callable[[Path], Target]]] = {
    'pointcloud2': (30, pointcloud2),
    'map': (12, files.map_file),
    'checkpoint': (8, files.checkpoint),
    'foreign checkpoint': (3, files.foreign_checkpoint),
    'training state': (3, files.training_state),
    'config': (8, files.config),
    'bag mcap none': (2, files.bag('mcap')),
    'bag mcap storage': (2, files.bag('mcap', 'storage')),
    'bag sqlite3 none': (2, files.bag('sqlite3')),
    'bag sqlite3 message': (1, files.bag('sqlite3', 'message')),
    'bag ros1': (2, files.ros1_bag),
    'definitions': (6, definitions),
    'idl definitions': (3, idl_definitions),
    'special files': (3, special_files),
    'stored keyframes': (6, stored_keyframes),
    'tum': (5, files.tum),
    'kitti poses': (5, files.kitti_poses),
    'kitti': (5, datasets.kitti),
    'wild places v2': (3, datasets.wild_places('v2')),
    'wild places v3': (3, datasets.wild_places('v3')),
    'oxford': (3, datasets.oxford),
    'oxford raw': (4, datasets.oxford_raw),
    'places': (4, datasets.places),
    'pcd': (8, datasets.pcd),
    'packed': (3, datasets.packed),
    'protocols': (3, datasets.protocols),
    'published': (6, datasets.published),
}
TARGETS = {name: make for name, (_, make) in _ENTRIES.items()}
WEIGHTS = {name: weight for name, (weight, _) in _ENTRIES.items()}
