"""Batches that grow as triplets are learned, and hard negatives that are hard and negative."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_places import TINY_OXFORD, write_oxford_folder

from lpr_ros.core.config import override, parse_assignments
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.describer import Describer
from lpr_ros.core.model.place_model import PlaceModel
from lpr_training.config import GrowthConfig, MiningConfig, TrainConfig
from lpr_training.describing import describe_places
from lpr_training.engine import Trainer
from lpr_training.mining import NegativeMiner
from lpr_training.processes import ALONE
from lpr_training.run_folder import RunFolder
from lpr_training.training_data import open_training_data

CONFIG = Path(__file__).resolve().parents[1] / 'config' / 'oxford_baseline.yaml'
TRIPLET = ('loss.name=batch_hard_triplet', 'growth.below=1.0', 'growth.limit=9', 'batch_size=4')


@pytest.fixture(scope='module')
def oxford(tmp_path_factory):
    return write_oxford_folder(tmp_path_factory.mktemp('oxford'))


def config_of(*changes) -> TrainConfig:
    changes = parse_assignments((*TINY_OXFORD, *changes))
    return override(TrainConfig.from_yaml(CONFIG), changes)


def trainer_of(oxford, config) -> Trainer:
    torch.manual_seed(config.seed)
    data = open_training_data(config.data, oxford)
    return Trainer(config, PlaceModel(config.model), data, device=torch.device('cpu'))


def test_growth_by_hand():
    growth = GrowthConfig(below=0.7, factor=1.4, limit=256)
    assert growth.grown(16, 0.7) == 16
    assert growth.grown(16, 0.69) == 22
    assert growth.grown(200, 0.0) == 256
    assert growth.grown(300, 0.0) == 300  # never smaller than it was
    assert GrowthConfig().grown(16, 0.0) == 16


def test_batches_grow_and_a_resumed_run_knows(oxford, tmp_path):
    config = config_of(*TRIPLET, 'loss.margin=0.0', 'loss.swap=false')
    trainer = trainer_of(oxford, config)
    sizes, folder = [], RunFolder(tmp_path, config)
    folder.start()
    for epoch in range(4):
        steps = list(trainer.run_epoch(epoch))
        sizes.append(steps[0].clouds)
        assert min(step.statistics['active'] for step in steps) < 1.0
        folder.save(trainer, epoch, {'loss': 0.0})
    # 4, then 5, 7 and 9 places, drawn in pairs.
    assert sizes == [4, 6, 8, 10]
    again = trainer_of(oxford, config)
    assert RunFolder(tmp_path, config).resume(again) == 4
    assert again.batch_size == trainer.batch_size == 9


def test_growth_needs_a_loss_with_triplets():
    with pytest.raises(ConfigError, match='batch_hard_triplet'):
        config_of('growth.below=0.7')


def test_mined_negatives_are_the_nearest_places_that_are_elsewhere(oxford):
    config = config_of('data.non_negative_m=100')
    data = open_training_data(config.data, oxford)
    model = PlaceModel(config.model)
    miner = NegativeMiner(MiningConfig(hardest=3), data, ALONE)
    miner.refresh(model, torch.device('cpu'))
    assert model.training
    descriptors = describe_places(Describer(model), data.places, range(len(data.places)))
    batch = np.array([2, 12])  # one place on two days
    mined = miner.extend(batch, np.random.default_rng(0))
    assert mined[:2].tolist() == [2, 12]
    apart = np.linalg.norm(descriptors - descriptors[2], axis=1)
    apart[data.tuples.non_negatives[2]] = np.inf
    assert set(mined[2:]) == set(np.argsort(apart)[:3])
    # The sample bounds the choice, and nothing is there twice.
    scarce = NegativeMiner(MiningConfig(hardest=3, sampled=2), data, ALONE)
    scarce.refresh(model, torch.device('cpu'))
    assert len(scarce.extend(batch, np.random.default_rng(0))) == 4
    everything = miner.extend(np.array([2, 12, 5, 15]), np.random.default_rng(0))
    assert len(set(everything.tolist())) == len(everything)


def test_mining_starts_on_time_and_fills_the_batch(oxford):
    config = config_of('batch_size=12', 'mining.hardest=2', 'mining.from_epoch=1')
    trainer = trainer_of(oxford, config)
    before = [step.clouds for step in trainer.run_epoch(0)]
    mined = [step.clouds for step in trainer.run_epoch(1)]
    assert before == [12, 8]
    # Three pairs and two negatives for each fill twelve.
    assert mined[:3] == [12, 12, 12]


def test_descriptors_are_refreshed_as_often_as_asked(oxford, monkeypatch):
    config = config_of('batch_size=12', 'mining.hardest=2', 'mining.from_epoch=0')
    calls = []
    monkeypatch.setattr(NegativeMiner, 'refresh', lambda self, *_: calls.append(self))
    monkeypatch.setattr(NegativeMiner, 'extend', lambda self, batch, rng: batch)
    for steps, expected in ((1, 3), (2, 2), (700, 1)):
        calls.clear()
        mining = replace(config.mining, refresh_steps=steps)
        trainer = trainer_of(oxford, replace(config, mining=mining))
        assert len(list(trainer.run_epoch(0))) == 3
        assert len(calls) == expected
