"""Covariances are true on real scans, against poses settled over many of them."""

import pytest

from lpr_training.benchmarks.covariance.run import run, table


@pytest.mark.parametrize('name', ['kitti raw 0005', 'nuscenes 0001', 'kitti 00 3d'])
def test_errors_on_real_scans_agree_with_covariances(shared_data, name):
    result = run(shared_data, pairs=10, scans=14, sets=[name])
    row = result['sets'][name]
    assert row['correct'] >= 6
    assert 0.5 < row['nees_mean'] < 2.0
    assert name in table(result)
