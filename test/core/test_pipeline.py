"""The pipeline: scans in, correct loop closures out, whatever bad input comes in between."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from simulated_pairs import simulate

from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.errors import ConfigError, ScanError
from lpr_ros.core.geometry.se3 import invert, pose_from_euler, rotation_angle_rad
from lpr_ros.core.loop_closure.belief import BeliefConfig
from lpr_ros.core.loop_closure.verification import VerificationConfig
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.pipeline import Pipeline, PipelineConfig
from lpr_ros.core.retrieval.keyframing import KeyframeConfig
from lpr_ros.core.types import Candidate, KeyframeQuery, Match, Scan

FIRST = 50  # scans up to the end of the first revisit: 32 to 43, in the opposite direction
WEIGHTS = Path(__file__).resolve().parents[2] / 'weights' / 'kitti_bev.safetensors'
NS = 10**9
CONFIG = PipelineConfig(
    keyframes=KeyframeConfig(distance_m=1.0),
    database=DatabaseConfig(exclude_s=5.0, exclude_m=40.0),
)


class CachedExtractor:
    """The real extractor, which describes a cloud once: many tests replay the same drive."""

    def __init__(self, extractor):
        self._extractor, self._cache = extractor, {}
        self.dim, self.fingerprint = extractor.dim, extractor.fingerprint

    def describe(self, points):
        key = hash(points.tobytes())
        if key not in self._cache:
            self._cache[key] = self._extractor.describe(points)
        return self._cache[key]


@pytest.fixture(scope='module')
def extractor():
    return CachedExtractor(NetworkDescriptorExtractor.load(WEIGHTS, device='cpu'))


@pytest.fixture(scope='module')
def simulation():
    """260 m in a suburb 80 m wide: half of it is driven twice, in both directions."""
    return simulate('suburb', seed=22, size_m=80.0, length_m=260.0).simulation


@pytest.fixture(scope='module')
def scans(simulation):
    scans = [simulation.scan(i) for i in range(len(simulation))]
    return [Scan(s.points, s.stamp_ns, s.T_odom_sensor) for s in scans]


def drive(scans, extractor, config=CONFIG, **options):
    """Return the steps of a new pipeline, and the errors of the scans it rejected."""
    pipeline = Pipeline(config, extractor, **options)
    steps, errors = feed(pipeline, scans)
    pipeline.close()
    return steps, errors


def feed(pipeline, scans):
    """Return the steps of a pipeline, and the errors of the scans it rejected."""
    steps, errors = [], []
    for scan in scans:
        try:
            step = pipeline.add(scan)
        except ScanError as error:
            errors.append(error)
        else:
            steps += [step] if step is not None else []
    return steps, errors


def loops_of(steps):
    return [loop for step in steps for loop in step.result.trusted]


def loop_values(loops):
    return [
        (x.query_id, x.match_id, x.T_match_query.tobytes(), x.covariance.tobytes()) for x in loops
    ]


@pytest.fixture(scope='module')
def pipeline(extractor):
    pipeline = Pipeline(CONFIG, extractor)
    yield pipeline
    pipeline.close()


@pytest.fixture(scope='module')
def driven(pipeline, scans):
    """The steps of the whole drive."""
    return feed(pipeline, scans)[0]


def assert_correct(loops, T_world_sensor):
    """Compare loop closures with the true poses of the keyframes, by id."""
    assert loops
    for loop in loops:
        T_true = invert(T_world_sensor[loop.match_id]) @ T_world_sensor[loop.query_id]
        error = invert(T_true) @ loop.T_match_query
        assert np.linalg.norm(error[:3, 3]) < 0.3
        assert np.degrees(rotation_angle_rad(error)) < 1.0


def test_loops_are_correct_and_cover_the_revisits(driven, simulation):
    T = simulation.T_world_sensor
    loops = loops_of(driven)
    assert_correct(loops, T)
    distance = np.linalg.norm(T[:, None, :3, 3] - T[None, :, :3, 3], axis=2)
    numbers = np.arange(len(T))
    is_revisit = ((distance < 5.0) & (numbers[:, None] - numbers[None] > 20)).any(axis=1)
    queries = np.array([loop.query_id for loop in loops])
    near = np.abs(numbers[:, None] - queries[None]).min(axis=1) <= 3
    assert near[is_revisit].mean() > 0.85
    facing = [float(T[x.query_id][:2, 0] @ T[x.match_id][:2, 0]) for x in loops]
    assert min(facing) < -0.8  # some in the opposite direction
    assert max(facing) > 0.8


def test_keyframes_match_neither_themselves_nor_recent_ones(driven):
    frames = [step.keyframe_query.keyframe for step in driven]
    assert [frame.id for frame in frames] == list(range(len(frames)))
    pairs = [
        (step.keyframe_query.keyframe, m) for step in driven for m in step.keyframe_query.matches
    ]
    assert pairs
    for query, match in pairs:
        older = frames[match.keyframe_id]
        assert query.stamp_ns - older.stamp_ns >= CONFIG.database.exclude_s * NS
        assert query.traveled_m - older.traveled_m >= CONFIG.database.exclude_m


def test_a_step_reports_the_time_of_each_stage(driven):
    stages = {stage for step in driven for stage in step.seconds}
    assert stages == {'keyframe', 'describe', 'store', 'search', 'verify', 'agree'}
    assert all(value >= 0.0 for step in driven for value in step.seconds.values())


def test_bad_scans_are_rejected_and_do_not_change_the_loops(driven, scans, extractor):
    """One of each kind, in the middle of a revisit: bit for bit the loops of the clean drive."""
    middle = scans[36]
    soon = middle.stamp_ns + 1
    T_nan = np.full((4, 4), np.nan)
    T_scaled = 2.0 * np.eye(4)
    with_nan = middle.points.copy()
    with_nan[7, 1] = np.nan
    bad = [
        (replace(middle, stamp_ns=soon, T_odom_sensor=T_nan), 'odometry'),
        (replace(middle, stamp_ns=soon, T_odom_sensor=T_scaled), 'odometry'),
        (middle, 'stamp'),
        (replace(middle, stamp_ns=middle.stamp_ns - 1000), 'stamp'),
        (replace(middle, stamp_ns=soon, points=middle.points[:0]), 'cloud'),
        (replace(middle, stamp_ns=soon, points=middle.points[:, :2]), 'cloud'),
        (replace(middle, stamp_ns=soon, points=with_nan), 'cloud'),
    ]
    disturbed = [*scans[:37], *[scan for scan, _ in bad], *scans[37:FIRST]]
    steps, errors = drive(disturbed, extractor)
    assert [error.kind for error in errors] == [kind for _, kind in bad]
    loops = loops_of(steps)
    assert loops
    assert loop_values(loops) == loop_values(loops_of(driven[:FIRST]))


def test_a_cloud_out_of_range_is_rejected(scans, extractor):
    far = replace(scans[0], points=scans[0].points + np.float32(500.0))
    steps, errors = drive([far, *scans[1:4]], extractor)
    assert [error.kind for error in errors] == ['cloud']
    assert [step.keyframe_query.keyframe.id for step in steps] == [0, 1, 2]


def test_a_stationary_robot_adds_no_keyframes(scans, extractor):
    still = [replace(scans[5], stamp_ns=scans[5].stamp_ns + k * NS // 10) for k in range(1, 30)]
    steps, errors = drive([*scans[:6], *still], extractor)
    assert len(steps) == 6
    assert errors == []


def test_an_odometry_jump_starts_a_new_session(scans, extractor, simulation):
    T_jump = pose_from_euler([300.0, -80.0, 5.0], [0.0, 0.0, 1.0])
    jumped = [
        replace(s, T_odom_sensor=T_jump @ s.T_odom_sensor, odometry_segment=1) if i >= 20 else s
        for i, s in enumerate(scans[:FIRST])
    ]
    steps, errors = drive(jumped, extractor)
    assert errors == []
    sessions = [step.keyframe_query.keyframe.session for step in steps]
    assert sessions == ['robot'] * 20 + ['robot (2)'] * (FIRST - 20)
    T = simulation.T_world_sensor
    assert_correct(loops_of(steps), T)


def test_a_session_that_odometry_continues_is_not_split_by_dropped_scans(scans, extractor):
    """One scan in thirty, more than 20 m apart."""
    few = scans[::30]
    steps_m = [
        np.linalg.norm((b.T_odom_sensor - a.T_odom_sensor)[:3, 3]) for a, b in pairwise(few)
    ]
    assert max(steps_m) > CONFIG.session.max_step_m
    steps, errors = drive(few, extractor)
    assert errors == []
    assert [step.keyframe_query.keyframe.session for step in steps] == ['robot'] * len(few)


def test_every_session_says_why_it_starts(scans, extractor):
    later = [replace(s, odometry_segment=1, segment_reason='jump of 5 m') for s in scans[2:12]]
    again = [replace(s, odometry_segment=2) for s in scans[:2]]
    steps, _ = drive([*scans[:2], *later, *again, scans[2]], extractor)
    told = [step.keyframe_query.session_reason for step in steps]
    back = f'clock set back from {later[-1].stamp_ns} ns to {again[0].stamp_ns} ns'
    assert told == ['first scan', '', 'jump of 5 m', *[''] * 9, back, '', 'odometry jump']


def test_a_clock_set_back_starts_a_new_session(scans, extractor, simulation):
    """A bag played twice: the second pass is a new session that matches the first at once."""
    count = 20
    steps, errors = drive([*scans[:count], *scans[:count]], extractor)
    assert errors == []
    sessions = [step.keyframe_query.keyframe.session for step in steps]
    assert sessions == ['robot'] * count + ['robot (2)'] * count
    T = np.concatenate([simulation.T_world_sensor[:count]] * 2)
    loops = loops_of(steps)
    assert_correct(loops, T)
    assert any(loop.match_id < count <= loop.query_id for loop in loops)


def test_settings_can_change_at_run_time(scans, extractor):
    pipeline = Pipeline(CONFIG, extractor)
    feed(pipeline, scans[:34])
    strict = replace(
        CONFIG,
        database=replace(CONFIG.database, top_k=1),
        verification=VerificationConfig(min_overlap=1.0),
    )
    pipeline.reconfigure(strict)
    assert pipeline.config == strict
    steps, _ = feed(pipeline, scans[34:38])
    assert any(step.keyframe_query.candidates for step in steps)
    assert all(len(step.keyframe_query.matches) <= 1 for step in steps)
    assert all(step.result.verified is None for step in steps)
    pipeline.reconfigure(CONFIG)
    steps, _ = feed(pipeline, scans[38:FIRST])
    pipeline.close()
    assert max(len(step.keyframe_query.matches) for step in steps) > 1
    assert any(step.result.verified is not None for step in steps)


def test_fixed_settings_cannot_change_at_run_time(extractor):
    pipeline = Pipeline(CONFIG, extractor)
    submaps = replace(CONFIG, keyframes=replace(CONFIG.keyframes, submap_m=10.0))
    with pytest.raises(ConfigError, match='submap_m'):
        pipeline.reconfigure(submaps)
    assert pipeline.config == CONFIG
    pipeline.close()


def test_a_new_session_is_relocalized_in_a_saved_map(scans, extractor, simulation, tmp_path):
    first = Pipeline(CONFIG, extractor)
    feed(first, scans[:32])
    first.database.save(tmp_path / 'saved.map')
    first.close()
    saved = PlaceDatabase.load(
        tmp_path / 'saved.map',
        CONFIG.database,
        fingerprint=extractor.fingerprint,
    )
    T_other_odom = pose_from_euler([40.0, 7.0, 0.0], [0.0, 0.0, 2.0])
    again = [replace(s, T_odom_sensor=T_other_odom @ s.T_odom_sensor) for s in scans[32:FIRST]]
    steps, _ = drive(again, extractor, database=saved)
    assert {step.keyframe_query.keyframe.session for step in steps} == {'robot (2)'}
    T = simulation.T_world_sensor  # keyframe ids continue after those of the map
    loops = loops_of(steps)
    assert len(loops) >= 3
    assert all(loop.match_id < 32 for loop in loops)
    assert_correct(loops, T)


def test_loops_are_found_without_odometry(scans, extractor, simulation):
    config = replace(
        CONFIG,
        keyframes=KeyframeConfig(distance_m=0.0, interval_s=0.01),
        database=replace(CONFIG.database, exclude_keyframes=20),
        belief=BeliefConfig(trust=0.9),  # a single look, by a network without calibration
    )
    without_odometry = [replace(scan, T_odom_sensor=None) for scan in scans[:FIRST]]
    steps, errors = drive(without_odometry, extractor, config)
    assert errors == []
    T = simulation.T_world_sensor
    loops = loops_of(steps)
    assert len(loops) >= 3
    assert_correct(loops, T)


def test_a_loop_that_contradicts_the_others_is_not_trusted(pipeline, driven):
    """The clouds show the same place, but odometry says that the query was 8 m away."""
    found = loops_of(driven)[-1]
    query, match = pipeline.database[found.query_id], pipeline.database[found.match_id]

    def keyframe_query(shift_m):
        T = query.T_odom_sensor @ pose_from_euler([shift_m, 0.0, 0.0], [0.0, 0.0, 0.0])
        moved = replace(query, id=query.id + 1000, T_odom_sensor=T)
        candidate = Candidate(Match(match.id, 0.1, 0.9), 2)
        return KeyframeQuery(moved, (candidate.match,), (candidate,), (match,))

    inconsistent = pipeline.loop_closer.verify_candidates(keyframe_query(8.0))
    assert inconsistent.verified is not None
    assert inconsistent.trusted == ()
    consistent = pipeline.loop_closer.verify_candidates(keyframe_query(0.0))
    assert len(consistent.trusted) == 1
