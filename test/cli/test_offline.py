"""The offline command on a small drive that returns to its start."""

import csv
from dataclasses import replace
import errno
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

from loop_tables import read_loops
import numpy as np
import pytest
from toy_graphs import read_g2o
from toy_recordings import MESSAGES, write_messages

from lpr_ros.cli import offline
from lpr_ros.core.config import override
from lpr_ros.core.database.place_database import DatabaseConfig, PlaceDatabase
from lpr_ros.core.errors import DatasetError
from lpr_ros.core.geometry.odometry_jumps import OdometrySegment
from lpr_ros.core.geometry.se3 import invert
from lpr_ros.core.geometry.trajectory import Trajectory
from lpr_ros.core.io.pose_files import read_kitti_poses, read_tum, write_tum
from lpr_ros.core.loop_closure.worker_process import VerificationProcess
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.offline import evaluation, run
from lpr_ros.core.offline.evaluation import evaluate_drive
from lpr_ros.core.offline.export import (
    CORRECTED,
    GRAPH,
    ODOMETRY,
    drive_writers,
    write_files,
)
from lpr_ros.core.offline.result import DriveResult
from lpr_ros.core.offline.run import run_offline
from lpr_ros.core.offline.summary import summarize
from lpr_ros.core.pipeline import Pipeline, PipelineConfig
from lpr_ros.core.pose_graph.optimizer import PoseGraphOptimizer
from lpr_ros.core.recordings.base import (
    DriveTable,
    Recording,
    RecordingOptions,
    unknown_poses,
)
from lpr_ros.core.recordings.open import open_recording
from lpr_ros.core.resources import default_weights
from lpr_ros.report import page as report
from lpr_ros.report.page import report_page
from lpr_training.datasets.bag_writer import write_bag
from lpr_training.datasets.kitti import write_kitti
from lpr_training.simulator import (
    OdometryConfig,
    SimulationConfig,
    load_sensor,
    make_drive,
    make_world,
    simulate_drive,
)
from lpr_training.simulator.world.recorded_route import trajectory_from

ROOT = Path(__file__).resolve().parents[2]
RADIUS_M = 17.0
SETTINGS = {
    'keyframes.distance_m': 3.0,
    'database.exclude_s': 5.0,
    'database.exclude_m': 60.0,
    'max_candidates': 1,
    'odometry_noise.position_fraction': 0.03,
    'odometry_noise.heading_deg': 3.0,
}
CONFIG = override(PipelineConfig(), SETTINGS)
ARGUMENTS = ['--quiet', '--device', 'cpu', '--set', *(f'{k}={v}' for k, v in SETTINGS.items())]
FILES = {
    'loops.csv', 'keyframes.csv', 'timings.csv', 'map.lpr', 'graph.g2o', 'summary.json',
    *(f'trajectory_{name}.{kind}' for name in ('odometry', 'corrected', 'truth')
      for kind in ('tum', 'kitti')),
    'report.html', 'report.png',
}  # fmt: skip


@pytest.fixture(scope='module')
def scans():
    """A lap and a quarter on a circle, with heading drift."""
    angle = np.linspace(0.0, 2.5 * np.pi, 400)
    circle = RADIUS_M * np.stack([np.sin(angle), 1.0 - np.cos(angle), 0.0 * angle], axis=1)
    world = make_world('suburb', 31, trajectory=trajectory_from(circle, 'circle'))
    odometry = OdometryConfig(heading_bias_deg=8.0, position_walk_m=0.3)
    config = SimulationConfig(spacing_m=1.5, traffic_per_km=0.0, odometry=odometry, workers=1)
    sensor = replace(load_sensor('hdl32'), columns=720)
    return list(simulate_drive(world, sensor, make_drive(world), config, seed=31))


@pytest.fixture(scope='module')
def bag(scans, tmp_path_factory):
    path = tmp_path_factory.mktemp('bag') / 'circle'
    write_bag(path, scans)
    return path


