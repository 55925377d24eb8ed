"""Drift covariance: exact values at known distances, growth, and floors."""

import numpy as np
import pytest

from lpr_ros.core.geometry.odometry_noise import OdometryNoiseConfig, drift_covariance

CONFIG = OdometryNoiseConfig(
    position_fraction=0.02,
    heading_deg=1.0,
    tilt_deg=0.4,
    min_sigma_m=0.03,
    min_sigma_deg=0.1,
)


@pytest.mark.parametrize('traveled_m', [0.0, 1.0, 50.0, 300.0])
def test_drift_covariance_follows_the_noise_model(traveled_m):
    """Each term written out: drift along the way, the effect of rotation, and the floors."""
    heading, tilt = np.radians([1.0, 0.4]) * traveled_m / 100.0
    floor_m, floor_rad = 0.03, np.radians(0.1)
    along = (0.02 * traveled_m) ** 2 + floor_m**2
    horizontal = along + (traveled_m / 2 * heading) ** 2
    vertical = along + (traveled_m / 2 * tilt) ** 2
    expected = [
        horizontal,
        horizontal,
        vertical,
        tilt**2 + floor_rad**2,
        tilt**2 + floor_rad**2,
        heading**2 + floor_rad**2,
    ]
    np.testing.assert_allclose(drift_covariance(traveled_m, CONFIG), np.diag(expected), rtol=1e-12)


def test_heading_error_displaces_by_half_the_distance():
    """100 m with 1 degree of heading error and nothing else: 0.87 m, not 1.75 m."""
    config = OdometryNoiseConfig(
        position_fraction=0.0, heading_deg=1.0, tilt_deg=0.0, min_sigma_m=1e-6
    )
    sigma_m = np.sqrt(drift_covariance(100.0, config)[0, 0])
    assert sigma_m == pytest.approx(50.0 * np.radians(1.0), rel=1e-6)


def test_drift_covariance_of_many_distances_equals_each_alone():
    distances_m = np.array([[0.0, 3.0], [80.0, 1000.0]])
    together = drift_covariance(distances_m, CONFIG)
    assert together.shape == (2, 2, 6, 6)
    for index in np.ndindex(2, 2):
        np.testing.assert_array_equal(
            together[index], drift_covariance(distances_m[index], CONFIG)
        )
