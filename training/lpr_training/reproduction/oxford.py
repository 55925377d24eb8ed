"""Tables I and III, figures F.1 and F.3 to F.5: Oxford RobotCar and the In-house sets."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
import shutil

from matplotlib.figure import Figure
import numpy as np
from tqdm import tqdm

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets.base import PlaceDataset, Subset
from lpr_training.datasets.oxford import OXFORD, POINTS, list_runs, write_oxford
from lpr_training.datasets.oxford_raw import OxfordRawDataset
from lpr_training.datasets.splits import oxford as oxford_splits
from lpr_training.evaluation.between_runs import (
    OXFORD_NAMES,
    OXFORD_RADIUS_M,
    Part,
    RunsResult,
    evaluate,
    oxford_parts,
)
from lpr_training.evaluation.methods import Method
from lpr_training.evaluation.paper_tables import (
    Table,
    Values,
    ablation_table,
    oxford_scores,
    oxford_table,
)
from lpr_training.figures import plot_map_at_k
from lpr_training.reproduction.base import Benchmark
from lpr_training.reproduction.experiment_stages import Evaluation, TrainedRun
from lpr_training.reproduction.experiments import OXFORD as EXPERIMENTS
from lpr_training.reproduction.results import read_runs
from lpr_training.reproduction.stages import Stage

SECONDS_PER_SUBMAP = 1.0  # measured on two cores
SUBMAP_BYTES = POINTS * 3 * 8


class OxfordBenchmark(Benchmark):
    """Reproduction from raw RobotCar recordings or from the published submaps."""

    experiments = EXPERIMENTS

    @property
    def is_raw(self) -> bool:
        """Whether the data are raw recordings."""
        return not list_runs(self.settings.data) and any(
            self.settings.data.glob('*/lms_front.timestamps')
        )

    @property
    def root(self) -> Path:
        """The benchmark_datasets folder, given or converted from raw recordings."""
        return self.settings.out / 'benchmark_datasets' if self.is_raw else self.settings.data

    def preparation(self) -> list[Stage]:
        """Return one stage per part of a raw run."""
        if not self.is_raw:
            return []
        stages = []
        for part, target in OXFORD.parts.items():
            dataset = OxfordRawDataset(self.settings.data, part=part)
            for run in dict.fromkeys(dataset.runs):
                submaps = Subset(dataset, dataset.indices_of(run))
                stages.append(
                    Stage(
                        f'submaps of {run}, {part}',
                        self.root / OXFORD.folder / run / target.table,
                        partial(_write_submaps, self.root, run, part, submaps),
                        SECONDS_PER_SUBMAP * len(submaps),
                        SUBMAP_BYTES * len(submaps),
                    )
                )
        return stages

    def sample(self) -> tuple[PlaceDataset, int, int]:
        """Return places for timing, and the numbers of training and evaluation places."""
        if self.is_raw:
            training = OxfordRawDataset(self.settings.data, part='training')
            return training, len(training), len(OxfordRawDataset(self.settings.data))
        places = oxford_splits.training_dataset(self.root)
        if not len(places):
            raise DatasetError(f'{self.root}: no training places outside the test regions')
        return places, len(places), sum(len(p.places) for p in oxford_parts(self.root))

    def set_names(self) -> Sequence[str]:
        """Return the available sets by their names in the paper."""
        available = ['oxford'] if self.is_raw else oxford_splits.present(self.root)
        return [title for name, title in OXFORD_NAMES.items() if name in available]

    def evaluations(self) -> Mapping[str, Evaluation]:
        """Return set -> evaluation."""
        return {part.name: partial(_evaluate_part, part) for part in oxford_parts(self.root)}

    def scores(self, run: TrainedRun) -> Values:
        """Return the recalls per set."""
        return oxford_scores({n: read_runs(run.result(n)) for n in self.set_names()})

    def tables(self, scores: Mapping[str, Values]) -> Mapping[str, Table]:
        """Return Tables I and III."""
        first, third = (
            {
                run.experiment.row: scores[run.experiment.row]
                for run in self.runs
                if table in run.experiment.tables and run.experiment.row in scores
            }
            for table in ('I', 'III')
        )
        return {
            'table1_oxford': oxford_table(self.paper, first),
            'table3_ablation': ablation_table(self.paper, third),
        }

    def curves(self, rows: Mapping[str, Sequence[TrainedRun]]) -> Mapping[str, Figure]:
        """Return figure F.1: MAP@K per set, averaged over seeds."""
        curves = {
            name: {
                row: np.mean([read_runs(run.result(name)).map_curve for run in runs], axis=0)
                for row, runs in rows.items()
                if 'I' in runs[0].experiment.tables
            }
            for name in self.set_names()
        }
        return {'F1_map_at_k': plot_map_at_k(curves)}

    def figure_places(self) -> PlaceDataset:
        """Return the queries of the first set."""
        part = oxford_parts(self.root)[0]
        return Subset(part.places, np.flatnonzero(part.is_query))


def _evaluate_part(part: Part, method: Method) -> RunsResult:
    return evaluate(method, part, OXFORD_RADIUS_M)


def _write_submaps(root: Path, run: str, part: str, submaps: PlaceDataset) -> None:
    # Clouds without a table are left over from an interrupted run.
    shutil.rmtree(root / OXFORD.folder / run / OXFORD.parts[part].clouds, ignore_errors=True)
    bar = tqdm(range(len(submaps)), desc=f'{run} {part}', unit='submap')
    write_oxford(root, run, (submaps[i] for i in bar), part=part)