@pytest.fixture(scope='module')
def extractor():
    return NetworkDescriptorExtractor.load(default_weights(), device='cpu')


@pytest.fixture(scope='module')
def finished(bag, tmp_path_factory):
    """The output folder of the command, and the result that it was written from."""
    folder = tmp_path_factory.mktemp('out') / 'circle'
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            run, 'run_offline', lambda *a, **k: results.append(run_offline(*a, **k)) or results[0]
        )
        assert offline.main([str(bag), '--out', str(folder), *ARGUMENTS]) == 0
    return SimpleNamespace(out=folder, result=results[0])


@pytest.fixture(scope='module')
def out(finished):
    return finished.out


def test_the_output_folder_has_all_files_and_nothing_else(out):
    assert {path.name for path in out.iterdir()} == FILES
    assert [path.name for path in out.parent.iterdir()] == ['circle']


def test_loops_equal_those_of_the_pipeline(out, scans, extractor, tmp_path):
    """Scans added one by one, as in the node, and read from KITTI files."""
    write_kitti(tmp_path, '00', scans)
    stamps = np.array([s.stamp_ns for s in scans])
    write_tum(tmp_path / 'odom', Trajectory(stamps, np.stack([s.T_odom_sensor for s in scans])))
    source = open_recording(tmp_path / 'sequences/00', RecordingOptions(poses=tmp_path / 'odom'))
    pipeline = Pipeline(CONFIG, extractor)
    expected = []
    for recorded in source:
        step = pipeline.add(recorded.scan)
        expected += [] if step is None else step.result.trusted
    loops = read_loops(out / 'loops.csv')
    assert len(loops) == len(expected) >= 3
    for read, true in zip(loops, expected, strict=True):
        assert (read.query_id, read.match_id) == (true.query_id, true.match_id)
        assert read.inliers == pytest.approx(true.inliers, rel=0.02)
        np.testing.assert_allclose(read.T_match_query, true.T_match_query, atol=1e-3)
        np.testing.assert_allclose(read.covariance, true.covariance, rtol=0.05, atol=1e-6)
        assert read.match.distance == pytest.approx(true.match.distance, abs=1e-3)


def test_map_graph_and_trajectories_can_be_read(out, extractor):
    database = PlaceDatabase.load(
        out / 'map.lpr', DatabaseConfig(), fingerprint=extractor.fingerprint
    )
    assert database.sessions == ('circle',)
    graph = read_g2o(out / 'graph.g2o')
    assert sorted(graph.poses) == list(range(len(database)))
    loops = [(e.to_id, e.from_id) for e in graph.edges if e.is_loop]
    assert loops == [(x.query_id, x.match_id) for x in read_loops(out / 'loops.csv')]
    odometry = read_tum(out / 'trajectory_odometry.tum')
    corrected = read_tum(out / 'trajectory_corrected.tum')
    for i in range(len(database)):
        place = database.place(i)
        np.testing.assert_allclose(odometry.at(place.stamp_ns), place.T_odom_sensor, atol=1e-9)
        np.testing.assert_allclose(corrected.at(place.stamp_ns), graph.poses[i], atol=1e-9)
    with (out / 'keyframes.csv').open(newline='') as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row['id']) for row in rows] == list(range(len(database)))
    assert float(rows[5]['corrected_x']) == pytest.approx(graph.poses[5][0, 3])


@pytest.mark.parametrize('name', ['odometry', 'corrected', 'truth'])
def test_kitti_trajectories_equal_the_tum_ones_row_by_row(out, name):
    tum = read_tum(out / f'trajectory_{name}.tum')
    kitti = read_kitti_poses(out / f'trajectory_{name}.kitti')
    np.testing.assert_allclose(kitti, tum.T, atol=1e-9)


