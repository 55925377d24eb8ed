"""Training: two tiny epochs, exact resume, kill, gradients in stages and processes, bad input."""

import csv
import errno
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from toy_places import TINY, TINY_OXFORD, write_bev_file, write_drive, write_oxford_folder

from lpr_ros.core.calibration import Calibration
from lpr_ros.core.config import override, parse_assignments
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.sparse import collate
from lpr_training import engine
from lpr_training.config import TrainConfig
from lpr_training.engine import Trainer
from lpr_training.fit import _new_model
from lpr_training.losses import build_loss
from lpr_training.run_folder import RunFolder
from lpr_training.training_data import open_training_data
import train

ROOT = Path(__file__).resolve().parents[1]
OXFORD_YAML = ROOT / 'config' / 'oxford_baseline.yaml'
BEV_YAML = ROOT / 'config' / 'kitti_bev.yaml'
TINY_BEV = (
    *TINY,
    'model.backbone.quarter_turns=false',
    'model.input.step=[0.8,0.8,0.8]',
    'data.validation_x=[60.0]',
    'data.validation_y=[0.0]',
    'data.validation_half_m=40.0',
    'data.validation_gap=30',
    'data.spacing_m=0.0',
    'data.positive_m=10.0',
    'data.non_negative_m=20.0',
    'data.neighbour_m=40.0',
    'warmup_epochs=0',
)


@pytest.fixture(scope='module')
def oxford(tmp_path_factory):
    return write_oxford_folder(tmp_path_factory.mktemp('oxford'))


@pytest.fixture(scope='module')
def bev(tmp_path_factory):
    return write_bev_file(tmp_path_factory.mktemp('bev') / 'kitti_bev_00.npz').parent


def arguments(config, data, out, changes, *more):
    sets = [part for change in changes for part in ('--set', change)]
    return [str(config), '--data', str(data), '--out', str(out), *sets, *more]


def losses(folder: Path) -> list[str]:
    """Return the loss of every epoch as it was written: equal text is equal to the last bit."""
    with (folder / 'metrics.csv').open() as stream:
        return [row['loss'] for row in csv.DictReader(stream)]


def config_of(path: Path, changes) -> TrainConfig:
    return override(TrainConfig.from_yaml(path), parse_assignments(changes))


@pytest.fixture(scope='module')
def whole_run(oxford, tmp_path_factory):
    """Three epochs without interruption."""
    out = tmp_path_factory.mktemp('runs') / 'whole'
    line = arguments(OXFORD_YAML, oxford, out, (*TINY_OXFORD, 'epochs=3'))
    assert train.main(line) == 0
    return out


def test_run_leaves_everything_behind(whole_run):
    names = ('config.yaml', 'run.json', 'metrics.csv', 'curves.png', 'state.pt', 'tensorboard')
    assert all((whole_run / name).exists() for name in names)
    assert not list(whole_run.glob('.*'))
    checkpoint = load_checkpoint(whole_run / 'last.safetensors')
    training = checkpoint.provenance['training']
    assert TrainConfig.from_dict(training) == TrainConfig.from_yaml(whole_run / 'config.yaml')
    assert training['seed'] == 1
    assert checkpoint.build().config == checkpoint.config
    about = json.loads((whole_run / 'run.json').read_text())
    assert [session.keys() for session in about['sessions']] == [{'command', 'commit', 'torch'}]


def test_loss_stays_finite_and_falls(whole_run):
    values = [float(loss) for loss in losses(whole_run)]
    assert len(values) == 3
    assert np.isfinite(values).all()
    assert min(values[1:]) < values[0]


def test_resumed_run_equals_the_uninterrupted_one(oxford, tmp_path, whole_run, monkeypatch):
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
    assert losses(out) == losses(whole_run)
    about = json.loads((out / 'run.json').read_text())
    assert [session['command'] for session in about['sessions']][1:] == ['train.py --resume']
    began = load_checkpoint(out / 'last.safetensors').provenance['command']
    assert began == about['sessions'][0]['command'] != 'train.py --resume'
    ours, theirs = (load_checkpoint(f / 'last.safetensors').tensors for f in (out, whole_run))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_kill_loses_at_most_one_epoch(oxford, tmp_path, whole_run):
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
    finished = torch.load(out / 'state.pt', weights_only=True)['epoch'] + 1
    assert 1 <= finished <= len(losses(out)) <= finished + 1
    assert train.main([*line, '--resume']) == 0
    assert losses(out) == losses(whole_run)


def test_held_out_places_choose_and_calibrate(bev, tmp_path):
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
    assert 'KITTI' in best.licence


