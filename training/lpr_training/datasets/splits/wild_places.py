"""Wild-Places splits: test polygons, buffers, and the inter- and intra-sequence sets."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lpr_training.datasets.base import PlaceDataset, Subset
from lpr_training.datasets.splits.tuples import TrainingTuples, make_tuples
from lpr_training.datasets.wild_places import SITES, WildPlacesDataset

# Corners (x, y) of the test polygons in the aligned frame of a site.
POLYGONS = {
    'Venman': (
        ((-468, -82), (-468, 44), (-314, 44), (-305, 12), (-192, 44), (-192, -82)),
        ((-78, -171), (-78, -215), (-305, -215), (-305, -171)),
        ((-62, 70), (95, 70), (142, 0), (140, -142), (-62, -142)),
    ),
    'Karawatha': (
        ((-150, 8), (300, 8), (300, -210), (-150, -210)),
        ((-215, 618), (-74, 618), (-74, 423), (-215, 423)),
        ((-513, 300), (-513, 37), (-321, 37), (-321, 300)),
    ),
}
# Centers of the buffers between training and test places, which are not trained on.
BUFFERS = {
    'Venman': ((-63, 40), (114, -143), (-77, -205), (-310, -171), (-433, -82), (-189, 12)),
    'Karawatha': ((-216, 606), (-98, 428), (-316, 260), (-321, 63), (-149, -22), (300, -134)),
}
BUFFER_RADIUS_M = 30.0
TRAINING_SEQUENCES = ('V-01', 'V-02', 'K-01', 'K-02')
INTRA_SEQUENCES = ('V-03', 'V-04', 'K-03', 'K-04')
SITE_OFFSET_M = {
    'Venman': 0.0,
    'Karawatha': 2000.0,
}  # along x, because the frames of the sites overlap
POSITIVE_M, NON_NEGATIVE_M = 3.0, 20.0
TRAIN, BUFFER, TEST = 0, 1, 2


def in_polygon(positions_xy: NDArray[np.float64], corners: ArrayLike) -> NDArray[np.bool_]:
    """Return which positions (N, 2) are inside, by the even-odd rule."""
    polygon = np.asarray(corners, dtype=np.float64)
    x, y = positions_xy[:, 0], positions_xy[:, 1]
    inside = np.zeros(len(positions_xy), dtype=bool)
    for (x0, y0), (x1, y1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        if y0 == y1:
            continue  # parallel to the ray
        crosses = (y0 > y) != (y1 > y)
        inside ^= crosses & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return inside


def split_of(site: str, positions_xy: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return TRAIN, BUFFER or TEST for each position; polygons take precedence."""
    split = np.full(len(positions_xy), TRAIN)
    for center in BUFFERS[site]:
        near = np.linalg.norm(positions_xy - center, axis=1) < BUFFER_RADIUS_M
        split[near] = BUFFER
    for corners in POLYGONS[site]:
        split[in_polygon(positions_xy, corners)] = TEST
    return split


def split_of_places(dataset: PlaceDataset) -> NDArray[np.int64]:
    """Return TRAIN, BUFFER or TEST for each place of a Wild-Places dataset."""
    split = np.empty(len(dataset), dtype=np.int64)
    sites = sites_of(dataset)
    for site in SITES.values():
        split[sites == site] = split_of(site, dataset.positions[sites == site, :2])
    return split


def sites_of(dataset: PlaceDataset) -> NDArray[np.str_]:
    """Return the site of each place."""
    return np.array([SITES[run[0]] for run in dataset.runs], dtype=np.str_)


def training_dataset(root: Path, *, split: int = TRAIN) -> PlaceDataset:
    """Open the training places of sequences 01 and 02; split=TEST gives those for validation."""
    dataset = WildPlacesDataset(root, sequences=TRAINING_SEQUENCES)
    return Subset(dataset, np.flatnonzero(split_of_places(dataset) == split))


def training_tuples(
    dataset: PlaceDataset,
    positive_m: float = POSITIVE_M,
    non_negative_m: float = NON_NEGATIVE_M,
) -> TrainingTuples:
    """Return the tuples of a `training_dataset`, with the two sites separated."""
    xy = dataset.positions[:, :2].copy()
    xy[:, 0] += [SITE_OFFSET_M[site] for site in sites_of(dataset)]
    return make_tuples(xy, positive_m, non_negative_m)


def inter_dataset(root: Path, site: str) -> PlaceDataset:
    """Open all sequences of one site."""
    letter = next(letter for letter, name in SITES.items() if name == site)
    return WildPlacesDataset(root, sequences=[f'{letter}-{n:02d}' for n in range(1, 5)])


def intra_dataset(root: Path, sequence: str) -> PlaceDataset:
    """Open one sequence in time order."""
    dataset = WildPlacesDataset(root, sequences=[sequence])
    return Subset(dataset, np.argsort(dataset.stamps_ns, kind='stable'))