@pytest.mark.parametrize('kind', ['tum', 'kitti'])
@pytest.mark.parametrize('name', ['odometry', 'corrected'])
def test_the_trajectory_error_is_that_of_evo(out, name, kind):
    """As `evo_ape KIND trajectory_truth.KIND trajectory_NAME.KIND --align` prints it."""
    pytest.importorskip('evo', reason='evo is not installed (pip install .[dev])')
    from evo.core import metrics, sync
    from evo.tools import file_interface

    read = getattr(
        file_interface,
        {'tum': 'read_tum_trajectory_file', 'kitti': 'read_kitti_poses_file'}[kind],
    )
    truth, estimate = (read(str(out / f'trajectory_{each}.{kind}')) for each in ('truth', name))
    if kind == 'tum':
        truth, estimate = sync.associate_trajectories(truth, estimate)
    estimate.align(truth, correct_scale=False)
    error = metrics.APE(metrics.PoseRelation.translation_part)
    error.process_data((truth, estimate))
    summary = json.loads((out / 'summary.json').read_text())
    assert truth.num_poses == summary['keyframes']
    expected = error.get_statistic(metrics.StatisticsType.rmse)
    assert summary[f'ate_{name}_m'] == pytest.approx(expected, abs=1e-6)


def test_loops_are_correct_and_reduce_the_trajectory_error(out):
    summary = json.loads((out / 'summary.json').read_text())
    assert summary['precision'] == 1.0
    assert summary['recall'] >= summary['recall_each'] > 0.3
    assert summary['pose_error_median_m'] < 0.2
    assert summary['ate_corrected_m'] < 0.5 * summary['ate_odometry_m']
    assert summary['loop_gap_corrected_m'] < summary['loop_gap_odometry_m']
    assert summary['dropped'] == {}
    assert 'CC BY-NC-SA' in summary['checkpoint']['licence']


def parse(page):
    return ElementTree.fromstring(page.removeprefix('<!DOCTYPE html>'))


def test_the_report_is_well_formed_and_self_contained(out):
    page = (out / 'report.html').read_text(encoding='utf-8')
    root = parse(page)
    sections = {node.get('id') for node in root.iter('section')}
    expected = {'map', 'drive', 'time', 'matrix', 'pairs', 'truth', 'probability', 'timings'}
    assert expected <= sections
    drawn = list(root.iter('{http://www.w3.org/2000/svg}svg'))
    assert len(drawn) == len(expected)
    ids = [node.get('id') for node in root.iter() if node.get('id')]
    assert len(ids) == len(set(ids))
    links = [v for node in root.iter() for k, v in node.attrib.items() if k.split('}')[-1] in
             ('href', 'src')]  # fmt: skip
    assert links
    assert all(link.startswith(('#', 'data:image/png;base64,')) for link in links)
    assert {link[1:] for link in links if link[0] == '#'} <= set(ids)
    style = root.find('head/style').text
    assert '@import' not in style
    assert 'url(' not in style
    assert 'prefers-color-scheme: dark' in style
    assert not [role for role in ('010101', '050505', '090909') if f'#{role}' in page]
    assert (out / 'report.png').read_bytes()[:4] == b'\x89PNG'


def test_a_report_can_be_made_from_map_and_loops_alone(out, extractor):
    """As the demo does with the output of the node."""
    database = PlaceDatabase.load(
        out / 'map.lpr', DatabaseConfig(), fingerprint=extractor.fingerprint
    )
    recorded = DriveResult('recorded', database, tuple(read_loops(out / 'loops.csv')))
    sections = {node.get('id') for node in parse(report_page(recorded, None)).iter('section')}
    assert {'matrix', 'pairs'} <= sections
    assert 'truth' not in sections