def test_whole_world_can_be_held_out(tmp_path):
    for run in ('city_1/day_1', 'city_2/day_1'):
        write_drive(tmp_path, run, frames=12)
    config = config_of(
        ROOT / 'config' / 'sim.yaml',
        (
            'data.validation_runs=[city_2]',
            'data.validation_gap=6',
            'data.positive_m=10.0',
            'data.non_negative_m=20.0',
            'data.neighbour_m=0.0',
        ),
    )
    data = open_training_data(config.data, tmp_path)
    assert set(data.places.runs) == {'city_1/day_1'}
    # Worlds that hold no query are no part of the search.
    assert set(data.held_out.places.runs) == {'city_2/day_1'}
    assert data.held_out.is_query.sum() == len(data.held_out.places) == 24
    # The two worlds share coordinates, yet no place of one is a place of the other.
    both = open_training_data(
        override(config, {'data.validation_runs': []}).data, tmp_path
    )
    for i, run in enumerate(both.places.runs):
        assert {both.places.runs[j] for j in both.tuples.non_negatives[i]} == {run}


def test_held_out_places_that_nobody_revisits_are_refused(bev, tmp_path, capsys):
    changes = (*TINY_BEV, 'data.validation_gap=70')
    assert train.main(arguments(BEV_YAML, bev, tmp_path / 'run', changes)) == 1
    assert 'no held-out place is revisited' in capsys.readouterr().err


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
        # Threads add in another order; a chunk missing or weighed wrongly is off by far more.
        torch.testing.assert_close(ours[name], gradient, rtol=1e-5, atol=3e-4 * largest)


@pytest.mark.parametrize('multistage', ['true', 'false'])
@pytest.mark.parametrize('loss', ['truncated_smooth_ap', 'batch_hard_triplet', 'lazy_quadruplet'])
def test_gradient_in_stages_is_that_of_plain_backpropagation(oxford, loss, multistage):
    changes = (f'loss.name={loss}', 'model.pooling.gradient=exact', f'multistage={multistage}')
    staged = gradients_of(trainer_of(oxford, *changes))
    plain = trainer_of(oxford, *changes)
    plain.model.train()
    rng = np.random.default_rng([plain.config.seed, 0])
    batch = engine.plan_epoch(plain._positives, plain.config.batch_size, rng)[0]
    seed = np.random.SeedSequence([plain.config.seed, 0, 0])
    chunks, view = plain._prepare(batch, seed)
    embeddings = torch.cat([plain.model(chunk) for chunk in chunks])
    assert len(embeddings) > plain.config.chunk_size
    build_loss(plain.config.loss)(embeddings, *plain._masks(batch, view))[0].backward()
    parameters = plain.model.named_parameters()
    assert_gradients_close(staged, {n: p.grad for n, p in parameters if p.grad is not None})


TWO_PROCESSES = """
import sys
import torch
sys.path[:0] = {paths!r}
from pathlib import Path
import test_training
from lpr_training.processes import join_processes
import train

processes = join_processes()
trainer = test_training.trainer_of(Path({oxford!r}))
trainer._processes = processes
gradients = test_training.gradients_of(trainer)
if processes.is_first:
    torch.save(gradients, {out!r} + '/gradients.pt')
raise SystemExit(train.main({line!r}))
"""


def test_two_processes_give_the_gradient_of_one(oxford, tmp_path, whole_run):
    # Two chunks to a batch, one to each process; the last batch of the epoch has only one.
    line = arguments(OXFORD_YAML, oxford, tmp_path / 'run', (*TINY_OXFORD, 'epochs=1'))
    paths = [str(ROOT), str(ROOT / 'training'), str(ROOT / 'test')]
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
    ours, theirs = (float(losses(f)[0]) for f in (tmp_path / 'run', whole_run))
    assert ours == pytest.approx(theirs, abs=1e-3)
    assert load_checkpoint(tmp_path / 'run' / 'last.safetensors').build()


def test_mixed_precision_leaves_the_descriptor_exact(oxford):
    trainer = trainer_of(oxford, 'mixed_precision=true')
    step = next(iter(trainer.run_epoch(0)))
    assert np.isfinite(step.loss)
    with torch.autocast('cpu', torch.bfloat16):
        (chunk,), _ = trainer._prepare(np.arange(4), np.random.SeedSequence(0))
        assert trainer.model(chunk).dtype == torch.float32


class BreaksAt:
    """A loss that turns bad at one call: its value, or only its gradient."""

    def __init__(self, loss, call, how):
        self._loss, self._left, self._how = loss, call, how

    def __call__(self, embeddings, positives, negatives):
        self._left -= 1
        value, statistics = self._loss(embeddings, positives, negatives)
        if self._left >= 0:
            return value, statistics
        if self._how == 'loss':
            return value * float('nan'), statistics
        return value + (0.0 * embeddings).sqrt().sum(), statistics


