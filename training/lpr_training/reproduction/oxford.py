"""Tables I and III and figures F.1, F.3 to F.5: Oxford RobotCar and the in-house sets."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
import shutil

from matplotlib.figure import Figure
import numpy as np
from tqdm import tqdm

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets import oxford_sets
from lpr_training.datasets.base import PlaceDataset, Subset
from lpr_training.datasets.oxford import OXFORD, POINTS, list_runs, write_oxford
from lpr_training.datasets.oxford_raw import OxfordRawDataset
from lpr_training.evaluation.between_runs import OXFORD_NAMES, Part, evaluate, oxford_parts
from lpr_training.evaluation.methods import Method
from lpr_training.figures import plot_map_at_k
from lpr_training.protocols.runs import OXFORD_RADIUS_M, RunsResult
from lpr_training.reproduction.benchmark import Benchmark
from lpr_training.reproduction.experiments import OXFORD as EXPERIMENTS
from lpr_training.reproduction.results import read_runs
from lpr_training.reproduction.stages import Stage
from lpr_training.reproduction.training import Evaluation, TrainedRun
from lpr_training.tables import Table, Values, ablation_table, oxford_scores, oxford_table

SECONDS_PER_SUBMAP = 1.0  # to gather some hundred raw scans; measured on two cores
SUBMAP_BYTES = POINTS * 3 * 8


class OxfordBenchmark(Benchmark):
    """From raw RobotCar recordings, or the benchmark's own submaps."""

    experiments = EXPERIMENTS

    @property
    def is_raw(self) -> bool:
        """Whether the data are recordings and not submaps."""
        return not list_runs(self.settings.data) and any(
            self.settings.data.glob('*/lms_front.timestamps')
        )

    @property
    def root(self) -> Path:
        """The benchmark_datasets folder: the one given, or the one made of raw recordings."""
        return self.settings.out / 'benchmark_datasets' if self.is_raw else self.settings.data

    def preparation(self) -> list[Stage]:
        """Return one stage per part of a raw run."""
        if not self.is_raw:
            return []
        stages = []
        for part, place in OXFORD.parts.items():
            dataset = OxfordRawDataset(self.settings.data, part=part)
            for run in dict.fromkeys(dataset.runs):
                submaps = Subset(dataset, dataset.indices_of(run))
                stages.append(
                    Stage(
                        f'submaps of {run}, {part}',
                        self.root / OXFORD.folder / run / place.table,
                        partial(_write_submaps, self.root, run, part, submaps),
                        SECONDS_PER_SUBMAP * len(submaps),
                        SUBMAP_BYTES * len(submaps),
                    )
                )
        return stages

    def sample(self) -> tuple[PlaceDataset, int, int]:
        """Return places to time on, and how many are trained and evaluated on."""
        if self.is_raw:
            training = OxfordRawDataset(self.settings.data, part='training')
            return training, len(training), len(OxfordRawDataset(self.settings.data))
        places = oxford_sets.training_dataset(self.root)
        if not len(places):
            raise DatasetError(f'{self.root}: no training place outside the test regions')
        return places, len(places), sum(len(p.places) for p in oxford_parts(self.root))

    def set_names(self) -> Sequence[str]:
        """Return the benchmarks that are there, as the paper calls them."""
        there = ['oxford'] if self.is_raw else oxford_sets.present(self.root)
        return [title for name, title in OXFORD_NAMES.items() if name in there]

    def evaluations(self) -> Mapping[str, Evaluation]:
        """Return the protocol on each set."""
        return {
            part.name: partial(_evaluate_part, part) for part in oxford_parts(self.root)
        }

    def scores(self, run: TrainedRun) -> Values:
        """Return recalls by set."""
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
        """Return figure F.1: MAP@K by set, the mean over seeds."""
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
    # Without a table they are what a killed run of ours left: nobody else writes here.
    shutil.rmtree(root / OXFORD.folder / run / OXFORD.parts[part].clouds, ignore_errors=True)
    bar = tqdm(range(len(submaps)), desc=f'{run} {part}', unit='submap')
    write_oxford(root, run, (submaps[i] for i in bar), part=part)