def test_a_drive_relocalizes_in_an_existing_map(out, bag, extractor):
    """Its odometry frame differs from that of the map."""
    source = open_recording(bag)
    shift = np.eye(4)
    shift[:3, 3] = 500.0, -300.0, 0.0
    source.T_odom_sensor = shift @ source.T_odom_sensor
    stop = Countdown(45)
    found = run_offline(
        source, extractor, CONFIG, session='again', old_map=out / 'map.lpr',
        should_stop=stop,
    )  # fmt: skip
    assert found.database.sessions == ('circle', 'again')
    relocalized = [loop for loop in found.loops if loop.match_id < found.first_id]
    assert len(relocalized) >= 3
    newest, poses = max(found.correction.poses), found.correction.poses
    twin = newest - found.first_id  # the same scan, in the old map
    gap = invert(poses[twin]) @ poses[newest]
    assert np.linalg.norm(gap[:3, 3]) < 1.0  # and not 583 m
    page = report_page(found, evaluate_drive(found))
    assert f'match the existing map of {found.first_id} keyframes' in page


def test_retracted_loops_are_in_no_trajectory_and_no_graph(
    bag, extractor, finished, monkeypatch, tmp_path
):
    """The result equals that of a drive in which they were never found."""
    verify, found, done = Pipeline.verify, [], []

    def verify_and_retract(self, keyframe_query):
        result = verify(self, keyframe_query)
        found.extend(result.trusted)
        is_time = result.trusted and len(found) >= 3 and not done
        done.extend([True] if is_time else [])
        return replace(result, retracted=(found[0],)) if is_time else result

    monkeypatch.setattr(Pipeline, 'verify', verify_and_retract)
    result = run_offline(open_recording(bag), extractor, CONFIG)
    first, *others = finished.result.loops
    assert [ends(loop) for loop in result.retracted] == [ends(first)]
    assert [ends(loop) for loop in result.loops] == [ends(loop) for loop in others]
    expected = run.correct(result.database, result.loops, noise=CONFIG.odometry_noise)
    for i, T in result.correction.poses.items():
        np.testing.assert_allclose(T, expected.poses[i], atol=1e-6)
    write_files(tmp_path, drive_writers(result, evaluate_drive(result)))
    edges = [(e.to_id, e.from_id) for e in read_g2o(tmp_path / 'graph.g2o').edges if e.is_loop]
    assert edges == [ends(loop) for loop in others]
    page = report_page(result, evaluate_drive(result))
    assert '1 loop closure was published and retracted later' in page
    assert 'retracted (1)' in page  # the legend of the figure


def test_a_new_session_is_logged_and_reported_with_its_reason(bag, extractor, caplog):
    source = open_recording(bag)
    segment = OdometrySegment(1, 'odometry jump of 99.0 m between 1 ns and 2 ns')
    source.segments = [source.segments[0]] * 9 + [segment] * (len(source) - 9)
    result = run_offline(source, extractor, CONFIG, should_stop=Countdown(15))
    assert result.sessions == {'circle': 'first scan', 'circle (2)': segment.reason}
    assert f"session 'circle (2)' starts: {segment.reason}" in caplog.text
    assert f'New sessions: circle (2) ({segment.reason})' in report_page(result, None)


@pytest.fixture(scope='module')
def clouds_only(scans, tmp_path_factory):
    """The drive as a bag of thinner clouds, with ground truth to judge by."""
    path = tmp_path_factory.mktemp('clouds') / 'clouds'
    rows = []
    for full in scans:
        every = {n: getattr(full, n)[::3] for n in ('points', 'intensity', 'ring', 'time_s')}
        scan = replace(full, **every)
        truth = MESSAGES.odometry(scan.stamp_ns, 'world', scan.T_world_sensor)
        rows += [('/ground_truth', scan.stamp_ns, truth)]
        rows += [('/points', scan.stamp_ns, MESSAGES.cloud(scan))]
    return write_messages(path, rows)


