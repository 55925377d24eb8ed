"""Held-out places and positives from other visits."""

import numpy as np
import pytest
from toy_places import TINY_OXFORD, visits, write_bev_file, write_oxford_folder
from training_runs import BEV_YAML, OXFORD_YAML, TINY_BEV, arguments, config_of

from lpr_ros.core.model.calibration import Calibration
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_training.datasets.oxford import write_oxford
from lpr_training.datasets.splits.oxford import REGIONS
from lpr_training.train.data import open_training_data
from lpr_training.train.validation import match_held_out
import train


def test_places_inside_the_oxford_test_regions_select_and_calibrate(tmp_path):
    """Two runs visit the same twelve places of a test region."""
    rng, root = np.random.default_rng(0), write_oxford_folder(tmp_path / 'data')
    northing, easting = REGIONS['oxford'][0]
    for run in ('2014-03', '2014-04'):
        clouds = visits(100, 12, northing - 130.0, easting, 20.0, rng)
        write_oxford(root, run, clouds, part='training')
    changes = (*TINY_OXFORD, 'epochs=1', 'data.validation_gap=12', 'validate_every=1')
    held_out = open_training_data(config_of(OXFORD_YAML, changes).data, root).held_out
    assert (len(held_out.places), held_out.gap) == (24, 12)
    assert len(set(held_out.places.runs)) == 2  # in one world
    out = tmp_path / 'run'
    assert train.main(arguments(OXFORD_YAML, root, out, changes)) == 0
    best = load_checkpoint(out / 'best.safetensors')
    assert Calibration.from_dict(best.calibration).radius_m == 5.0
    matches = match_held_out(NetworkDescriptorExtractor(best.build()), held_out)
    assert (len(matches.distances), int(matches.is_revisit.sum())) == (12, 12)


def test_other_visits_are_positives_of_the_other_lap(tmp_path):
    write_bev_file(tmp_path / 'kitti_bev_00.npz')
    changes = (*TINY_BEV, 'data.revisit_m=100.0', 'data.spacing_m=0.0')
    data = open_training_data(config_of(BEV_YAML, changes).data, tmp_path)
    lap = np.array([int(name) // 39 for name in data.places.names])
    found = [(i, j) for i, others in enumerate(data.other_visits) for j in others]
    assert len(found) > 20
    assert all(lap[i] != lap[j] and j in data.tuples.positives[i] for i, j in found)


@pytest.mark.parametrize('every', [0, 1])
def test_benchmark_without_revisits_trains_without_selection(tmp_path, every):
    rng, root = np.random.default_rng(0), write_oxford_folder(tmp_path / 'data')
    northing, easting = REGIONS['oxford'][0]
    write_oxford(root, '2014-03', visits(100, 12, northing, easting, 10.0, rng), part='training')
    changes = (*TINY_OXFORD, 'epochs=1', f'validate_every={every}')
    assert train.main(arguments(OXFORD_YAML, root, tmp_path / 'run', changes)) == 0
    assert not (tmp_path / 'run' / 'best.safetensors').exists()
