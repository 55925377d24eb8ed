"""The experiments behind the tables of the paper: configuration, changes, table row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lpr_ros.core.config import override, parse_assignments
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.resources import REPOSITORY
from lpr_training.train.config import TrainConfig

CONFIG_FOLDER = REPOSITORY / 'config'
MAIN = 'Ours (C=16, M=16)'


@dataclass(frozen=True)
class Experiment:
    """One table row; main experiments are trained with all seeds, others with the first."""

    name: str
    row: str  # name in the paper
    tables: tuple[str, ...]
    config: str = ''  # name of a file in config/; '' for a method without training
    changes: tuple[str, ...] = ()
    is_main: bool = False

    def configure(self, assignments: Sequence[str], epochs: int, seed: int) -> TrainConfig:
        """Return the configuration of a run; 0 epochs keeps the number of the file."""
        config = TrainConfig.from_yaml(CONFIG_FOLDER / f'{self.config}.yaml')
        changes: dict[str, Any] = parse_assignments([*self.changes, *assignments])
        changes['seed'] = seed
        if epochs:
            changes['epochs'] = epochs
        return override(config, changes)


def _size(c: int, m: int) -> tuple[str, str]:
    return f'model.pooling.channels={c}', f'model.pooling.clusters={m}'


def _pooling(*assignments: str) -> tuple[str, ...]:
    return tuple(f'model.pooling.{a}' for a in assignments)


_WHITENED = Experiment(
    'whitened_16_16', MAIN, ('I', 'III'), 'oxford_baseline', _size(16, 16), True
)
_NETVLAD = _pooling('kind=netvlad', 'clusters=64')  # as published
_VLAD = ('loss.margin=0.5', 'loss.second_margin=0.2')

OXFORD = (
    _WHITENED,
    replace(
        _WHITENED,
        name='gem',
        row='MinkLoc3Dv2',
        tables=('I',),
        changes=_pooling('kind=gem'),
    ),
    Experiment('whitened_128_64', 'Ours (C=128, M=64)', ('I',), 'oxford_baseline', _size(128, 64)),
    Experiment('netvlad', 'NetVLAD head', ('I',), 'oxford_baseline', _NETVLAD),
    Experiment('o2p', 'O2P head', ('I',), 'oxford_baseline', _pooling('kind=o2p')),
    Experiment(
        'minkloc3d',
        'MinkLoc3D',
        ('I',),
        'oxford_minkloc3d',
        (*_pooling('kind=gem'), 'loss.margin=0.2'),
    ),
    Experiment(
        'pointnetvlad',
        'PointNetVLAD',
        ('I',),
        'oxford_pointnet',
        (*_NETVLAD, *_VLAD),
    ),
    Experiment(
        'no_rblw_no_svdpi',
        'RBLW off, SVDPI off',
        ('III',),
        'oxford_baseline',
        _pooling('shrinkage=false', 'gradient=eigh'),
    ),
    Experiment(
        'no_svdpi', 'RBLW on, SVDPI off', ('III',), 'oxford_baseline', _pooling('gradient=eigh')
    ),
    Experiment(
        'no_rblw', 'RBLW off, SVDPI on', ('III',), 'oxford_baseline', _pooling('shrinkage=false')
    ),
    Experiment(
        'exact', 'RBLW on, exact gradient', ('III',), 'oxford_baseline', _pooling('gradient=exact')
    ),
    Experiment('with_pointnet', 'w/ PointNetVLAD', ('III',), 'oxford_pointnet'),
    Experiment('with_minkloc3d', 'w/ MinkLoc3D', ('III',), 'oxford_minkloc3d'),
)

_FOREST = Experiment('whitened_16_16', MAIN, ('II',), 'wild_places', _size(16, 16), True)
WILD_PLACES = (
    _FOREST,
    replace(_FOREST, name='gem', row='MinkLoc3Dv2', changes=_pooling('kind=gem')),
    Experiment('whitened_32_32', 'Ours (C=32, M=32)', ('II',), 'wild_places', _size(32, 32)),
    Experiment('whitened_128_64', 'Ours (C=128, M=64)', ('II',), 'wild_places', _size(128, 64)),
    Experiment('netvlad', 'NetVLAD head', ('II',), 'wild_places', _NETVLAD),
    Experiment('o2p', 'O2P head', ('II',), 'wild_places', _pooling('kind=o2p')),
    Experiment('scan_context', 'ScanContext', ('II',)),
)


def choose(experiments: Sequence[Experiment], only: Sequence[str]) -> list[Experiment]:
    """Return the named experiments, or all without names."""
    names = [e.name for e in experiments]
    unknown = [name for name in only if name not in names]
    if unknown:
        raise ConfigError(f'--only {unknown[0]}: no such experiment; choose from {names}')
    return [e for e in experiments if not only or e.name in only]
