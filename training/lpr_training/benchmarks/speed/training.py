"""Clouds per second of inference and training: this backend and MinkowskiEngine.

Both run the same network with the same weights, alternating. A step is what train.py does with a
batch: augment, quantize, forward without gradients, loss, forward and backward by chunk, update.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
import torch
from tqdm import tqdm

from lpr_ros.core.config import override
from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.quantize import quantize
from lpr_ros.core.resources import REPOSITORY
from lpr_ros.core.sparse import collate
from lpr_training.benchmarks.options import add_data_option, add_option
from lpr_training.benchmarks.speed.descriptor import (
    interleaved_medians_ms,
    minkowski_model,
    oxford_like,
    read_scans,
    timed_pass,
)
from lpr_training.datasets.base import COLUMNS, UNIT_CUBE, DatasetTable, PlaceDataset
from lpr_training.datasets.kitti_bev import count_image, lift
from lpr_training.datasets.splits.tuples import make_tuples
from lpr_training.descriptors.input_check import input_for
from lpr_training.train.config import TrainConfig
from lpr_training.train.data import TrainingData
from lpr_training.train.trainer import Trainer

CONFIGS = REPOSITORY / 'config'
BATCH = 16
CHUNK = 8
APART_M = 1000.0  # between places; the two clouds of a place share their position


@dataclass(frozen=True, eq=False)
class Case:
    """A network and the clouds it is made for."""

    name: str
    config: TrainConfig
    clouds: Sequence[NDArray[np.float32]]
    kind: str


class Clouds(PlaceDataset):
    """A batch of clouds in memory, two per place."""

    def __init__(self, clouds: Sequence[NDArray[np.float32]], kind: str):
        T_world_sensor = np.tile(np.eye(4), (BATCH, 1, 1))
        T_world_sensor[:, 0, 3] = APART_M * (np.arange(BATCH) // 2)
        names = tuple(str(i) for i in range(BATCH))
        super().__init__(DatasetTable(T_world_sensor, np.arange(BATCH), ('run',) * BATCH, names))
        self.clouds = kind
        self._clouds = clouds

    def points(self, index: int) -> NDArray[np.float32]:
        """Return one cloud; few clouds repeat."""
        return self._clouds[index % len(self._clouds)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_option(parser, '--repeats', 5, 'Runs per measurement, of which the median is reported')
    add_data_option(parser, 'kitti_full/*.bin')


def run(data: Path, repeats: int = 5) -> dict[str, Any]:
    """Time forward passes and multistage training steps of every case."""
    rows = []
    bar = tqdm(make_cases(data), unit='network')
    for case in bar:
        bar.set_description(case.name)
        rows += _measure(case, repeats)
    return {
        'cases': rows,
        'batch': BATCH,
        'chunk': CHUNK,
        'threads': torch.get_num_threads(),
        'repeats': repeats,
    }


def table(result: dict[str, Any]) -> str:
    """Return the results as a markdown table."""
    head = ('network', 'voxels per cloud', 'mode', 'ours, clouds/s', 'MinkowskiEngine, clouds/s')
    rows = []
    for row in result['cases']:
        ours, other = row['torch_clouds_per_s'], row['minkowski_clouds_per_s']
        versus = ('-', '-') if other is None else (f'{other:.1f}', f'{ours / other:.1f}')
        rows.append((row['network'], row['voxels'], row['mode'], f'{ours:.1f}', *versus))
    return markdown_table((*head, 'ratio'), rows)


def make_cases(data: Path) -> list[Case]:
    """Return the full network on clouds of 4,096 points and the bird's-eye-view network."""
    scans = read_scans(data)
    scaled = [oxford_like(scan) for scan in scans]
    images = [lift(count_image(scan)) for scan in scans]
    return [
        Case('oxford_baseline', _config('oxford_baseline'), scaled, UNIT_CUBE),
        Case('kitti_bev', _config('kitti_bev'), images, COLUMNS),
    ]


def _config(name: str) -> TrainConfig:
    changes = {'batch_size': BATCH, 'chunk_size': CHUNK, 'multistage': True}
    return override(TrainConfig.from_yaml(CONFIGS / f'{name}.yaml'), changes)


def _measure(case: Case, repeats: int) -> list[dict[str, Any]]:
    model = PlaceModel(case.config.model)
    reference = minkowski_model(model)
    models = {'torch': model} | ({'minkowski': reference} if reference is not None else {})
    places = Clouds(case.clouds, case.kind)
    xy = places.positions[:, :2]
    metric = xy if case.kind == COLUMNS else None
    data = TrainingData(places, make_tuples(xy, 1.0, 1.0), None, positions=metric)
    quantized_as = input_for(places, case.config.model.input)
    batch = collate([quantize(places.points(i), quantized_as) for i in range(BATCH)])
    actions: dict[str, dict[str, Callable[[], None]]] = {
        'forward': {name: timed_pass(m, batch, 'forward') for name, m in models.items()},
        'multistage step': {
            name: _step(Trainer(case.config, m, data, device=torch.device('cpu')))
            for name, m in models.items()
        },
    }
    rows = []
    for mode, timed in actions.items():
        medians = interleaved_medians_ms(timed, repeats)
        rate = {name: 1e3 * BATCH / ms for name, ms in medians.items()}
        rows.append(
            {
                'network': case.name,
                'voxels': round(sum(batch.counts) / BATCH),
                'mode': mode,
                'torch_clouds_per_s': rate['torch'],
                'minkowski_clouds_per_s': rate.get('minkowski'),
            }
        )
    return rows


def _step(trainer: Trainer) -> Callable[[], None]:
    """Return a function that runs an epoch of one batch."""

    def step() -> None:
        for _ in trainer.run_epoch(0):
            pass

    return step
