"""Describe five scans and print how far apart their descriptors are."""

import argparse
from collections.abc import Sequence
from pathlib import Path
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
REAL_SCANS = ROOT.parent / 'shared' / 'data' / 'kitti_full'


def simulate_scene(rng: np.random.Generator) -> NDArray[np.float32]:
    """Return points on flat ground and on the walls of twelve boxes, metres, sensor frame."""
    ground = rng.uniform(-40.0, 40.0, (40_000, 3))
    ground[:, 2] = rng.normal(-1.7, 0.02, len(ground))
    walls = []
    for centre in rng.uniform(-35.0, 35.0, (12, 2)):
        wall = rng.uniform(-1.0, 1.0, (5_000, 3)) * rng.uniform(1.0, 6.0, 3)
        wall[:, rng.integers(2)] = rng.uniform(1.0, 6.0)
        walls.append(wall + np.array([*centre, 1.0]))
    return np.concatenate([ground, *walls]).astype(np.float32)


def read_scans(folder: Path) -> tuple[list[str], list[NDArray[np.float32]]]:
    """Return the names and points of the first five KITTI scans, or of simulated ones."""
    files = sorted(folder.glob('*.bin'))[:5]
    if files:
        points = [np.fromfile(file, np.float32).reshape(-1, 4)[:, :3] for file in files]
        return [file.stem for file in files], points
    print(f'no .bin scans in {folder}: five simulated scenes instead')
    rng = np.random.default_rng(0)
    return [f'scene {i}' for i in range(5)], [simulate_scene(rng) for _ in range(5)]


def load_describer(weights: Path | None) -> Any:
    """Return a Describer with the given or shipped weights, else an untrained one, and say so."""
    import torch  # late, so that --help does not wait for it

    from lpr_ros.core.model.config import InputConfig, ModelConfig
    from lpr_ros.core.model.describer import Describer
    from lpr_ros.core.model.place_model import PlaceModel

    weights = weights or next(iter(sorted((ROOT / 'weights').glob('*.safetensors'))), None)
    if weights:
        print(f'weights: {weights}')
        return Describer.load(weights)
    print('weights: none found, so an UNTRAINED network: its distances mean little')
    torch.manual_seed(0)
    return Describer(PlaceModel(ModelConfig(input=InputConfig(max_range_m=60.0))))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of distances and the time per scan."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--weights', type=Path, help='.safetensors file; default: weights/')
    parser.add_argument('--scans', type=Path, default=REAL_SCANS, help='folder of KITTI .bin')
    args = parser.parse_args(argv)
    names, scans = read_scans(args.scans)
    describer = load_describer(args.weights)
    describer.describe(scans[0])  # the first call also warms up
    start = time.perf_counter()
    descriptors = np.stack([describer.describe(points) for points in scans])
    milliseconds = (time.perf_counter() - start) / len(scans) * 1e3
    distances = np.linalg.norm(descriptors[:, None] - descriptors, axis=2)
    print(f'\n{"distance":>10}' + ''.join(f'{name:>10}' for name in names))
    for name, row in zip(names, distances, strict=True):
        print(f'{name:>10}' + ''.join(f'{value:10.3g}' for value in row))
    points = sum(map(len, scans)) // len(scans)
    print(f'\n{milliseconds:.0f} ms per scan of {points} points on {describer.device}')
    return 0


if __name__ == '__main__':
    raise SystemExit(main())
