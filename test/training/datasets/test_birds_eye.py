"""Bird's-eye images of clouds have the same cells as the clouds."""

from dataclasses import replace

import numpy as np
import pytest

import birds_eye
from lpr_ros.core.model.config import InputConfig
from lpr_ros.core.model.quantize import lifted, quantize
from lpr_training.datasets.base import PlaceSample
from lpr_training.datasets.kitti_bev import KittiBevDataset, count_image, lift
from lpr_training.datasets.places import write_places

INPUT = InputConfig(
    quantizer='bev', step=(0.8, 0.8, 0.8), max_range_m=25.0, bev_counts='published'
)


def street(seed):
    """Ground and walls, 1.7 m below the sensor."""
    rng = np.random.default_rng(seed)
    ground = np.column_stack([rng.uniform(-20, 20, (4000, 2)), np.full(4000, -1.7)])
    walls = np.column_stack(
        [rng.choice([-8.0, 9.0], 3000), rng.uniform(-20, 20, 3000), rng.uniform(-1.7, 2.0, 3000)]
    )
    return np.concatenate([ground, walls]).astype(np.float32)


@pytest.mark.parametrize('align_yaw', [False, True])
def test_count_image_keeps_the_cells_of_a_cloud(align_yaw):
    cloud, config = street(1), replace(INPUT, align_yaw=align_yaw)
    image = count_image(cloud)
    assert image.max() == 10
    assert np.array_equal(quantize(lift(image), lifted(config)), quantize(cloud, config))


def test_worlds_are_written_to_files_and_separated(tmp_path):
    for run in ('town/day_0', 'town/day_1', 'wood/day_0'):
        clouds = [PlaceSample(street(i), np.eye(4), i, run, str(i)) for i in range(3)]
        write_places(tmp_path / 'places', run, clouds)
    out = tmp_path / 'out'
    assert birds_eye.main(['--data', str(tmp_path / 'places'), '--out', str(out), '--quiet']) == 0
    places = KittiBevDataset(out)
    assert places.runs == ('town',) * 6 + ('wood',) * 3
    assert np.ptp(places.positions[:6], axis=0).max() == 0.0
    assert np.linalg.norm(places.positions[0] - places.positions[-1]) > 5000.0
    assert np.array_equal(places.counts(7), count_image(street(1)))


def test_missing_folder_is_reported(tmp_path, capsys):
    line = ['--data', str(tmp_path / 'none'), '--out', str(tmp_path / 'out')]
    assert birds_eye.main(line) == 1
    assert 'none' in capsys.readouterr().err
