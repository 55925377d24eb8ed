from pathlib import Path

import numpy as np
import pytest

from lpr_ros.core.errors import CloudError, DatasetError
from lpr_ros.core.geometry.points import (
    check_points,
    finite_rows,
    finite_xyz,
    points_in_range,
    voxel_downsample,
)


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize('axis', [0, 1, 2])
def test_finite_rule_is_the_same_for_masking_reading_and_checking(rng, bad, axis):
    points = rng.normal(size=(5, 3)).astype(np.float32)
    check_points(points)
    points[3, axis] = bad
    assert finite_rows(points).tolist() == [True, True, True, False, True]
    table = np.column_stack([points, np.full(5, np.nan)])  # other columns do not matter
    np.testing.assert_array_equal(finite_xyz(Path('x'), table), points[[0, 1, 2, 4]])
    np.testing.assert_array_equal(points_in_range(points), points[[0, 1, 2, 4]])
    with pytest.raises(CloudError, match=r'at row 3 \(1 of 5 points are not finite\)'):
        check_points(points)


def test_reading_a_cloud_without_finite_points_is_an_error():
    with pytest.raises(DatasetError, match=r'x\.bin: expected a finite point, got none among 2'):
        finite_xyz(Path('x.bin'), np.full((2, 4), np.nan))


@pytest.mark.parametrize('shape', [(3,), (4, 2), (0, 4), (1, 3, 3)])
def test_other_shapes_are_refused(shape):
    for function in (check_points, points_in_range):
        with pytest.raises(CloudError, match=r'expected points of shape \(N, 3\), got'):
            function(np.zeros(shape))


@pytest.mark.parametrize('scale', [10.0, 1e18])
def test_voxel_downsample_keeps_the_first_point_of_each_voxel(rng, scale):
    """At the large scale the packed keys would overflow."""
    points = (rng.integers(-3, 3, (200, 3)) * scale + 0.1).astype(np.float32)
    seen, first = set(), []
    for row, cell in enumerate(map(tuple, np.floor(points / 0.5))):
        if cell not in seen:
            seen.add(cell)
            first.append(row)
    np.testing.assert_array_equal(voxel_downsample(points, 0.5), points[first])
    assert voxel_downsample(points, 0.0) is points