@pytest.mark.parametrize(('how', 'what'), [('loss', 'loss is nan'), ('gradient', 'gradient of')])
def test_nan_stops_names_the_batch_and_keeps_the_last_good_weights(
    oxford, tmp_path, monkeypatch, capsys, how, what
):
    out = tmp_path / 'run'
    batches = 3  # of an epoch: 20 places in pairs, 8 to a batch
    monkeypatch.setattr(
        engine, 'build_loss', lambda config: BreaksAt(build_loss(config), batches + 1, how)
    )
    line = arguments(OXFORD_YAML, oxford, out, (*TINY_OXFORD, 'epochs=3'))
    assert train.main(line) == 1
    message = capsys.readouterr().err
    assert what in message
    assert 'epoch 1, batch 1' in message
    assert 'last good checkpoint is kept' in message
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
    assert torch.load(out / 'state.pt', weights_only=True)['epoch'] == 0
    assert not list(out.glob('.*'))
    assert train.main([*line, '--resume']) == 0
    assert len(losses(out)) == 2


def test_a_decomposition_that_fails_names_the_batch(oxford, tmp_path, monkeypatch, capsys):
    forward = PlaceModel.features

    def broken(self, batch):
        features, counts = forward(self, batch)
        return features * float('nan'), counts

    monkeypatch.setattr(PlaceModel, 'features', broken)
    assert train.main(arguments(OXFORD_YAML, oxford, tmp_path, TINY_OXFORD)) == 1
    assert re.search('linalg.*in epoch 0, batch 0 .places', capsys.readouterr().err)


def test_bar_tells_recall_and_the_time_that_is_left(oxford, tmp_path, capsys):
    line = arguments(OXFORD_YAML, oxford, tmp_path, (*TINY_OXFORD, 'epochs=2'))
    assert train.main(line) == 0
    shown = capsys.readouterr().err
    assert re.search(r'epoch 0, batch \d+/\d+: .*<\d\d:\d\d, loss .*, recall@1 [01]\.\d+', shown)


def test_second_run_does_not_overwrite_the_first(oxford, whole_run, capsys):
    line = arguments(OXFORD_YAML, oxford, whole_run, (*TINY_OXFORD, 'epochs=3'))
    assert train.main(line) == 1
    assert 'holds a run already; go on with --resume' in capsys.readouterr().err


def test_init_begins_with_the_weights_of_a_checkpoint(oxford, tmp_path, whole_run, capsys):
    weights = whole_run / 'last.safetensors'
    still = (*TINY_OXFORD, 'epochs=1', 'learning_rate=0.0', 'min_learning_rate=0.0')
    out = tmp_path / 'again'
    assert train.main(arguments(OXFORD_YAML, oxford, out, still, '--init', str(weights))) == 0
    before, after = load_checkpoint(weights), load_checkpoint(out / 'last.safetensors')
    learned = [name for name in before.tensors if name.endswith(('kernel', 'weight', 'bias'))]
    assert learned
    for name in learned:
        assert torch.equal(before.tensors[name], after.tensors[name]), name
    other = (*still, 'model.backbone.feature_size=24')
    line = arguments(OXFORD_YAML, oxford, tmp_path / 'other', other, '--init', str(weights))
    assert train.main(line) == 1
    assert 'feature_size=24' in capsys.readouterr().err


def test_init_takes_cells_of_another_size_but_no_other_kind(bev, tmp_path, capsys):
    line = arguments(BEV_YAML, bev, tmp_path / 'first', (*TINY_BEV, 'epochs=1'))
    assert train.main(line) == 0
    init = ('--init', str(tmp_path / 'first' / 'last.safetensors'))
    finer = (*TINY_BEV, 'epochs=1', 'model.input.step=[0.6,0.6,0.6]', 'model.input.align_yaw=true')
    assert train.main(arguments(BEV_YAML, bev, tmp_path / 'finer', finer, *init)) == 0
    other = (*TINY_BEV, 'model.input.quantizer=cartesian')
    assert train.main(arguments(BEV_YAML, bev, tmp_path / 'other', other, *init)) == 1
    assert "weights of ('bev'" in capsys.readouterr().err


def test_init_of_fewer_layers_describes_the_same_at_first(bev, tmp_path, capsys):
    still = (*TINY_BEV, 'epochs=1', 'learning_rate=0.0', 'min_learning_rate=0.0')
    first, deeper = tmp_path / 'first', (*still, 'model.backbone.layers=[1,3]')
    assert train.main(arguments(BEV_YAML, bev, first, still)) == 0
    weights = first / 'last.safetensors'
    config = override(TrainConfig.from_yaml(BEV_YAML), parse_assignments(deeper))
    clouds = collate([np.random.default_rng(i).integers(-9, 9, (80, 3)) for i in range(3)])
    before, after = load_checkpoint(weights).build().eval(), _new_model(config, weights).eval()
    assert [len(level) for level in after.backbone.blocks] == [1, 3]
    with torch.no_grad():
        torch.testing.assert_close(after(clouds), before(clouds))
    out, init = tmp_path / 'deeper', ('--init', str(weights))
    assert train.main(arguments(BEV_YAML, bev, out, deeper, *init)) == 0
    line = arguments(BEV_YAML, bev, tmp_path / 'fewer', still, '--init')
    assert train.main([*line, str(out / 'last.safetensors')]) == 1
    assert 'layers=(1, 3)' in capsys.readouterr().err


