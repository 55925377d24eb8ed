"""The output folder of a training run: configuration, metrics, checkpoints and state."""

import csv
import json
from pathlib import Path
import subprocess
import sys
import time
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter
import yaml

from lpr_ros.core.errors import CheckpointError
from lpr_ros.core.files import atomic_file
from lpr_ros.core.model.checkpoint import from_model, save_checkpoint
from lpr_training.figures.history import plot_history
from lpr_training.train.config import TrainConfig
from lpr_training.train.state_file import read_state, write_state
from lpr_training.train.trainer import Trainer

STATE = 'state.pt'
LAST = 'last.safetensors'
BEST = 'best.safetensors'
METRICS = 'metrics.csv'
SESSIONS = 'run.json'
DRAW_EVERY_S = 60.0  # drawing the curves takes a second
CURVES = ('loss', 'recall_at_1', 'validation_recall', 'learning_rate')


class RunFolder:
    """Writes the files of a run, each atomically."""

    def __init__(self, path: Path, config: TrainConfig):
        self.path = Path(path)
        self._config = config
        self._commit = commit()  # read now: another commit may be checked out during the run
        self.history: list[dict[str, float]] = []
        self._sessions: list[dict[str, str]] = []  # one per start or resume of the run
        self.best_recall = float('-inf')
        self._board: SummaryWriter | None = None
        self._drawn_at = time.monotonic()

    @property
    def chosen_weights(self) -> Path:
        """The weights with the best validation recall, or the last ones without validation."""
        best = self.path / BEST
        return best if best.exists() else self.path / LAST

    def check_new(self) -> None:
        """Raise CheckpointError if the folder holds a run, which training would overwrite."""
        if (self.path / STATE).exists():
            raise CheckpointError(
                f'{self.path}: already holds a run; continue it with --resume or choose another '
                'folder'
            )

    @property
    def held_out_recall(self) -> float | None:
        """The last validation recall, None before the first validation."""
        recalls = [row['validation_recall'] for row in self.history if 'validation_recall' in row]
        return recalls[-1] if recalls else None

    def start(self) -> None:
        """Write the configuration, and append this session to run.json."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._board = SummaryWriter(str(self.path / 'tensorboard'))
        with atomic_file(self.path / 'config.yaml') as partial:
            partial.write_text(yaml.safe_dump(self._config.to_dict(), sort_keys=False))
        session = {
            'command': ' '.join(sys.argv),
            'commit': self._commit,
            'torch': torch.__version__,
        }
        self._sessions = [*(_read_sessions(self.path / SESSIONS) if self.history else []), session]
        with atomic_file(self.path / SESSIONS) as partial:
            partial.write_text(json.dumps({'sessions': self._sessions}, indent=1))

    def save(self, trainer: Trainer, epoch: int, metrics: dict[str, float]) -> None:
        """Write weights and metrics of an epoch, then the state that resuming relies on.

        A run killed before the state is written repeats the epoch with the same result.
        """
        self.history.append({'epoch': epoch, **metrics})
        is_best = metrics.get('validation_recall', float('-inf')) > self.best_recall
        if is_best:
            self.best_recall = metrics['validation_recall']
        state = {
            'epoch': epoch,
            'model': trainer.model.state_dict(),
            'optimizer': trainer.optimizer.state_dict(),
            'batch_size': trainer.batch_size,
            'history': self.history,
            'best_recall': self.best_recall,
            'config': json.dumps(self._config.to_dict()),
        }
        checkpoint = from_model(
            trainer.model, provenance=self._provenance(metrics), license=self._config.license
        )
        for name in (LAST, *([BEST] if is_best else [])):
            save_checkpoint(self.path / name, checkpoint)
        self._write_metrics()
        is_last = epoch + 1 == self._config.epochs
        if is_last or time.monotonic() - self._drawn_at > DRAW_EVERY_S:
            self._write_curves()
        write_state(self.path / STATE, state)

    def resume(self, trainer: Trainer) -> int:
        """Restore the last saved epoch and return the next one."""
        path = self.path / STATE
        state = read_state(path)
        # A key that was added since the state was written has its default value.
        saved = TrainConfig.from_dict(json.loads(state['config'])).to_dict()
        changed = _differences(saved, self._config.to_dict())
        if changed:
            raise CheckpointError(f'{path}: the configuration has changed: {"; ".join(changed)}')
        trainer.model.load_state_dict(state['model'])
        trainer.optimizer.load_state_dict(state['optimizer'])
        trainer.batch_size = state.get('batch_size', trainer.batch_size)
        self.history = state['history']
        self.best_recall = state['best_recall']
        return int(state['epoch']) + 1

    def _provenance(self, metrics: dict[str, float]) -> dict[str, Any]:
        return {
            'command': self._sessions[0]['command'],  # that started the run
            'commit': self._commit,
            'training': self._config.to_dict(),
            'epoch': len(self.history),
            'metrics': metrics,
        }

    def _write_metrics(self) -> None:
        columns = list(dict.fromkeys(key for row in self.history for key in row))
        with atomic_file(self.path / METRICS) as partial, partial.open('w', newline='') as stream:
            writer = csv.DictWriter(stream, columns)
            writer.writeheader()
            writer.writerows(self.history)
        if self._board is None:
            return
        for name, value in self.history[-1].items():
            self._board.add_scalar(name, value, int(self.history[-1]['epoch']))
        self._board.flush()

    def _write_curves(self) -> None:
        panels = {}
        for name in CURVES:
            rows = [row for row in self.history if name in row]
            if rows:
                series = ([row['epoch'] for row in rows], [row[name] for row in rows])
                panels[name.replace('_', ' ')] = {name: series}
        with atomic_file(self.path / 'curves.png') as partial:
            plot_history(panels).savefig(partial, format='png')
        self._drawn_at = time.monotonic()


def _read_sessions(path: Path) -> list[dict[str, str]]:
    """Return the sessions recorded so far."""
    sessions: list[dict[str, str]] = []
    if path.exists():
        sessions = json.loads(path.read_text())['sessions']
    return sessions


def _differences(old: Any, new: Any, key_path: str = '') -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys())
        return [
            text
            for key in keys
            for text in _differences(old.get(key), new.get(key), f'{key_path}.{key}'.strip('.'))
        ]
    return [] if old == new else [f'{key_path} was {old!r}, is {new!r}']


def commit() -> str:
    """Return the abbreviated commit, with -dirty if there are changes; '' outside git."""
    try:
        root = Path(__file__).parent
        described = subprocess.run(
            ['git', 'describe', '--always', '--dirty', '--abbrev=12'],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ''
    return described.stdout.strip()
