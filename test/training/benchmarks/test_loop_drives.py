"""The drives of the loop benchmark: names, sessions, stages, retrieval, and the cache."""

from dataclasses import replace

import numpy as np
import pytest
from toy_graphs import LAP, keyframe, laps, loop_closure

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry.se3 import invert, pose_from_euler
from lpr_ros.core.pipeline import PipelineConfig, Step
from lpr_ros.core.types import Candidate, KeyframeQuery, Match, Scan, VerificationResult
from lpr_training.benchmarks.loops import peers
from lpr_training.benchmarks.loops.drives import (
    GROUPS,
    available,
    draws_of,
    drive_names,
    load_drive,
)
from lpr_training.benchmarks.loops.metrics import drive_result, revisits
from lpr_training.benchmarks.loops.real import every
from lpr_training.benchmarks.loops.recorded_drive import RecordedDrive, join_sessions
from lpr_training.benchmarks.loops.recorder import Recorder
from lpr_training.benchmarks.loops.retrieval import published_descriptors, retrieval_metrics
from lpr_training.benchmarks.loops.run import run_drive
from lpr_training.benchmarks.loops.simulated import WHEELS, WHEELS_NOISE, moved_furniture
from lpr_training.benchmarks.loops.stages import published_loops, stage_metrics
from lpr_training.datasets.kitti_bev import CENTER, PREFIX, SCAN_PERIOD_NS, SIDE
from lpr_training.simulator import Simulation, make_drive, make_world

COUNT = 300  # keyframes 2 m apart: the last 100 revisit the first 100
NO_POINTS = np.zeros((0, 3), np.float32)


@pytest.fixture
def drive():
    T = laps(COUNT)
    scans = [Scan(NO_POINTS, i * SCAN_PERIOD_NS * 3, invert(T[0]) @ pose) for i, pose in
             enumerate(T)]  # fmt: skip
    return RecordedDrive('laps', scans, T)


class MeanPoint:
    """Describes a cloud by the mean of its points."""

    dim, fingerprint = 3, 'mean point'

    def describe(self, points):
        return points.mean(axis=0)


def test_the_sessions_of_a_drive_are_sessions_of_the_pipeline():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2, 5, 100, 3)).astype(np.float32)
    days = [
        RecordedDrive('day', [Scan(p, i * 10**9, T) for i, (p, T) in enumerate(zip(clouds, poses,
            strict=True))], poses)
        for clouds, poses in zip(points, (laps(5), laps(5)), strict=True)
    ]  # fmt: skip
    driven = run_drive(join_sessions(days), MeanPoint(), PipelineConfig())
    sessions = [s.keyframe_query.keyframe.session for s in driven.steps]
    assert [sessions.count(name) for name in dict.fromkeys(sessions)] == [5, 5]


def true_loop(drive, query):
    T = drive.T_world_sensor
    return loop_closure(query - LAP, query, invert(T[query - LAP]) @ T[query])


def moved(loop, by_m):
    T = loop.T_match_query @ pose_from_euler([by_m, 0.0, 0.0], [0.0, 0.0, 0.0])
    return replace(loop, T_match_query=T)


def step(drive, query, *, first=None, candidates=(), **result):
    """Return the outcome of a keyframe: the nearest match, the candidates and the result."""
    matches = () if first is None else (Match(first, 0.1, 0.9),)
    tried = tuple(Candidate(Match(c, 0.1, 0.9), 2) for c in candidates)
    place = keyframe(query, drive.scans[query].T_odom_sensor)
    return Step(KeyframeQuery(place, matches, tried, ()), VerificationResult(query, **result))


def test_every_drive_belongs_to_one_group():
    names = drive_names()
    assert len(names) == len(set(names)) == sum(map(len, GROUPS.values()))
    assert {'kitti 00', 'kitti 05', 'balm'} == set(GROUPS['real'])
    assert {'avenues', 'garage', 'car_park wheels told'} < set(GROUPS['adversarial'])


def test_kitti_drives_have_five_draws_and_others_one():
    assert [draws_of(name) for name in ('kitti 00', 'kitti 05', 'balm', 'garage')] == [5, 5, 1, 1]


