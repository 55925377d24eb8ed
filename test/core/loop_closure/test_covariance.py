"""Covariances follow from the clouds: what constrains the pose, and how well the clouds agree."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_pairs import simulate

from lpr_ros.core.geometry.se3 import (
    adjoint,
    invert,
    pose_from_euler,
    propagate,
    transform_points,
)
from lpr_ros.core.loop_closure.covariance import (
    estimate_covariance,
    jackknife,
    systematic_covariance,
)
from lpr_ros.core.loop_closure.registration import RegistrationConfig, prepare, refine
from lpr_ros.core.loop_closure.verification import VerificationConfig, make_strategy
from lpr_ros.core.types import Keyframe, Match

CONFIG = RegistrationConfig()
T_SLIPPED = pose_from_euler([0.3, 0.05, 0.0], [0.0, 0.0, 0.01])


def covariance_of(target, source, T_guess=T_SLIPPED):
    target, source = prepare(target, CONFIG), prepare(source, CONFIG)
    refined = refine(target, source, T_guess, CONFIG)
    return estimate_covariance(
        target, source, refined, CONFIG.final_max_correspondence_m, 0.5 * CONFIG.voxel_m
    )


def sigmas(covariance):
    """Return the standard deviations: x y z in meters, roll pitch yaw in degrees."""
    sigma = np.sqrt(np.diag(covariance))
    return np.concatenate([sigma[:3], np.degrees(sigma[3:])])


def face(rng, axis, at_m, spans_m, noise_m, count):
    """Return points on a plane across one axis, within a span of each of the other two."""
    spread = [rng.uniform(-span, span, count) for span in spans_m]
    return np.insert(np.stack(spread, axis=1), axis, rng.normal(at_m, noise_m, count), axis=1)


def corridor(rng, noise_m=0.02):
    """Return two walls and a floor along x."""
    walls = [face(rng, 1, side * 3.0, (30.0, 1.5), noise_m, 6000) for side in (-1, 1)]
    floor = face(rng, 2, -1.5, (30.0, 3.0), noise_m, 12000)
    return np.concatenate([*walls, floor]).astype(np.float32)


def hall(rng, noise_m=0.02):
    """Return a closed hall of 40 by 40 m."""
    faces = [face(rng, axis, side * 20.0, (20.0, 2.0), noise_m, 5000)
             for axis in (0, 1) for side in (-1, 1)]  # fmt: skip
    floor = face(rng, 2, -2.0, (20.0, 20.0), noise_m, 15000)
    return np.concatenate([*faces, floor]).astype(np.float32)


@pytest.mark.parametrize('noise_m', [0.0, 0.005, 0.02, 0.1])
@pytest.mark.parametrize('seed', range(3))
def test_the_way_along_a_corridor_is_unknown(noise_m, seed):
    rng = np.random.default_rng(seed)
    sigma = sigmas(covariance_of(corridor(rng, noise_m), corridor(rng, noise_m)))
    assert sigma[0] > 2.0
    assert sigma[1] < 0.15
    assert sigma[2] < 0.15


@pytest.mark.parametrize('seed', range(3))
def test_a_plain_tells_height_and_tilt_only(seed):
    rng = np.random.default_rng(seed)
    ground = [face(rng, 2, -1.7, (30.0, 30.0), 0.02, 15000).astype(np.float32) for _ in range(2)]
    sigma = sigmas(covariance_of(*ground))
    assert (sigma[[0, 1]] > 2.0).all()
    assert sigma[5] > 5.0
    assert sigma[2] < 0.05
    assert (sigma[[3, 4]] < 0.2).all()


def test_a_loop_in_a_corridor_is_accepted_with_meters_along_it(rng):
    a, b = (
        Keyframe(i, 'a', i, np.zeros(1, np.float32), corridor(rng), None, 0.0) for i in range(2)
    )
    verifier = make_strategy(VerificationConfig(strategy='gicp'))
    closure = verifier.verify(b, a, Match(0, 0.1, 0.9), T_SLIPPED)
    assert sigmas(closure.covariance)[0] > 2.0
    assert sigmas(closure.covariance)[1] < 0.05


def test_the_covariance_is_in_the_tangent_space_of_the_source(rng):
    """The same corridor, seen by a sensor that faces its wall: y is unknown instead of x."""
    T_turned = pose_from_euler([0.0, 0.0, 0.0], [0.0, 0.0, np.pi / 2])
    turned = transform_points(T_turned, corridor(rng))
    sigma = sigmas(covariance_of(corridor(rng), turned, invert(T_turned)))
    assert sigma[1] > 2.0
    assert sigma[0] < 0.05


def test_noisier_clouds_have_larger_covariances():
    determinants = []
    for noise_m in (0.01, 0.03, 0.09):
        rng = np.random.default_rng(4)
        covariance = covariance_of(hall(rng, noise_m), hall(rng, noise_m))
        determinants.append(np.linalg.det(covariance) ** (1 / 12))
    assert determinants[1] > 1.5 * determinants[0]
    assert determinants[2] > 1.5 * determinants[1]


def test_errors_that_neighbors_share_do_not_average_out(rng):
    """Points of a wall that moved by 5 cm, in panels of 5 m or one by one: as many of them."""
    target, source = hall(rng), hall(rng)
    ahead = np.abs(np.abs(source[:, 0]) - 20.0) < 0.5
    panel = np.floor(source[:, 1] / 5.0).astype(int) % 2 == 0
    together, alone = source.copy(), source.copy()
    together[ahead & panel, 0] += 0.05
    alone[rng.permutation(np.flatnonzero(ahead))[: (ahead & panel).sum()], 0] += 0.05
    sigma_together, sigma_alone = (sigmas(covariance_of(target, x)) for x in (together, alone))
    assert sigma_together[5] > 1.5 * sigma_alone[5]


def test_identical_clouds_are_certain_and_finite(rng):
    cloud = hall(rng)
    covariance = covariance_of(cloud, cloud, np.eye(4))
    assert np.isfinite(covariance).all()
    assert (sigmas(covariance)[:3] < 0.001).all()


def test_a_pose_that_depends_on_the_matches_is_as_uncertain_as_it_moved(rng):
    target, source = prepare(hall(rng), CONFIG), prepare(hall(rng), CONFIG)
    refined = refine(target, source, np.eye(4), CONFIG)
    T_before = refined.T_target_source @ pose_from_euler([0.2, 0.0, 0.0], [0.0, 0.0, 0.0])
    moved = replace(refined, T_previous=T_before)
    sigma = sigmas(estimate_covariance(target, source, moved, 0.5, 0.25))
    assert sigma[0] == pytest.approx(0.2, rel=0.05)
    assert sigma[1] < 0.02


def test_each_cell_is_compared_with_the_pose_that_the_others_give(rng):
    """Against leaving out one cell at a time of a linear problem."""
    rows = rng.normal(size=(12, 20, 6))
    values = rng.normal(size=(12, 20))
    hessians = rows.transpose(0, 2, 1) @ rows
    total = hessians.sum(axis=0)
    right = (rows * values[:, :, None]).sum(axis=1)
    pose = np.linalg.solve(total, right.sum(axis=0))
    errors = jackknife(right - hessians @ pose, hessians)
    for cell in range(12):
        others = np.arange(12) != cell
        without = np.linalg.solve(hessians[others].sum(axis=0), right[others].sum(axis=0))
        np.testing.assert_allclose(errors[cell], total @ (pose - without), atol=1e-9)


@pytest.mark.parametrize('pair', range(3))
def test_a_common_motion_of_both_frames_moves_the_covariance_along(pair):
    """Voxels and cells are cut elsewhere, so it agrees within a factor, not to the digit."""
    drive = simulate('suburb')
    match, query = drive.pairs(count=3, seed=8)[pair]
    clouds = [drive.keyframe(i).points for i in (match, query)]
    T_true = drive.true_pose(match, query)
    T_moved = pose_from_euler([3.0, -2.0, 0.5], [0.02, 0.01, 0.9])
    before = covariance_of(*clouds, T_true)
    after = covariance_of(
        *(transform_points(T_moved, cloud) for cloud in clouds), T_moved @ T_true @ invert(T_moved)
    )
    ratio = np.linalg.solve(propagate(adjoint(T_moved), before), after)
    scale = np.sqrt(np.abs(np.linalg.eigvals(ratio)))
    assert 0.5 < np.prod(scale) ** (1 / 6) < 2.0


def test_the_smallest_standard_deviation_is_an_option(rng):
    cloud = hall(rng)
    keyframe = Keyframe(0, 'a', 0, np.zeros(1, np.float32), cloud, None, 0.0)
    config = VerificationConfig(strategy='gicp', min_sigma_m=0.1, min_sigma_deg=0.5)
    closure = make_strategy(config).verify(replace(keyframe, id=1), keyframe, Match(0, 0.1, 0.9))
    assert (sigmas(closure.covariance)[:3] > 0.0999).all()
    assert (sigmas(closure.covariance)[3:] > 0.4999).all()


def test_systematic_errors_grow_with_the_distance_of_the_keyframes(rng):
    cloud = prepare(hall(rng), CONFIG)
    near, far = (
        sigmas(systematic_covariance(cloud, cloud, pose_from_euler([d, 0, 0], [0, 0, 1.0])))
        for d in (5.0, 10.0)
    )
    np.testing.assert_allclose(far[:5], 2.0 * near[:5], rtol=1e-6)
    assert far[5] == pytest.approx(near[5])


def test_systematic_errors_grow_with_the_thickness_of_the_surfaces():
    T = pose_from_euler([10.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    thin, thick = (
        prepare(hall(np.random.default_rng(4), noise_m), CONFIG) for noise_m in (0.02, 0.1)
    )
    assert thick.thickness_m > 2.0 * thin.thickness_m
    ratio = sigmas(systematic_covariance(thick, thick, T)) / sigmas(
        systematic_covariance(thin, thin, T)
    )
    np.testing.assert_allclose(ratio, thick.thickness_m / thin.thickness_m, rtol=1e-6)


def test_sparse_clouds_tell_less_about_height_and_tilt(rng):
    """A cloud with one point per voxel is sparse; one with many is dense, however many."""
    T = pose_from_euler([5.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    dense = prepare(hall(rng), CONFIG)
    sparse = prepare(dense.points, CONFIG)
    assert dense.sparsity < 0.5
    assert sparse.sparsity > 0.9
    sigma_dense, sigma_sparse = (sigmas(systematic_covariance(x, x, T)) for x in (dense, sparse))
    assert (sigma_sparse > 3.0 * sigma_dense).all()
    assert (sigma_sparse[3:5] > 1.5 * sigma_sparse[5]).all()  # the ground between the places


def test_a_loop_closure_has_both_parts_of_the_covariance(rng):
    a, b = (Keyframe(i, 'a', i, np.zeros(1, np.float32), hall(rng), None, 0.0) for i in range(2))
    config = VerificationConfig(strategy='gicp', min_sigma_m=1e-6, min_sigma_deg=1e-6)
    closure = make_strategy(config).verify(b, a, Match(0, 0.1, 0.9), T_SLIPPED)
    target, source = prepare(a.points, CONFIG), prepare(b.points, CONFIG)
    refined = refine(target, source, T_SLIPPED, CONFIG)
    parts = systematic_covariance(target, source, closure.T_match_query) + estimate_covariance(
        target, source, refined, CONFIG.final_max_correspondence_m, 0.5 * CONFIG.voxel_m
    )
    np.testing.assert_allclose(sigmas(closure.covariance), sigmas(parts), rtol=0.01)