def test_clouds_alone_give_trajectory_and_loops(clouds_only, extractor):
    source = open_recording(clouds_only)
    assert not source.has_odometry
    result = run_offline(source, extractor, CONFIG, use_lidar_odometry=True)
    summary = summarize(result, evaluate_drive(result))
    assert summary['sources']['odometry'] == 'LiDAR odometry'
    assert summary['loops'] >= 3
    assert summary['precision'] == 1.0
    assert summary['ate_odometry_m'] < 1.0
    assert summary['ate_corrected_m'] < 0.3
    assert summary['sessions'] == {'clouds': 'first scan'}
    assert summary['dropped'] == {}
    assert {ODOMETRY, CORRECTED, GRAPH} <= set(drive_writers(result, None))


@pytest.mark.parametrize(
    ('odometry', 'has_odometry', 'expected'),
    [
        ('auto', True, False),
        ('auto', False, True),
        ('lidar', True, True),
        ('recorded', False, False),
        ('/odometry', True, False),
    ],
)
def test_lidar_odometry_is_used_on_request_or_if_there_is_no_other(
    bag, clouds_only, tmp_path, monkeypatch, odometry, has_odometry, expected
):
    def run_offline(source, *arguments, use_lidar_odometry, **options):
        used.append((use_lidar_odometry, source.about['odometry']))
        raise DatasetError('far enough')

    used = []
    monkeypatch.setattr(run, 'run_offline', run_offline)
    recording = bag if has_odometry else clouds_only
    arguments = [str(recording), '--out', str(tmp_path / 'out'), '--odometry', odometry, '--quiet']
    assert offline.main(arguments) == 1
    recorded = '/odometry' if has_odometry and odometry != 'lidar' else ''
    assert used == [(expected, recorded)]


def test_a_drive_whose_lidar_odometry_is_lost_continues_in_a_new_session(scans, extractor):
    """As after a gap in the recording: the second half is elsewhere."""
    recording = Clouds([*scans[:6], *scans[40:46]])
    result = run_offline(recording, extractor, CONFIG, use_lidar_odometry=True)
    assert list(result.sessions) == ['clouds', 'clouds (2)']
    assert 'LiDAR odometry lost' in result.sessions['clouds (2)']
    assert result.scans == 12
    assert not result.drops


def test_scans_that_lidar_odometry_cannot_use_are_counted(scans, extractor, caplog):
    far = replace(scans[2], points=np.full((90, 3), 900.0, np.float32))
    recording = Clouds([scans[0], scans[1], far, scans[3]])
    config = override(CONFIG, {'lidar_odometry.min_constraint': 0.33})
    result = run_offline(recording, extractor, config, use_lidar_odometry=True)
    assert {kind: len(texts) for kind, texts in result.drops.items()} == {'few_points': 1}
    assert 'scan 2: LiDAR odometry needs 50 points' in result.drops['few_points'][0]
    assert '3 scans with uncertain poses, first: scan 0: LiDAR odometry is degenerate' in (
        caplog.text
    )


class Clouds(Recording):
    """Scans without odometry."""

    description = 'scans'

    def __init__(self, scans):
        self._scans = scans
        stamps = np.array([scan.stamp_ns for scan in scans])
        super().__init__('clouds', DriveTable(stamps, *[unknown_poses(len(scans))] * 2))

    @classmethod
    def matches(cls, path):
        return False

    def points(self, index):
        return self._scans[index].points


class Countdown:
    """Stops a run after a number of scans."""

    def __init__(self, scans):
        self.left = scans

    def __call__(self):
        self.left -= 1
        return self.left < 0


