"""Growth of batches and mining of hard negatives."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_places import TINY_OXFORD, write_oxford_folder

from lpr_ros.core.config import override, parse_assignments
from lpr_ros.core.errors import ConfigError
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.model.place_model import PlaceModel
from lpr_training.descriptors.extract import describe_places
from lpr_training.train.config import GrowthConfig, MiningConfig, TrainConfig
from lpr_training.train.data import open_training_data
from lpr_training.train.distributed import SINGLE_PROCESS
from lpr_training.train.mining import NegativeMiner
from lpr_training.train.run_folder import RunFolder
from lpr_training.train.trainer import Trainer

CONFIG = Path(__file__).resolve().parents[3] / 'config' / 'oxford_baseline.yaml'
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


def test_growth_on_a_hand_computed_case():
    growth = GrowthConfig(below=0.7, factor=1.4, limit=256)
    assert growth.grown(16, 0.7) == 16
    assert growth.grown(16, 0.69) == 22
    assert growth.grown(200, 0.0) == 256
    assert growth.grown(300, 0.0) == 300  # never shrinks
    assert GrowthConfig().grown(16, 0.0) == 16


def test_grown_batch_size_survives_resuming(oxford, tmp_path):
    config = config_of(*TRIPLET, 'loss.margin=0.0', 'loss.swap=false')
    trainer = trainer_of(oxford, config)
    sizes, folder = [], RunFolder(tmp_path, config)
    folder.start()
    for epoch in range(4):
        steps = list(trainer.run_epoch(epoch))
        sizes.append(steps[0].clouds)
        assert min(step.statistics['active'] for step in steps) < 1.0
        folder.save(trainer, epoch, {'loss': 0.0})
    # Sizes 4, 5, 7 and 9, filled with pairs.
    assert sizes == [4, 6, 8, 10]
    resumed = trainer_of(oxford, config)
    assert RunFolder(tmp_path, config).resume(resumed) == 4
    assert resumed.batch_size == trainer.batch_size == 9


def test_growth_requires_a_triplet_loss():
    with pytest.raises(ConfigError, match='batch_hard_triplet'):
        config_of('growth.below=0.7')


def test_mined_negatives_are_the_nearest_negatives(oxford):
    config = config_of('data.non_negative_m=100')
    data = open_training_data(config.data, oxford)
    model = PlaceModel(config.model)
    miner = NegativeMiner(MiningConfig(hardest=3), data, SINGLE_PROCESS)
    miner.refresh(model, torch.device('cpu'))
    assert model.training
    descriptors = describe_places(
        NetworkDescriptorExtractor(model), data.places, range(len(data.places))
    )
    batch = np.array([2, 12])  # one place on two days
    mined = miner.extend(batch, np.random.default_rng(0))
    assert mined[:2].tolist() == [2, 12]
    apart = np.linalg.norm(descriptors - descriptors[2], axis=1)
    apart[data.tuples.non_negatives[2]] = np.inf
    assert set(mined[2:]) == set(np.argsort(apart)[:3])
    # The sample limits the choice, and no place repeats.
    limited = NegativeMiner(MiningConfig(hardest=3, sampled=2), data, SINGLE_PROCESS)
    limited.refresh(model, torch.device('cpu'))
    assert len(limited.extend(batch, np.random.default_rng(0))) == 4
    mined = miner.extend(np.array([2, 12, 5, 15]), np.random.default_rng(0))
    assert len(set(mined.tolist())) == len(mined)


def test_mining_starts_at_its_epoch_and_fills_the_batch(oxford):
    config = config_of('batch_size=12', 'mining.hardest=2', 'mining.from_epoch=1')
    trainer = trainer_of(oxford, config)
    before = [step.clouds for step in trainer.run_epoch(0)]
    mined = [step.clouds for step in trainer.run_epoch(1)]
    assert before == [12, 8]
    # Three pairs with two negatives each.
    assert mined[:3] == [12, 12, 12]


def test_descriptors_are_refreshed_every_refresh_steps(oxford, monkeypatch):
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