def test_real_drives_without_files_are_left_out(tmp_path):
    assert available(['garage', 'kitti 00', 'balm'], tmp_path) == ['garage']


def test_an_unknown_drive_is_rejected_before_anything_runs(tmp_path):
    with pytest.raises(DatasetError, match='kitti 99'):
        available(['garage', 'kitti 99'], tmp_path)


def test_draws_of_a_kitti_drive_share_scans_and_differ_in_odometry(tmp_path, rng):
    counts = np.zeros((30, SIDE, SIDE), np.uint8)
    counts[:, CENTER - 20 : CENTER + 20, CENTER + 8] = 10
    T = np.tile(np.eye(4)[:3], (30, 1, 1))
    T[:, 0, 3] = np.arange(30.0)
    np.savez(tmp_path / f'{PREFIX}00.npz', counts=counts, T_world_sensor=T)
    one, same, two = (load_drive('kitti 00', tmp_path, draw=draw) for draw in (1, 1, 2))
    assert (one.name, two.name, len(one.scans)) == ('kitti 00 #1', 'kitti 00 #2', 15)
    assert np.array_equal(one.scans[7].points, two.scans[7].points)
    assert np.array_equal(one.T_odom_sensor, same.T_odom_sensor)
    assert not np.array_equal(one.T_odom_sensor, two.T_odom_sensor)


def test_keyframes_are_at_least_the_spacing_apart():
    positions = np.array([[0.0], [1.5], [2.1], [4.0], [4.2], [9.0]])
    assert every(2.0, positions) == [0, 2, 4, 5]


def test_wheels_drift_twice_as_much_as_the_defaults_and_as_they_are_told():
    default = replace(WHEELS_NOISE, position_fraction=0.01, heading_deg=0.5, tilt_deg=0.2)
    assert default == type(default)()
    assert (WHEELS.heading_bias_deg, WHEELS.position_walk_m) == (1.0, 0.4)


def test_sessions_have_frames_of_their_own(drive, rng):
    both = join_sessions([drive, drive])
    assert both.session_starts == (0, COUNT)
    assert [both.session_of(i) for i in (0, COUNT - 1, COUNT)] == [0, 0, 1]
    odometry = both.draw_odometry(rng)
    assert np.array_equal(odometry[0], np.eye(4))
    assert np.array_equal(odometry[COUNT], np.eye(4))
    assert not any({COUNT - 1, COUNT} <= set(part) for part in peers.local_maps(both))


def test_every_keyframe_of_a_second_session_may_match_the_first(drive):
    both = join_sessions([drive, drive])
    assert revisits(both)[COUNT, 0]
    assert len(drive_result(both).database.sessions) == 2


def test_another_floor_is_no_revisit(drive):
    floor = drive.T_world_sensor[: LAP - 10]  # its end does not reach its start
    T = np.concatenate([floor, floor])
    T[len(floor) :, 2, 3] += 3.2
    scans = [Scan(NO_POINTS, i * 10**9, pose) for i, pose in enumerate(T)]
    floors = RecordedDrive('floors', scans, T)
    assert revisits(floors).any()
    assert not revisits(replace(floors, revisit_radius_m=3.0)).any()


def test_stages_count_each_revisit_where_it_gets_to(drive):
    first, second, third = (LAP + k for k in (10, 20, 30))
    right = true_loop(drive, second)
    steps = [
        step(drive, 50, first=3),  # no revisit: counts nowhere
        step(drive, first, first=first - LAP, candidates=[90]),
        step(drive, second, first=90, candidates=[second - LAP], verified=right, trusted=(right,)),
        step(
            drive,
            third,
            candidates=[third - LAP],
            rejected=(Candidate(Match(third - LAP, 0.1, 0.9), 2),),
        ),
    ]
    row = stage_metrics(drive, steps)
    names = ('first', 'candidate', 'tried', 'verified', 'published', 'wrong_ever')
    assert [row[name] for name in names] == [1, 2, 2, 1, 1, 0]
    assert row['revisits'] == revisits(drive).any(axis=1).sum()
    assert row['delay_median_m'] == 0.0


