"""One experiment with one seed: training, then evaluation on every set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
import logging
from pathlib import Path

from lpr_training.evaluation.methods import CheckpointMethod, Method, ScanContextMethod
from lpr_training.evaluation.report import Result, write_json
from lpr_training.reproduction.experiments import Experiment
from lpr_training.reproduction.results import read_json
from lpr_training.reproduction.settings import Settings
from lpr_training.train.config import TrainConfig
from lpr_training.train.run import fit
from lpr_training.train.run_folder import LAST, STATE
from lpr_training.train.trainer import DivergenceError

logger = logging.getLogger(__name__)

DONE = 'trained.json'
Evaluation = Callable[[Method], Result]


@dataclass(frozen=True)
class TrainedRun:
    """One experiment with one seed, and the paths of its files."""

    experiment: Experiment
    seed: int
    settings: Settings

    @property
    def label(self) -> str:
        """Name of the run in messages and paths."""
        return f'{self.experiment.name}/seed_{self.seed}'

    @property
    def folder(self) -> Path:
        """Folder of the training run."""
        return self.settings.out / 'runs' / self.label

    @property
    def weights(self) -> Path:
        """Weights of the last epoch; the paper does not select by validation."""
        return self.folder / LAST

    @property
    def diverged(self) -> bool:
        """Whether training stopped because of a non-finite value."""
        return self.is_trained and read_json(self.end)['status'] == 'diverged'

    @property
    def is_trained(self) -> bool:
        """Whether training has finished or diverged."""
        return self.end.exists()

    @property
    def end(self) -> Path:
        """File that is written when training has finished or diverged."""
        return self.folder / DONE

    @property
    def config(self) -> TrainConfig:
        """Training configuration."""
        return self.experiment.configure(
            self.settings.assignments, self.settings.epochs, self.seed
        )

    def result(self, name: str) -> Path:
        """Return the path of the result on one set."""
        return self.settings.out / 'results' / self.label / f'{name}.json'

    def train(self, root: Path) -> None:
        """Train or resume; divergence is recorded as a result, as in the paper."""
        resume = (self.folder / STATE).exists()
        outcome: dict[str, object] = {'status': 'ok', 'epochs': self.config.epochs}
        try:
            fit(self.config, root, self.folder, resume=resume, device=self.settings.device)
        except DivergenceError as error:
            logger.warning('%s diverged: %s', self.label, error)
            outcome = {'status': 'diverged', 'message': str(error)}
        write_json(self.end, outcome)

    def evaluate(self, name: str, evaluation: Evaluation) -> None:
        """Evaluate on one set, or record that the run diverged."""
        if self.diverged:
            write_json(self.result(name), {'status': 'diverged'})
            return
        write_json(self.result(name), evaluation(self.method()).to_dict())

    def method(self) -> Method:
        """Return the method to evaluate."""
        if not self.experiment.config:
            return ScanContextMethod()
        method = CheckpointMethod(
            self.weights, device=self.settings.device, name=self.experiment.row
        )
        method.batch = self.settings.batch
        return method


def runs_by_row(runs: 'list[TrainedRun]') -> Mapping[str, 'list[TrainedRun]']:
    """Group the runs that did not diverge by table row."""
    rows: dict[str, list[TrainedRun]] = {}
    for run in runs:
        if not run.diverged:
            rows.setdefault(run.experiment.row, []).append(run)
    return rows
