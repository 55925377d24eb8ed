"""Training runs: files, exact resume, gradients of chunks and processes, bad input."""

import csv
import errno
import json
import os
from pathlib import Path
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from toy_places import TINY_OXFORD, write_bev_file, write_drive, write_oxford_folder
from training_runs import BEV_YAML, OXFORD_YAML, ROOT, TINY_BEV, arguments, config_of

from lpr_ros.core.config import override, parse_assignments
from lpr_ros.core.model.calibration import Calibration
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.sparse import collate
from lpr_training.train import trainer
from lpr_training.train.config import TrainConfig
from lpr_training.train.data import open_training_data
from lpr_training.train.losses import build_loss
from lpr_training.train.run import _new_model
from lpr_training.train.run_folder import RunFolder
from lpr_training.train.state_file import read_state
from lpr_training.train.trainer import Trainer
import train


@pytest.fixture(scope='module')
def oxford(tmp_path_factory):
    return write_oxford_folder(tmp_path_factory.mktemp('oxford'))


@pytest.fixture(scope='module')
def bev(tmp_path_factory):
    return write_bev_file(tmp_path_factory.mktemp('bev') / 'kitti_bev_00.npz').parent


def losses(folder: Path) -> list[str]:
    """Return the loss of every epoch as text, for bitwise comparison."""
    with (folder / 'metrics.csv').open() as stream:
        return [row['loss'] for row in csv.DictReader(stream)]


@pytest.fixture(scope='module')
def finished_run(oxford, tmp_path_factory):
    """Three epochs without interruption."""
    out = tmp_path_factory.mktemp('runs') / 'finished'
    line = arguments(OXFORD_YAML, oxford, out, (*TINY_OXFORD, 'epochs=3'))
    assert train.main(line) == 0
    return out


def test_run_writes_all_files(finished_run):
    names = ('config.yaml', 'run.json', 'metrics.csv', 'curves.png', 'state.pt', 'tensorboard')
    assert all((finished_run / name).exists() for name in names)
    assert not list(finished_run.glob('.*'))
    checkpoint = load_checkpoint(finished_run / 'last.safetensors')
    training = checkpoint.provenance['training']
    assert TrainConfig.from_dict(training) == TrainConfig.from_yaml(finished_run / 'config.yaml')
    assert training['seed'] == 1
    assert checkpoint.build().config == checkpoint.config
    sessions = json.loads((finished_run / 'run.json').read_text())['sessions']
    assert [session.keys() for session in sessions] == [{'command', 'commit', 'torch'}]


def test_loss_is_finite_and_decreases(finished_run):
    values = [float(loss) for loss in losses(finished_run)]
    assert len(values) == 3
    assert np.isfinite(values).all()
    assert min(values[1:]) < values[0]


