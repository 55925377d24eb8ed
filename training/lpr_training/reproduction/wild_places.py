"""Table II and figures F.2 to F.5: Wild-Places between and within sequences."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure
import numpy as np

from lpr_ros.core.errors import DatasetError
from lpr_training.datasets import wild_places
from lpr_training.datasets.base import PlaceDataset, Subset
from lpr_training.datasets.splits import wild_places as wild_places_splits
from lpr_training.evaluation import between_runs, wild_places_intra
from lpr_training.evaluation.between_runs import WILD_PLACES_RADIUS_M, Part, RunsResult
from lpr_training.evaluation.methods import Method
from lpr_training.evaluation.paper_tables import (
    Table,
    Values,
    wild_places_scores,
    wild_places_table,
)
from lpr_training.evaluation.wild_places_intra import IntraResult
from lpr_training.figures import plot_roc
from lpr_training.reproduction.base import Benchmark
from lpr_training.reproduction.experiment_stages import Evaluation, TrainedRun
from lpr_training.reproduction.experiments import WILD_PLACES
from lpr_training.reproduction.results import read_intra, read_runs
from lpr_training.reproduction.stages import Stage


class WildPlacesBenchmark(Benchmark):
    """Reproduction from the released submaps, in either layout."""

    experiments = WILD_PLACES
    remarks = (
        'within a sequence, the last ten minutes are excluded; the published script includes the '
        'oldest frame of them (evaluate.py wild_places_intra --official-window)',
    )

    @property
    def root(self) -> Path:
        """The given folder."""
        return self.settings.data

    def preparation(self) -> list[Stage]:
        """Return no stages: the released files are submaps."""
        return []

    def sample(self) -> tuple[PlaceDataset, int, int]:
        """Return places for timing, and the numbers of training and evaluation places."""
        places = wild_places_splits.training_dataset(self.root)
        if not len(places):
            raise DatasetError(f'{self.root}: no training places outside the test polygons')
        inter = sum(len(part.places) for part in between_runs.wild_places_parts(self.root))
        within = wild_places_intra.open_sequences(self.root).values()
        return places, len(places), inter + sum(map(len, within))

    def set_names(self) -> Sequence[str]:
        """Return the sites, then the sequences."""
        available = wild_places.present(self.root)
        sequences = [s for s in wild_places_splits.INTRA_SEQUENCES if s in available]
        return [*self._sites(), *sequences]

    def _sites(self) -> list[str]:
        return list(dict.fromkeys(wild_places.SITES[s[0]] for s in wild_places.present(self.root)))

    def evaluations(self) -> Mapping[str, Evaluation]:
        """Return the evaluations between the runs of each site and within each sequence."""
        between = {
            part.name: partial(_evaluate_inter, part)
            for part in between_runs.wild_places_parts(self.root)
        }
        sequences = wild_places_intra.open_sequences(self.root)
        within = {name: partial(_evaluate_intra, places) for name, places in sequences.items()}
        return between | within

    def scores(self, run: TrainedRun) -> Values:
        """Return the numbers of Table II."""
        sites, names = self._sites(), self.set_names()
        return wild_places_scores(
            {n: read_intra(run.result(n)) for n in names if n not in sites},
            {n: read_runs(run.result(n)) for n in sites},
        )

    def tables(self, scores: Mapping[str, Values]) -> Mapping[str, Table]:
        """Return Table II."""
        return {'table2_wild_places': wild_places_table(self.paper, scores)}

    def curves(self, rows: Mapping[str, Sequence[TrainedRun]]) -> Mapping[str, Figure]:
        """Return figure F.2: ROC of the first seed."""
        sites = self._sites()
        results = {
            row: {n: read_intra(runs[0].result(n)) for n in self.set_names() if n not in sites}
            for row, runs in rows.items()
        }
        return {'F2_roc': plot_roc(wild_places_intra.roc_curves(results))}

    def figure_places(self) -> PlaceDataset:
        """Return the queries of the first site."""
        part = between_runs.wild_places_parts(self.root)[0]
        return Subset(part.places, np.flatnonzero(part.is_query))


def _evaluate_inter(part: Part, method: Method) -> RunsResult:
    return between_runs.evaluate(method, part, WILD_PLACES_RADIUS_M)


def _evaluate_intra(places: PlaceDataset, method: Method) -> IntraResult:
    return wild_places_intra.evaluate(method, places)
