"""The datasets by name, and how to open them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.bag import BagDataset
from lpr_training.datasets.base import PlaceDataset
from lpr_training.datasets.kitti import KittiDataset
from lpr_training.datasets.kitti_bev import KittiBevDataset
from lpr_training.datasets.oxford import InhouseDataset, OxfordDataset
from lpr_training.datasets.oxford_raw import OxfordRawDataset
from lpr_training.datasets.packed_scans import ScansDataset
from lpr_training.datasets.places import PlacesDataset
from lpr_training.datasets.wild_places import WildPlacesDataset

DATASETS: dict[str, Callable[..., PlaceDataset]] = {
    'bag': BagDataset,
    'inhouse': InhouseDataset,
    'kitti': KittiDataset,
    'kitti_bev': KittiBevDataset,
    'oxford': OxfordDataset,
    'oxford_raw': OxfordRawDataset,
    'places': PlacesDataset,
    'scans': ScansDataset,
    'wild_places': WildPlacesDataset,
}


def make_dataset(name: str, root: Path, **options: Any) -> PlaceDataset:
    """Open a dataset by name; the options are those of its class."""
    if name not in DATASETS:
        raise DatasetError(f'unknown dataset {name!r}; choose from {sorted(DATASETS)}')
    return DATASETS[name](root, **options)