def test_resumed_run_equals_an_uninterrupted_one(oxford, tmp_path, finished_run, monkeypatch):
    out = tmp_path / 'run'
    line = arguments(OXFORD_YAML, oxford, out, (*TINY_OXFORD, 'epochs=3'))
    save = RunFolder.save

    def interrupted(self, trainer, epoch, metrics):
        save(self, trainer, epoch, metrics)
        if epoch == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, 'save', interrupted)
        assert train.main(line) == 130
    assert len(losses(out)) == 1
    monkeypatch.setattr(sys, 'argv', ['train.py', '--resume'])
    assert train.main([*line, '--resume']) == 0
    assert losses(out) == losses(finished_run)
    commands = [s['command'] for s in json.loads((out / 'run.json').read_text())['sessions']]
    assert commands[1:] == ['train.py --resume']
    first_command = load_checkpoint(out / 'last.safetensors').provenance['command']
    assert first_command == commands[0] != 'train.py --resume'
    ours, theirs = (load_checkpoint(f / 'last.safetensors').tensors for f in (out, finished_run))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_damaged_state_is_not_resumed(oxford, finished_run, tmp_path, capsys):
    out = shutil.copytree(finished_run, tmp_path / 'run')
    data = bytearray((out / 'state.pt').read_bytes())
    for position in range(len(data) // 2, len(data) // 2 + 8):
        data[position] ^= 0xFF
    (out / 'state.pt').write_bytes(data)
    line = arguments(OXFORD_YAML, oxford, out, (*TINY_OXFORD, 'epochs=3'), '--resume')
    assert train.main(line) == 1
    assert 'state.pt: damaged: SHA-256 is' in capsys.readouterr().err
    assert losses(out) == losses(finished_run)


def test_kill_loses_at_most_one_epoch(oxford, tmp_path, finished_run):
    out = tmp_path / 'run'
    line = arguments(OXFORD_YAML, oxford, out, (*TINY_OXFORD, 'epochs=3'))
    threads = {'OMP_NUM_THREADS': str(torch.get_num_threads())}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / 'training' / 'train.py'), *line],
        env={**os.environ, 'PYTHONPATH': str(ROOT), **threads},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (out / 'state.pt').exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = read_state(out / 'state.pt')['epoch'] + 1
    assert 1 <= finished <= len(losses(out)) <= finished + 1
    assert train.main([*line, '--resume']) == 0
    assert losses(out) == losses(finished_run)


def test_held_out_places_select_and_calibrate_the_model(bev, tmp_path):
    out = tmp_path / 'run'
    changes = (*TINY_BEV, 'epochs=2', 'validate_every=1')
    assert train.main(arguments(BEV_YAML, bev, out, changes)) == 0
    with (out / 'metrics.csv').open() as stream:
        recalls = [float(row['validation_recall']) for row in csv.DictReader(stream)]
    assert all(0.0 <= recall <= 1.0 for recall in recalls)
    best = load_checkpoint(out / 'best.safetensors')
    assert best.provenance['metrics']['validation_recall'] == max(recalls)
    calibration = Calibration.from_dict(best.calibration)
    assert calibration.pairs > 0
    assert calibration.probability(0.0) >= calibration.probability(10.0)
    assert 'KITTI' in best.license


def test_a_world_can_be_held_out(tmp_path):
    for run in ('city_1/day_1', 'city_2/day_1'):
        write_drive(tmp_path, run, frames=12)
    config = config_of(
        ROOT / 'config' / 'sim.yaml',
        (
            'data.validation_runs=[city_2]',
            'data.validation_gap=6',
            'data.positive_m=10.0',
            'data.non_negative_m=20.0',
            'data.neighbor_m=0.0',
        ),
    )
    data = open_training_data(config.data, tmp_path)
    assert set(data.places.runs) == {'city_1/day_1'}
    # Worlds without queries are not searched.
    assert set(data.held_out.places.runs) == {'city_2/day_1'}
    assert data.held_out.is_query.sum() == len(data.held_out.places) == 24
    # The two worlds share coordinates, but not places.
    both = open_training_data(override(config, {'data.validation_runs': []}).data, tmp_path)
    for i, run in enumerate(both.places.runs):
        assert {both.places.runs[j] for j in both.tuples.non_negatives[i]} == {run}


def test_held_out_places_without_revisits_are_rejected(bev, tmp_path, capsys):
    changes = (*TINY_BEV, 'data.validation_gap=70')
    assert train.main(arguments(BEV_YAML, bev, tmp_path / 'run', changes)) == 1
    assert 'no held-out place is a revisit' in capsys.readouterr().err


def trainer_of(folder, *changes, yaml=OXFORD_YAML, tiny=TINY_OXFORD) -> Trainer:
    config = config_of(yaml, (*tiny, *changes))
    torch.manual_seed(config.seed)
    data = open_training_data(config.data, folder)
    return Trainer(config, PlaceModel(config.model), data, device=torch.device('cpu'))


def gradients_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    next(iter(trainer.run_epoch(0)))
    return {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None}


