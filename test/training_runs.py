"""Configurations and command lines of tiny training runs."""

from pathlib import Path

from toy_places import TINY

from lpr_ros.core.config import override, parse_assignments
from lpr_training.train.config import TrainConfig

ROOT = Path(__file__).resolve().parents[1]
OXFORD_YAML = ROOT / 'config' / 'oxford_baseline.yaml'
BEV_YAML = ROOT / 'config' / 'kitti_bev.yaml'
TINY_BEV = (
    *TINY,
    'model.backbone.quarter_turns=false',
    'model.input.step=[0.8,0.8,0.8]',
    'data.validation_x=[60.0]',
    'data.validation_y=[0.0]',
    'data.validation_half_m=40.0',
    'data.validation_gap=30',
    'data.spacing_m=0.0',
    'data.positive_m=10.0',
    'data.non_negative_m=20.0',
    'data.neighbor_m=40.0',
    'warmup_epochs=0',
)


def arguments(config, data, out, changes, *more):
    sets = [part for change in changes for part in ('--set', change)]
    return [str(config), '--data', str(data), '--out', str(out), *sets, *more]


def config_of(path: Path, changes) -> TrainConfig:
    return override(TrainConfig.from_yaml(path), parse_assignments(changes))