def test_a_loop_is_wrong_in_place_beyond_what_the_truth_can_tell(drive):
    loop = moved(true_loop(drive, LAP + 20), 3.0)
    steps = [step(drive, LAP + 20, verified=loop, trusted=(loop,))]
    assert stage_metrics(drive, steps)['wrong_at_end'] == 1
    coarse = replace(drive, max_place_error_m=10.0)
    row = stage_metrics(coarse, steps)
    assert (row['wrong_ever'], row['verified'], row['published']) == (0, 1, 1)


def test_a_retracted_loop_was_wrong_once_and_is_gone_at_the_end(drive):
    wrong = moved(true_loop(drive, LAP + 20), 30.0)
    late = true_loop(drive, LAP + 25)
    steps = [
        step(drive, LAP + 21, trusted=(wrong,)),
        step(drive, LAP + 30, trusted=(late,), retracted=(wrong,)),
    ]
    row = stage_metrics(drive, steps)
    assert [row[k] for k in ('wrong_ever', 'retracted', 'wrong_at_end', 'published')] == [
        1, 1, 0, 1,
    ]  # fmt: skip
    assert row['delay_median_m'] == pytest.approx(10.0, rel=0.01)  # five keyframes of 2 m
    assert published_loops(steps) == [late]


def test_a_loop_published_again_after_its_retraction_stands(drive):
    loop = true_loop(drive, LAP + 20)
    steps = [
        step(drive, LAP + 20, trusted=(loop,)),
        step(drive, LAP + 21, retracted=(loop,)),
        step(drive, LAP + 22, trusted=(loop,)),
    ]
    assert published_loops(steps) == [loop]
    assert stage_metrics(drive, steps)['retracted'] == 0


def test_descriptors_of_the_place_recall_every_revisit_and_random_ones_hardly_any(drive, rng):
    place = drive.T_world_sensor[:, :3, 3].astype(np.float32)
    assert retrieval_metrics(drive, place)['recall_at_1'] == 1.0
    noise = rng.standard_normal((COUNT, 8)).astype(np.float32)
    assert retrieval_metrics(drive, noise)['recall_at_1'] < 0.3


def test_published_descriptors_are_those_of_the_frames_of_the_drive(drive, tmp_path):
    path = tmp_path / 'descriptors.npz'
    frames = 3 * COUNT  # the drive has every third frame
    np.savez(path, desc_05=np.arange(frames, dtype=np.float16)[:, None])
    found = published_descriptors(path, '05', drive)
    np.testing.assert_array_equal(found[:, 0], np.arange(0, frames, 3, dtype=np.float16))
    np.savez(path, desc_05=np.zeros((frames - 3, 1), np.float16))
    with pytest.raises(DatasetError, match='desc_05'):
        published_descriptors(path, '05', drive)


def test_a_cached_drive_is_loaded_and_another_is_simulated(tmp_path, monkeypatch):
    world = make_world('car_park', 1, size_m=60.0)
    route = make_drive(world, 7.0, seed=1)
    fresh = Recorder(1).record(world, route, 'vlp16')
    first = Recorder(1, tmp_path).record(world, route, 'vlp16')
    scanned = []
    scan = Simulation.scan
    monkeypatch.setattr(Simulation, 'scan', lambda self, i: scanned.append(i) or scan(self, i))
    second = Recorder(1, tmp_path).record(world, route, 'vlp16', odometry=WHEELS)
    assert not scanned
    for a, b, c in zip(fresh.scans, first.scans, second.scans, strict=True):
        assert np.array_equal(a.points, b.points)
        assert np.array_equal(a.points, c.points)
        assert a.stamp_ns == c.stamp_ns
    assert not np.array_equal(first.T_odom_sensor, second.T_odom_sensor)
    Recorder(2, tmp_path).record(world, route, 'vlp16')
    assert scanned


def test_two_days_are_two_sessions_along_one_route():
    drive = moved_furniture(Recorder(2), length_m=9.0)
    assert drive.session_starts == (0, 5)
    assert drive.scans[5].stamp_ns - drive.scans[0].stamp_ns > 3600 * 10**9
    gap_m = np.linalg.norm(
        drive.T_world_sensor[:5, :2, 3] - drive.T_world_sensor[5:, :2, 3], axis=1
    )
    assert gap_m.max() < 3.0
    assert np.array_equal(drive.T_odom_sensor[5], np.eye(4))