def assert_gradients_close(ours, theirs):
    assert ours.keys() == theirs.keys()
    largest = max(float(g.abs().max()) for g in theirs.values())
    assert largest > 0.0
    for name, gradient in theirs.items():
        # Rounding differs with threads; a missing or wrongly weighted chunk differs by far more.
        torch.testing.assert_close(ours[name], gradient, rtol=1e-5, atol=3e-4 * largest)


@pytest.mark.parametrize('multistage', ['true', 'false'])
@pytest.mark.parametrize('loss', ['truncated_smooth_ap', 'batch_hard_triplet', 'lazy_quadruplet'])
def test_chunked_gradient_equals_plain_backpropagation(oxford, loss, multistage):
    changes = (f'loss.name={loss}', 'model.pooling.gradient=exact', f'multistage={multistage}')
    chunked = gradients_of(trainer_of(oxford, *changes))
    plain = trainer_of(oxford, *changes)
    plain.model.train()
    rng = np.random.default_rng([plain.config.seed, 0])
    batch = trainer.plan_epoch(plain._positives, plain.config.batch_size, rng)[0]
    seed = np.random.SeedSequence([plain.config.seed, 0, 0])
    chunks, view = plain._prepare(batch, seed)
    embeddings = torch.cat([plain.model(chunk) for chunk in chunks])
    assert len(embeddings) > plain.config.chunk_size
    build_loss(plain.config.loss)(embeddings, *plain._masks(batch, view))[0].backward()
    parameters = plain.model.named_parameters()
    assert_gradients_close(chunked, {n: p.grad for n, p in parameters if p.grad is not None})


TWO_PROCESSES = """
import sys
import torch
sys.path[:0] = {paths!r}
from pathlib import Path
import test_trainer
from lpr_training.train.distributed import join_processes
import train

processes = join_processes()
trainer = test_trainer.trainer_of(Path({oxford!r}))
trainer._processes = processes
gradients = test_trainer.gradients_of(trainer)
if processes.is_first:
    torch.save(gradients, {out!r} + '/gradients.pt')
raise SystemExit(train.main({line!r}))
"""


