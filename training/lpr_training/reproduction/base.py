"""Base class of the two benchmarks: runs, stages, tables and figures."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
import numpy as np

from lpr_ros.core.files import atomic_file
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_training.datasets.base import PlaceDataset
from lpr_training.evaluation.paper_tables import Table, Values, load_paper_tables
from lpr_training.evaluation.report import write_figures, write_json
from lpr_training.reproduction.estimates import Cost, measure
from lpr_training.reproduction.experiment_stages import Evaluation, TrainedRun, runs_by_row
from lpr_training.reproduction.experiments import MAIN, Experiment, choose
from lpr_training.reproduction.head_activations import head_activations
from lpr_training.reproduction.head_figures import cell_figures
from lpr_training.reproduction.results import mean_of, read_json, spread_of
from lpr_training.reproduction.settings import Settings
from lpr_training.reproduction.stages import Stage

RESULT_BYTES = 3e5
NO_COST = Cost(seconds_to_train=0.0, seconds_to_describe=1e-3, disk_bytes=0.0)


class Benchmark(ABC):
    """Plans the stages from the data to tables and figures."""

    experiments: Sequence[Experiment]
    remarks: Sequence[str] = ()  # listed below every table

    def __init__(self, settings: Settings):
        self.settings = settings
        chosen = choose(self.experiments, settings.only)
        self.runs = [
            TrainedRun(experiment, seed, settings)
            for experiment in chosen
            for seed in (settings.seeds if experiment.is_main else settings.seeds[:1])
        ]
        self.paper = load_paper_tables(settings.paper)

    @property
    @abstractmethod
    def root(self) -> Path:
        """Folder of the benchmark files, which may be written by the preparation."""

    @abstractmethod
    def preparation(self) -> list[Stage]:
        """Return the stages that convert raw files to benchmark files."""

    @abstractmethod
    def sample(self) -> tuple[PlaceDataset, int, int]:
        """Return places for timing, and the numbers of training and evaluation places."""

    @abstractmethod
    def evaluations(self) -> Mapping[str, Evaluation]:
        """Return set -> evaluation of a method."""

    @abstractmethod
    def scores(self, run: TrainedRun) -> Values:
        """Return the percentages of one evaluated run."""

    @abstractmethod
    def tables(self, scores: Mapping[str, Values]) -> Mapping[str, Table]:
        """Return file name -> table."""

    @abstractmethod
    def curves(self, rows: Mapping[str, Sequence[TrainedRun]]) -> Mapping[str, Figure]:
        """Return the figures with curves (F.1 or F.2)."""

    @abstractmethod
    def figure_places(self) -> PlaceDataset:
        """Return the test clouds of figures F.3 to F.5."""

    def stages(self) -> list[Stage]:
        """Return all stages in order."""
        places, trained, evaluated = self.sample()
        stages = self.preparation()
        costs: dict[str, Cost] = {}
        for run in self.runs:
            name = run.experiment.name
            if run.experiment.config and name not in costs and not self._is_complete(run):
                costs[name] = measure(run.config, places, self.settings.device)
            stages += self._run_stages(run, costs.get(name, NO_COST), trained, evaluated)
        return [*stages, self._cells_stage(), self._tables_stage()]

    def _is_complete(self, run: TrainedRun) -> bool:
        return run.is_trained and all(run.result(name).exists() for name in self.set_names())

    def _run_stages(
        self, run: TrainedRun, cost: Cost, trained: int, evaluated: int
    ) -> list[Stage]:
        stages = []
        if run.experiment.config:
            seconds = trained * run.config.epochs * cost.seconds_to_train
            work = partial(run.train, self.root)
            stages.append(Stage(f'train {run.label}', run.end, work, seconds, cost.disk_bytes))
        names = self.set_names()
        seconds = evaluated * cost.seconds_to_describe / len(names)
        for name in names:
            work = partial(self._evaluate, run, name)
            label = f'evaluate {run.label} on {name}'
            stages.append(Stage(label, run.result(name), work, seconds, RESULT_BYTES))
        return stages

    @abstractmethod
    def set_names(self) -> Sequence[str]:
        """Return the names of the evaluated sets."""

    def _evaluate(self, run: TrainedRun, name: str) -> None:
        run.evaluate(name, self.evaluations()[name])

    def _cells_stage(self) -> Stage:
        product = self.settings.out / 'figures' / 'cells.json'
        chosen = set(self._cell_runs())
        if product.exists() and MAIN in chosen and chosen - set(read_json(product)['models']):
            product = self._never  # the figures lack experiments that are finished by now
        return Stage('figures F.3 to F.5', product, self._draw_cells, 60.0, 2e6)

    def _cell_runs(self) -> dict[str, TrainedRun]:
        """Return row -> run for the models whose cells are plotted."""
        chosen = {}
        for row, runs in runs_by_row(self.runs).items():
            is_small = row == MAIN or 'III' in runs[0].experiment.tables
            if is_small and runs[0].config.model.pooling.kind == 'whitened':
                chosen[row] = runs[0]
        return chosen

    def _draw_cells(self) -> None:
        chosen = self._cell_runs()
        if MAIN not in chosen:
            return
        places = self.figure_places()
        count = min(self.settings.figure_clouds, len(places))
        indices = np.linspace(0, len(places) - 1, count).astype(np.int64)
        models = {
            row: head_activations(load_checkpoint(run.weights).build(), places, indices)
            for row, run in chosen.items()
        }
        folder = self.settings.out / 'figures'
        write_figures(folder, cell_figures(models, MAIN))
        write_json(folder / 'cells.json', {'clouds': count, 'models': list(models)})

    def _tables_stage(self) -> Stage:
        # Always repeated: it is cheap, and includes the runs finished so far.
        work = self.write_tables
        return Stage('tables, and figure F.1 or F.2', self._never, work, 10.0, 1e6)

    @property
    def _never(self) -> Path:
        """A product that is never written, so that its stage always runs."""
        return self.settings.out / '.never'

    def write_tables(self) -> None:
        """Write the tables and curves of all runs evaluated so far."""
        rows = runs_by_row(self.runs)
        per_seed = {row: [self.scores(run) for run in runs] for row, runs in rows.items()}
        means = {row: mean_of(scores) for row, scores in per_seed.items()}
        write_json(self.settings.out / 'scores.json', _all_scores(per_seed))
        for name, table in self.tables(means).items():
            write_json(self.settings.out / f'{name}.json', table.to_dict())
            with atomic_file(self.settings.out / f'{name}.md') as partial_file:
                partial_file.write_text(table.to_markdown() + self._notes(), encoding='utf-8')
        write_figures(self.settings.out / 'figures', self.curves(rows))

    def _notes(self) -> str:
        lines = [f'- {remark}' for remark in self.remarks]
        for run in self.runs:
            if run.diverged:
                outcome = read_json(run.end)
                lines.append(f'- {run.experiment.row}: ours diverged, {outcome["message"]}')
        seeds = len(self.settings.seeds)
        if seeds > 1:
            lines.append(f'- {MAIN} and MinkLoc3Dv2: our numbers are means over {seeds} seeds')
        return '\n' + '\n'.join(lines) + '\n' if lines else ''


def _all_scores(per_seed: Mapping[str, Sequence[Values]]) -> dict[str, Any]:
    return {
        row: {'mean': mean_of(scores), 'deviation': spread_of(scores), 'seeds': list(scores)}
        for row, scores in per_seed.items()
    }