def test_a_batch_is_turned_and_mirrored_as_one(oxford):
    """One place twice in a batch, nothing else at random: both come out the same, but turned."""
    off = ('augment.jitter_sigma=0', 'augment.dropout=0', 'augment.translation_sigma=0',
           'augment.block_probability=0', 'augment.batch_yaw_deg=90')  # fmt: skip
    trainer = trainer_of(oxford, *off)
    seed = np.random.SeedSequence(3)
    (chunk,), _ = trainer._prepare(np.array([4, 4]), seed)
    first, second = chunk.sites.split(list(chunk.counts))
    assert torch.equal(first, second)
    (other,), _ = trainer._prepare(np.array([4, 4]), np.random.SeedSequence(4))
    assert not torch.equal(first, other.sites.split(list(other.counts))[0])


def test_places_are_the_same_by_the_spots_they_are_seen_from(bev):
    off = ('augment.height_scale=0', 'augment.height_cut=0', 'augment.yaw_deg=0',
           'augment.shift=0', 'augment.jitter_sigma=0', 'augment.dropout=0',
           'augment.block_probability=0', 'augment.sector_probability=0', 'augment.flip_x=0',
           'model.input.align_yaw=false', 'augment.move=12')  # fmt: skip
    trainer = trainer_of(bev, *off, yaml=BEV_YAML, tiny=TINY_BEV)
    data = trainer._data
    batch = np.array([7, 7, 8, 20])
    (chunk,), view = trainer._prepare(batch, np.random.SeedSequence(3))
    first, second = chunk.sites.split(list(chunk.counts))[:2]
    centre = (first.double().mean(dim=0) - second.double().mean(dim=0)).numpy() * 0.8
    heading = data.places[7].T_world_sensor[:3, :3]
    moved = heading.T @ (view.moves[1] - view.moves[0])
    assert np.linalg.norm(moved) > 2.0
    np.testing.assert_allclose(centre, moved, atol=0.8)
    spots = data.positions[batch] + view.moves[:, :2]
    apart = torch.from_numpy(np.linalg.norm(spots[:, None] - spots, axis=2))
    positives, negatives = trainer._masks(batch, view)
    assert torch.equal(positives, (apart <= 10.0) & ~torch.eye(4, dtype=torch.bool))
    assert torch.equal(negatives, apart > 20.0)


def test_init_keeps_the_backbone_where_the_pooling_is_another(oxford, tmp_path, whole_run):
    weights, out = whole_run / 'last.safetensors', tmp_path / 'other_head'
    still = (*TINY_OXFORD, 'epochs=1', 'learning_rate=0.0', 'min_learning_rate=0.0')
    other = (*still, 'model.pooling.clusters=3')
    assert train.main(arguments(OXFORD_YAML, oxford, out, other, '--init', str(weights))) == 0
    before, after = load_checkpoint(weights), load_checkpoint(out / 'last.safetensors')
    kernels = [name for name in before.tensors if name.endswith('kernel')]
    assert kernels
    for name in kernels:
        assert torch.equal(before.tensors[name], after.tensors[name]), name
    assert after.config.pooling.clusters == 3


def test_resume_with_another_model_is_refused(oxford, whole_run, capsys):
    changes = (*TINY_OXFORD, 'epochs=3', 'model.pooling.channels=7')
    line = arguments(OXFORD_YAML, oxford, whole_run, changes, '--resume')
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
        (OXFORD_YAML, ('augment.stretch=0.2',), (), 'augment.stretch 0.2 needs clouds in the'),
        (OXFORD_YAML, ('augment.move=2.0',), (), "source 'oxford_baseline' is not so"),
        (OXFORD_YAML, ('model.input.align_yaw=true',), (), 'align_yaw True and above_ground_m 0'),
        (OXFORD_YAML, (), ('--resume',), 'nothing to resume'),
        (OXFORD_YAML, ('data.positive_m=0.01', 'epochs=1'), (), 'no batch can be made'),
        (Path('/nowhere.yaml'), (), (), 'cannot be read as YAML'),
    ],
)
def test_bad_input_is_one_sentence(oxford, tmp_path, capsys, config, changes, more, message):
    assert train.main(arguments(config, oxford, tmp_path / 'run', changes, *more)) == 1
    error = capsys.readouterr().err
    assert message in error
    assert 'Traceback' not in error