def test_two_processes_have_the_gradient_of_one(oxford, tmp_path, finished_run):
    # Two chunks per batch, one for each process; the last batch of the epoch has only one.
    line = arguments(OXFORD_YAML, oxford, tmp_path / 'run', (*TINY_OXFORD, 'epochs=1'))
    paths = [str(ROOT), str(ROOT / 'training'), str(ROOT / 'test'), str(Path(__file__).parent)]
    script = tmp_path / 'two.py'
    script.write_text(
        TWO_PROCESSES.format(paths=paths, oxford=str(oxford), out=str(tmp_path), line=line)
    )
    command = [sys.executable, '-m', 'torch.distributed.run', '--standalone']
    done = subprocess.run(
        [*command, '--nproc_per_node', '2', str(script)],
        env={**os.environ, 'OMP_NUM_THREADS': '1'},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    gradients = torch.load(tmp_path / 'gradients.pt', weights_only=True)
    assert_gradients_close(gradients, gradients_of(trainer_of(oxford)))
    ours, theirs = (float(losses(f)[0]) for f in (tmp_path / 'run', finished_run))
    assert ours == pytest.approx(theirs, abs=1e-3)
    assert load_checkpoint(tmp_path / 'run' / 'last.safetensors').build()


def test_mixed_precision_keeps_float32_descriptors(oxford):
    trainer = trainer_of(oxford, 'mixed_precision=true')
    step = next(iter(trainer.run_epoch(0)))
    assert np.isfinite(step.loss)
    with torch.autocast('cpu', torch.bfloat16):
        (chunk,), _ = trainer._prepare(np.arange(4), np.random.SeedSequence(0))
        assert trainer.model(chunk).dtype == torch.float32


class BreaksAt:
    """A loss that becomes NaN at one call, or only its gradient."""

    def __init__(self, loss, call, part):
        self._loss, self._calls_left, self._part = loss, call, part

    def __call__(self, embeddings, positives, negatives):
        self._calls_left -= 1
        value, statistics = self._loss(embeddings, positives, negatives)
        if self._calls_left >= 0:
            return value, statistics
        if self._part == 'loss':
            return value * float('nan'), statistics
        return value + (0.0 * embeddings).sqrt().sum(), statistics


@pytest.mark.parametrize(
    ('part', 'reported'), [('loss', 'loss is nan'), ('gradient', 'gradient of')]
)
def test_nan_stops_training_and_keeps_the_last_weights(
    oxford, tmp_path, monkeypatch, capsys, part, reported
):
    out = tmp_path / 'run'
    batches = 3  # per epoch: 20 places in pairs, 8 per batch
    monkeypatch.setattr(
        trainer, 'build_loss', lambda config: BreaksAt(build_loss(config), batches + 1, part)
    )
    line = arguments(OXFORD_YAML, oxford, out, (*TINY_OXFORD, 'epochs=3'))
    assert train.main(line) == 1
    message = capsys.readouterr().err
    assert reported in message
    assert 'epoch 1, batch 1' in message
    assert 'the last checkpoint is kept' in message
    tensors = load_checkpoint(out / 'last.safetensors').tensors
    assert all(torch.isfinite(tensor.double()).all() for tensor in tensors.values())
    assert len(losses(out)) == 1


def test_full_disk_keeps_the_last_epoch(oxford, tmp_path, monkeypatch, capsys):
    out = tmp_path / 'run'
    line = arguments(OXFORD_YAML, oxford, out, (*TINY_OXFORD, 'epochs=2'))
    save, calls = torch.save, []

    def full(state, stream):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(state, stream)

    with monkeypatch.context() as patch:
        patch.setattr(torch, 'save', full)
        assert train.main(line) == 1
    assert 'No space left on device' in capsys.readouterr().err
    assert read_state(out / 'state.pt')['epoch'] == 0
    assert not list(out.glob('.*'))
    assert train.main([*line, '--resume']) == 0
    assert len(losses(out)) == 2


def test_failed_decomposition_reports_the_batch(oxford, tmp_path, monkeypatch, capsys):
    forward = PlaceModel.features

    def broken(self, batch):
        features, counts = forward(self, batch)
        return features * float('nan'), counts

    monkeypatch.setattr(PlaceModel, 'features', broken)
    assert train.main(arguments(OXFORD_YAML, oxford, tmp_path, TINY_OXFORD)) == 1
    assert re.search('linalg.*in epoch 0, batch 0 .places', capsys.readouterr().err)


def test_progress_bar_shows_recall_and_remaining_time(oxford, tmp_path, capsys):
    line = arguments(OXFORD_YAML, oxford, tmp_path, (*TINY_OXFORD, 'epochs=2'))
    assert train.main(line) == 0
    output = capsys.readouterr().err
    assert re.search(
        r'epoch 0, batch \d+/\d+: .*<\d\d:\d\d, loss .*, batch recall@1 [01]\.\d+', output
    )


def test_new_run_does_not_overwrite_an_old_one(oxford, finished_run, capsys):
    line = arguments(OXFORD_YAML, oxford, finished_run, (*TINY_OXFORD, 'epochs=3'))
    assert train.main(line) == 1
    assert 'already holds a run; continue it with --resume' in capsys.readouterr().err


def test_init_loads_the_weights_of_a_checkpoint(oxford, tmp_path, finished_run, capsys):
    weights = finished_run / 'last.safetensors'
    frozen = (*TINY_OXFORD, 'epochs=1', 'learning_rate=0.0', 'min_learning_rate=0.0')
    out = tmp_path / 'again'
    assert train.main(arguments(OXFORD_YAML, oxford, out, frozen, '--init', str(weights))) == 0
    before, after = load_checkpoint(weights), load_checkpoint(out / 'last.safetensors')
    learned = [name for name in before.tensors if name.endswith(('kernel', 'weight', 'bias'))]
    assert learned
    for name in learned:
        assert torch.equal(before.tensors[name], after.tensors[name]), name
    other = (*frozen, 'model.backbone.feature_size=24')
    line = arguments(OXFORD_YAML, oxford, tmp_path / 'other', other, '--init', str(weights))
    assert train.main(line) == 1
    assert 'feature_size=24' in capsys.readouterr().err


def test_init_accepts_another_cell_size_but_not_another_quantizer(bev, tmp_path, capsys):
    line = arguments(BEV_YAML, bev, tmp_path / 'first', (*TINY_BEV, 'epochs=1'))
    assert train.main(line) == 0
    init = ('--init', str(tmp_path / 'first' / 'last.safetensors'))
    finer = (*TINY_BEV, 'epochs=1', 'model.input.step=[0.6,0.6,0.6]', 'model.input.align_yaw=true')
    assert train.main(arguments(BEV_YAML, bev, tmp_path / 'finer', finer, *init)) == 0
    other = (*TINY_BEV, 'model.input.quantizer=cartesian')
    assert train.main(arguments(BEV_YAML, bev, tmp_path / 'other', other, *init)) == 1
    assert "from weights of ('bev'" in capsys.readouterr().err


def test_init_from_fewer_layers_keeps_the_descriptors(bev, tmp_path, capsys):
    frozen = (*TINY_BEV, 'epochs=1', 'learning_rate=0.0', 'min_learning_rate=0.0')
    first, deeper = tmp_path / 'first', (*frozen, 'model.backbone.layers=[1,3]')
    assert train.main(arguments(BEV_YAML, bev, first, frozen)) == 0
    weights = first / 'last.safetensors'
    config = override(TrainConfig.from_yaml(BEV_YAML), parse_assignments(deeper))
    clouds = collate([np.random.default_rng(i).integers(-9, 9, (80, 3)) for i in range(3)])
    before, after = load_checkpoint(weights).build().eval(), _new_model(config, weights).eval()
    assert [len(level) for level in after.backbone.blocks] == [1, 3]
    with torch.no_grad():
        torch.testing.assert_close(after(clouds), before(clouds))
    out, init = tmp_path / 'deeper', ('--init', str(weights))
    assert train.main(arguments(BEV_YAML, bev, out, deeper, *init)) == 0
    line = arguments(BEV_YAML, bev, tmp_path / 'fewer', frozen, '--init')
    assert train.main([*line, str(out / 'last.safetensors')]) == 1
    assert 'layers=(1, 3)' in capsys.readouterr().err


def test_batch_rotation_is_the_same_for_every_cloud(oxford):
    """Without other augmentation, a place that is twice in a batch has one result."""
    off = (
        'augment.jitter_sigma=0',
        'augment.dropout=0',
        'augment.translation_sigma=0',
        'augment.block_probability=0',
        'augment.batch_yaw_deg=90',
    )
    trainer = trainer_of(oxford, *off)
    seed = np.random.SeedSequence(3)
    (chunk,), _ = trainer._prepare(np.array([4, 4]), seed)
    first, second = chunk.sites.split(list(chunk.counts))
    assert torch.equal(first, second)
    (other,), _ = trainer._prepare(np.array([4, 4]), np.random.SeedSequence(4))
    assert not torch.equal(first, other.sites.split(list(other.counts))[0])


def test_displaced_sensors_define_positives_and_negatives(bev):
    off = (
        'augment.height_scale=0',
        'augment.height_cut=0',
        'augment.yaw_deg=0',
        'augment.shift=0',
        'augment.jitter_sigma=0',
        'augment.dropout=0',
        'augment.block_probability=0',
        'augment.sector_probability=0',
        'augment.flip_x=0',
        'model.input.align_yaw=false',
        'augment.move=12',
    )
    trainer = trainer_of(bev, *off, yaml=BEV_YAML, tiny=TINY_BEV)
    data = trainer._data
    batch = np.array([7, 7, 8, 20])
    (chunk,), view = trainer._prepare(batch, np.random.SeedSequence(3))
    first, second = chunk.sites.split(list(chunk.counts))[:2]
    center = (first.double().mean(dim=0) - second.double().mean(dim=0)).numpy() * 0.8
    heading = data.places[7].T_world_sensor[:3, :3]
    moved = heading.T @ (view.displacements[1] - view.displacements[0])
    assert np.linalg.norm(moved) > 2.0
    np.testing.assert_allclose(center, moved, atol=0.8)
    displaced = data.positions[batch] + view.displacements[:, :2]
    apart = torch.from_numpy(np.linalg.norm(displaced[:, None] - displaced, axis=2))
    positives, negatives = trainer._masks(batch, view)
    assert torch.equal(positives, (apart <= 10.0) & ~torch.eye(4, dtype=torch.bool))
    assert torch.equal(negatives, apart > 20.0)


def test_init_keeps_the_backbone_with_another_pooling(oxford, tmp_path, finished_run):
    weights, out = finished_run / 'last.safetensors', tmp_path / 'other_head'
    frozen = (*TINY_OXFORD, 'epochs=1', 'learning_rate=0.0', 'min_learning_rate=0.0')
    other = (*frozen, 'model.pooling.clusters=3')
    assert train.main(arguments(OXFORD_YAML, oxford, out, other, '--init', str(weights))) == 0
    before, after = load_checkpoint(weights), load_checkpoint(out / 'last.safetensors')
    kernels = [name for name in before.tensors if name.endswith('kernel')]
    assert kernels
    for name in kernels:
        assert torch.equal(before.tensors[name], after.tensors[name]), name
    assert after.config.pooling.clusters == 3


def test_resume_with_another_configuration_is_rejected(oxford, finished_run, capsys):
    changes = (*TINY_OXFORD, 'epochs=3', 'model.pooling.channels=7')
    line = arguments(OXFORD_YAML, oxford, finished_run, changes, '--resume')
    assert train.main(line) == 1
    assert 'model.pooling.channels was 16, is 7' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('config', 'changes', 'more', 'message'),
    [
        (OXFORD_YAML, (), ('--data', '/nowhere'), 'expected /nowhere/oxford'),
        (BEV_YAML, (), (), 'kitti_bev_00.npz, found'),
        (OXFORD_YAML, ('model.pooling.chanels=3',), (), "unknown key 'model.pooling.chanels'"),
        (OXFORD_YAML, ('model.input.step=[0.4,0.4,0.4]',), (), 'scaled to [-1, 1]'),
        (OXFORD_YAML, ('model.input.quantizer=points',), (), 'does not take input'),
        (OXFORD_YAML, ('augment.stretch=0.2',), (), 'augment.stretch is 0.2, expected 0'),
        (OXFORD_YAML, ('augment.move=2.0',), (), "tuples of source 'oxford_baseline' do not"),
        (OXFORD_YAML, ('model.input.align_yaw=true',), (), 'align_yaw True and above_ground_m 0'),
        (OXFORD_YAML, (), ('--resume',), 'no training state to resume from'),
        (
            OXFORD_YAML,
            ('data.positive_m=0.01', 'epochs=1'),
            (),
            'expected at least 2 positive pairs',
        ),
        (Path('/nowhere.yaml'), (), (), 'cannot be read as YAML'),
    ],
)
def test_bad_input_is_reported(oxford, tmp_path, capsys, config, changes, more, message):
    assert train.main(arguments(config, oxford, tmp_path / 'run', changes, *more)) == 1
    error = capsys.readouterr().err
    assert message in error
    assert 'Traceback' not in error