def test_invalid_scans_are_counted_by_kind_and_listed(scans, extractor, tmp_path):
    few = scans[:14]
    write_kitti(tmp_path, '00', few)
    velodyne = tmp_path / 'sequences/00/velodyne'
    (velodyne / '000003.bin').write_bytes(b'cut')
    np.full((50, 4), 900.0, np.float32).tofile(velodyne / '000006.bin')  # out of range
    times = [s.stamp_ns for s in few]
    times[9] = times[8]
    (tmp_path / 'sequences/00/times.txt').write_text('\n'.join(f'{t / 1e9:.9f}' for t in times))
    source = open_recording(tmp_path / 'sequences/00')
    source.T_odom_sensor[11] = np.nan
    config = override(CONFIG, {'keyframes.distance_m': 0.5})
    found = run_offline(source, extractor, config)
    assert {kind: len(texts) for kind, texts in found.drops.items()} == {
        'unreadable': 1, 'cloud': 1, 'stamp': 1, 'odometry': 1,
    }  # fmt: skip
    assert (found.scans, len(found.places)) == (14, 10)
    page = report_page(found, evaluate_drive(found))
    assert '000003.bin' in page
    assert 'scan 11: no odometry' in page
    assert 'No loop closures: no keyframe had an earlier one to match' in page


class DiesOnce(VerificationProcess):
    """Is killed at the first candidate."""

    killed = 0

    def verify(self, *arguments, **options):
        if not self.killed:
            self.killed = self.pid
            os.kill(self.pid, signal.SIGKILL)
        return super().verify(*arguments, **options)


def test_a_killed_verifier_costs_the_loops_of_one_keyframe(out, bag, extractor, monkeypatch):
    """It is replaced, and no child outlives the run."""
    pids, others = [], children()
    monkeypatch.setattr(run, 'VerificationProcess', DiesOnce)
    found = run_offline(
        open_recording(bag), extractor, CONFIG, on_scan=lambda progress: pids.append(children())
    )
    (reason,) = found.drops['verification']
    first = next(o for o in found.outcomes if o.candidates)
    assert reason.startswith(
        f'keyframe {first.query_id}: the verification process ended with status -9'
    )
    assert first.verified is None
    assert len(found.outcomes) == len(found.places)
    expected = [ends(loop) for loop in read_loops(out / 'loops.csv')]
    assert len(expected) >= 3
    assert [ends(loop) for loop in found.loops] == [
        (query, match) for query, match in expected if query != first.query_id
    ]
    assert '1 scan got no loop closures because verification failed' in report_page(
        found, evaluate_drive(found)
    )
    assert len(pids[0] - others) == 1
    assert not (set().union(*pids) - others) & children()


def children():
    """Return the running child processes."""
    text = Path(f'/proc/self/task/{os.getpid()}/children').read_text()
    return {int(pid) for pid in text.split()}


def ends(loop):
    return loop.query_id, loop.match_id


def test_ctrl_c_stops_the_drive_and_writes_the_results_so_far(bag, tmp_path):
    code = (
        'import os, signal, sys; from lpr_ros.cli import offline; '
        'from lpr_ros.core.offline import run; add = run.Progress.add\n'
        'def interrupting(self, recorded, step):\n'
        '    add(self, recorded, step)\n'
        '    if len(self.outcomes) == 4: os.kill(os.getpid(), signal.SIGINT)\n'
        'run.Progress.add = interrupting\n'
        'sys.exit(offline.main(sys.argv[1:]))\n'
    )
    command = [sys.executable, '-c', code, str(bag), '--out', str(tmp_path / 'out'), *ARGUMENTS]
    environment = {**os.environ, 'PYTHONPATH': f'{ROOT}:{ROOT / "training"}'}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == offline.INTERRUPTED, done.stderr
    assert {path.name for path in (tmp_path / 'out').iterdir()} == FILES
    summary = json.loads((tmp_path / 'out/summary.json').read_text())
    assert (summary['interrupted'], summary['keyframes']) == (True, 4)
    assert 'interrupted: these are the results so far' in done.stdout
    assert 'press Ctrl-C again' in done.stderr
    assert 'The run was interrupted' in (tmp_path / 'out/report.html').read_text()


