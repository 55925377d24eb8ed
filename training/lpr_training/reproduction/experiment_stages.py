"""The stages of one experiment: train with a seed, then evaluate on every set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
import logging
from pathlib import Path

from lpr_training.config import TrainConfig
from lpr_training.engine import DivergenceError
from lpr_training.evaluation.methods import CheckpointMethod, Method, ScanContextMethod
from lpr_training.evaluation.report import write_json
from lpr_training.fit import fit
from lpr_training.protocols.results import Result
from lpr_training.reproduction.experiments import Experiment
from lpr_training.reproduction.results import read_json
from lpr_training.reproduction.settings import Settings
from lpr_training.run_folder import LAST, STATE

logger = logging.getLogger(__name__)

DONE = 'trained.json'
Evaluation = Callable[[Method], Result]


@dataclass(frozen=True)
class TrainedRun:
    """One experiment with one seed, and where what it leaves lies."""

    experiment: Experiment
    seed: int
    settings: Settings

    @property
    def label(self) -> str:
        """Name of the run in messages and paths."""
        return f'{self.experiment.name}/seed_{self.seed}'

    @property
    def folder(self) -> Path:
        """Where the run is trained."""
        return self.settings.out / 'runs' / self.label

    @property
    def weights(self) -> Path:
        """The weights of the last epoch: the paper selects no model."""
        return self.folder / LAST

    @property
    def diverged(self) -> bool:
        """Whether training stopped on a value that is not finite."""
        return self.is_trained and read_json(self.end)['status'] == 'diverged'

    @property
    def is_trained(self) -> bool:
        """Whether training came to an end."""
        return self.end.exists()

    @property
    def end(self) -> Path:
        """What is written when training came to an end, well or not."""
        return self.folder / DONE

    @property
    def config(self) -> TrainConfig:
        """What is trained."""
        return self.experiment.configure(
            self.settings.assignments, self.settings.epochs, self.seed
        )

    def result(self, name: str) -> Path:
        """Where the result on one set lies."""
        return self.settings.out / 'results' / self.label / f'{name}.json'

    def train(self, root: Path) -> None:
        """Train, or go on; a run that diverges is a result too, as in the paper."""
        resume = (self.folder / STATE).exists()
        outcome: dict[str, object] = {'status': 'ok', 'epochs': self.config.epochs}
        try:
            fit(self.config, root, self.folder, resume=resume, device=self.settings.device)
        except DivergenceError as error:
            logger.warning('%s diverged: %s', self.label, error)
            outcome = {'status': 'diverged', 'message': str(error)}
        write_json(self.end, outcome)

    def evaluate(self, name: str, evaluation: Evaluation) -> None:
        """Evaluate on one set; nothing is left of a run that diverged but the fact."""
        if self.diverged:
            write_json(self.result(name), {'status': 'diverged'})
            return
        write_json(self.result(name), evaluation(self.method()).to_dict())

    def method(self) -> Method:
        """Build what is evaluated."""
        if not self.experiment.config:
            return ScanContextMethod()
        method = CheckpointMethod(
            self.weights, device=self.settings.device, name=self.experiment.row
        )
        method.batch = self.settings.batch
        return method


def runs_by_row(runs: 'list[TrainedRun]') -> Mapping[str, 'list[TrainedRun]']:
    """Group the runs that did not diverge by the row of the table they are seeds of."""
    rows: dict[str, list[TrainedRun]] = {}
    for run in runs:
        if not run.diverged:
            rows.setdefault(run.experiment.row, []).append(run)
    return rows