@pytest.fixture
def interruptible():
    """Shells ignore SIGINT in background processes, and so in tests run there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures('interruptible')
def test_a_second_ctrl_c_stops_at_once_and_writes_nothing(bag, tmp_path, capsys, monkeypatch):
    def interrupt_twice(self, recorded, step):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    before = children()
    monkeypatch.setattr(run.Progress, 'add', interrupt_twice)
    arguments = [str(bag), '--out', str(tmp_path / 'out'), *ARGUMENTS]
    assert offline.main(arguments) == offline.INTERRUPTED
    assert 'interrupted: nothing was written' in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()
    assert children() == before


@pytest.mark.parametrize(
    ('arguments', 'expected'),
    [
        (['nothing'], 'nothing: no such file or folder'),
        (['{bag}', '--points', '/cloud'], 'expected /cloud to be one of the PointCloud2 topics'),
        (['{bag}', '--truth', '/truth'], 'expected /truth to be a pose topic or a pose file'),
        (['{bag}', '--weights', 'no.safetensors'], "weights 'no.safetensors': no such file"),
        (['{bag}', '--map', 'no.lpr'], 'no.lpr: cannot be read'),
        (['{bag}', '--set', 'keyframes.meters=1'], "unknown key 'keyframes.meters'"),
        (['{bag}', '--config', 'no.yaml'], 'no.yaml: cannot be read'),
        (['{bag}', '--extrinsic', *'0000000'], 'expected a unit quaternion'),
    ],
)
def test_errors_name_the_value_and_the_expectation(
    bag, tmp_path, capsys, monkeypatch, arguments, expected
):
    monkeypatch.chdir(tmp_path)
    filled = [text.format(bag=bag) for text in arguments]
    assert offline.main([*filled, '--out', 'out', '--quiet']) == 1
    assert expected in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()


def test_existing_results_are_not_overwritten(out, bag, capsys):
    assert offline.main([str(bag), '--out', str(out), '--quiet']) == 1
    assert 'already exists' in capsys.readouterr().err


@pytest.fixture
def command(bag, finished, monkeypatch):
    """Run the command to an output folder, with the drive replaced by its known result."""
    monkeypatch.setattr(finished, 'result', finished.result)  # restored if a test replaces it
    drives = []
    monkeypatch.setattr(report, 'draw_figures', lambda *arguments: {})  # to save time
    monkeypatch.setattr(report, 'summary_picture', lambda *arguments: None)
    monkeypatch.setattr(report, 'to_png', lambda figure: b'picture')

    def main(out, *, during_drive=lambda: None):
        def known_result(*arguments, **options):
            drives.append(options)
            during_drive()
            return finished.result

        monkeypatch.setattr(run, 'run_offline', known_result)
        return offline.main([str(bag), '--out', str(out), *ARGUMENTS])

    main.drives = drives
    return main


@pytest.mark.parametrize('name', ['file/out', 'x' * 256])
def test_an_impossible_output_folder_fails_before_the_drive(command, tmp_path, name):
    (tmp_path / 'file').touch()
    assert command(tmp_path / name) == 1
    assert command.drives == []
    assert [path.name for path in tmp_path.iterdir()] == ['file']


def test_a_full_disk_fails_before_the_drive(command, tmp_path, capsys, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, 'posix_fallocate', full)
    assert command(tmp_path / 'out') == 1
    assert re.search(r'expected \d+ MiB of free disk space', capsys.readouterr().err)
    assert command.drives == []
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_is_not_utf8_is_written(command, tmp_path, capsys):
    out = Path(os.fsdecode(os.fsencode(tmp_path) + b'/\xff'))
    assert command(out) == 0
    assert {path.name for path in out.iterdir()} == FILES
    assert '\\udcff' in capsys.readouterr().out


def test_a_session_that_is_not_utf8_is_an_error(bag, tmp_path, capsys):
    arguments = [str(bag), '--out', str(tmp_path / 'out'), '--session', '\udcff']
    assert offline.main(arguments) == 1
    assert 'expected UTF-8 text' in capsys.readouterr().err


def test_a_failure_of_the_report_keeps_the_tables(command, tmp_path, capsys, monkeypatch):
    def broken(*arguments):
        raise RuntimeError('no such figure')

    monkeypatch.setattr(report, 'report_page', broken)
    assert command(tmp_path / 'out') == 1
    assert {path.name for path in (tmp_path / 'out').iterdir()} == FILES - {'report.html'}
    assert len(read_loops(tmp_path / 'out/loops.csv')) >= 3
    assert 'report.html was not written: RuntimeError: no such figure' in capsys.readouterr().err


def test_a_failed_optimization_keeps_everything_else(bag, tmp_path, capsys, monkeypatch):
    """The solver raises on singular systems, after hours of driving."""

    def singular(optimizer):
        raise RuntimeError('Indeterminate linear system')

    monkeypatch.setattr(PoseGraphOptimizer, 'optimize_robust', singular)
    out = tmp_path / 'out'
    assert offline.main([str(bag), '--out', str(out), *ARGUMENTS]) == 1
    corrected = {'trajectory_corrected.tum', 'trajectory_corrected.kitti'}
    missing = {'graph.g2o', 'report.png'} | corrected
    assert {path.name for path in out.iterdir()} == FILES - missing
    assert len(read_loops(out / 'loops.csv')) >= 3
    reason = 'pose graph not optimized: RuntimeError: Indeterminate linear system'
    assert f'graph.g2o was not written: {reason}' in capsys.readouterr().err
    assert reason in (out / 'report.html').read_text()


def test_a_disk_that_fills_up_later_leaves_no_half_results(command, tmp_path, capsys, monkeypatch):
    def full(self, path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(PlaceDatabase, 'save', full)
    assert command(tmp_path / 'out') == 1
    assert {path.name for path in (tmp_path / 'out').iterdir()} == FILES - {'map.lpr'}
    assert 'No space left on device' in capsys.readouterr().err


@pytest.mark.usefixtures('interruptible')
@pytest.mark.parametrize('moment', ['drive', 'evaluation', 'report', 'rename'])
def test_ctrl_c_after_the_last_scan_still_writes_the_results(
    command, tmp_path, monkeypatch, moment
):
    interrupts = []

    def interrupt():
        if not interrupts:
            interrupts.append(signal.raise_signal(signal.SIGINT))

    def interrupting(owner, name):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: interrupt() or original(*a, **k))

    if moment == 'evaluation':
        interrupting(evaluation, 'evaluate_drive')
    elif moment == 'report':
        interrupting(report, 'report_page')
    elif moment == 'rename':  # of the output folder, which is the very last step
        out = tmp_path / 'out'

        def replace(path, target):
            if target == out:
                interrupt()
            os.replace(path, target)

        monkeypatch.setattr(Path, 'replace', replace)
    during_drive = interrupt if moment == 'drive' else lambda: None
    assert command(tmp_path / 'out', during_drive=during_drive) == 0
    assert interrupts == [None]
    assert {path.name for path in (tmp_path / 'out').iterdir()} == FILES


def test_error_texts_of_files_that_are_not_utf8_can_be_written(command, finished, tmp_path):
    name = os.fsdecode(b'scan_\xff.bin')
    drops = {'unreadable': (str(DatasetError(f'{name}: too short')), name)}
    finished.result = replace(finished.result, drops=drops, about={'folder': name})
    assert command(tmp_path / 'out') == 0
    page = (tmp_path / 'out/report.html').read_text(encoding='utf-8')
    assert page.count('scan_\\udcff.bin') == 3
    json.loads((tmp_path / 'out/summary.json').read_text(encoding='utf-8'))


@pytest.mark.usefixtures('interruptible')
def test_a_second_ctrl_c_while_writing_discards_the_results(command, tmp_path, monkeypatch):
    def interrupt_twice(*arguments):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(report, 'report_page', interrupt_twice)
    assert command(tmp_path / 'out') == offline.INTERRUPTED
    assert list(tmp_path.iterdir()) == []
