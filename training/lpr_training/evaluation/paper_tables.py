"""The tables of the paper with our numbers next to the published ones, as Markdown and JSON.

Our numbers are Scores: method -> dataset -> metric -> percent. Methods are named as in
`paper_tables.json`; methods that the paper does not list get rows of their own below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any, TypeAlias

from lpr_ros.core.errors import DatasetError
from lpr_ros.core.markdown import markdown_table
from lpr_training.evaluation.between_runs import RunsResult
from lpr_training.evaluation.report import Result
from lpr_training.evaluation.wild_places_intra import IntraResult

Values: TypeAlias = Mapping[str, Mapping[str, float | None]]
Scores: TypeAlias = Mapping[str, Values]

OXFORD_SETS = ('Oxford', 'U.S.', 'R.A.', 'B.D.')
INTRA_SETS = ('V-03', 'V-04', 'K-03', 'K-04')
INTER_SETS = ('Venman', 'Karawatha')
MISSING = '-'


@dataclass(frozen=True)
class Row:
    """The published and our numbers of one method in percent, in column order."""

    method: str
    paper: tuple[float | None, ...]
    ours: tuple[float | None, ...]
    status: str = 'ok'  # published instead of numbers, e.g. diverged


@dataclass(frozen=True, eq=False)
class Table(Result):
    """A table with cells of the form `paper / ours`."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def to_markdown(self) -> str:
        """Return the table as GitHub markdown."""
        rows = [(row.method, *_cells(row)) for row in self.rows]
        table = markdown_table(('method', *self.columns), rows)
        return f'**{self.title}** (paper / ours, %)\n\n{table}'


def load_paper_tables(path: Path) -> dict[str, Any]:
    """Read `paper_tables.json`."""
    try:
        tables: dict[str, Any] = json.loads(Path(path).read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise DatasetError(f'{path}: expected the JSON tables of the paper: {error}') from error
    missing = {'table1_oxford', 'table2_wildplaces', 'table3_ablation'} - set(tables)
    if missing:
        raise DatasetError(
            f'{path}: key {sorted(missing)[0]!r} is missing, found {sorted(tables)}'
        )
    return tables


def oxford_table(paper: Mapping[str, Any], ours: Scores) -> Table:
    """Return Table I: recall on Oxford and the In-house areas."""
    columns = _columns((*OXFORD_SETS, 'Average'), ('R@1', 'R@1%'))
    published = {row['method']: row['values'] for row in paper['table1_oxford']['rows']}
    return _table('Table I: Oxford and In-house', columns, published, ours)


def wild_places_table(paper: Mapping[str, Any], ours: Scores) -> Table:
    """Return Table II: Wild-Places within and between sequences."""
    columns = [*_columns(INTRA_SETS, ('F1max', 'R@1')), *_columns(INTER_SETS, ('R@1', 'MRR'))]
    published = {
        row['method']: row['intra'] | row['inter'] for row in paper['table2_wildplaces']['rows']
    }
    return _table('Table II: Wild-Places', columns, published, ours)


def ablation_table(paper: Mapping[str, Any], ours: Scores) -> Table:
    """Return Table III: ablation of the whitening, and other backbones."""
    rows = paper['table3_ablation']['rows']
    published = {row['name']: row['values'] or {} for row in rows}
    status = {row['name']: row['status'] for row in rows}
    columns = _columns(OXFORD_SETS, ('R@1', 'R@1%'))
    return _table('Table III: ablation', columns, published, ours, status)


def kitti_bev_table(ours: Mapping[str, float], sequence: str = '05') -> Table:
    """Return the comparison on KITTI bird's-eye images, with a random yaw per scan."""
    published = {
        method: {sequence: {'R@1': values[sequence]}} for method, values in KITTI_BEV.items()
    }
    scores = {method: {sequence: {'R@1': value}} for method, value in ours.items()}
    return _table(f'KITTI {sequence}', _columns((sequence,), ('R@1',)), published, scores)


# Recall@1 under random yaw, published with BEVPlace (Luo et al., ICCV 2023).
KITTI_BEV: dict[str, dict[str, float]] = {
    'PointNetVLAD': {'00': 91.6, '02': 62.3, '05': 76.9, '06': 77.8},
    'MinkLoc3Dv2': {'00': 95.9, '02': 72.3, '05': 86.4, '06': 80.4},
    'OverlapTransformer': {'00': 96.7, '02': 80.1, '05': 91.9, '06': 95.6},
    'BEVPlace': {'00': 99.7, '02': 98.1, '05': 99.3, '06': 100.0},
}


# Scan Context: candidates at least 300 frames older, correct within 4 m.
SCAN_CONTEXT_KITTI: dict[str, dict[str, float]] = {
    '00': {'f1_max': 0.958, 'recall_at_1': 0.985},
    '02': {'f1_max': 0.849, 'recall_at_1': 0.860},
    '05': {'f1_max': 0.923, 'recall_at_1': 0.952},
    '08': {'f1_max': 0.622, 'recall_at_1': 0.890},
}


def oxford_scores(results: Mapping[str, RunsResult]) -> Values:
    """Return the percentages of one method per dataset, and their average over all four."""
    scores: dict[str, dict[str, float | None]] = {
        name: {'R@1': 100 * r.recall_at_1, 'R@1%': 100 * r.recall_at_one_percent}
        for name, r in results.items()
    }
    if set(OXFORD_SETS) <= set(results):
        chosen = [results[name] for name in OXFORD_SETS]
        scores['Average'] = {
            'R@1': 100 * sum(r.recall_at_1 for r in chosen) / len(chosen),
            'R@1%': 100 * sum(r.recall_at_one_percent for r in chosen) / len(chosen),
        }
    return scores


def wild_places_scores(
    intra: Mapping[str, IntraResult], inter: Mapping[str, RunsResult]
) -> Values:
    """Return the percentages of one method, with the official MRR as in the paper."""
    within = {n: {'F1max': 100 * r.f1_max, 'R@1': 100 * r.recall_at_1} for n, r in intra.items()}
    between = {
        n: {'R@1': 100 * r.recall_at_1, 'MRR': 100 * r.mrr_official} for n, r in inter.items()
    }
    return within | between


def _columns(sets: Sequence[str], metrics: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, metric) for name in sets for metric in metrics]


def _table(
    title: str,
    columns: Sequence[tuple[str, str]],
    published: Scores,
    ours: Scores,
    status: Mapping[str, str] | None = None,
) -> Table:
    methods = [*published, *(method for method in ours if method not in published)]
    rows = [
        Row(
            method,
            tuple(_lookup(published.get(method, {}), column) for column in columns),
            tuple(_lookup(ours.get(method, {}), column) for column in columns),
            (status or {}).get(method, 'ok'),
        )
        for method in methods
    ]
    return Table(title, tuple(' '.join(column) for column in columns), tuple(rows))


def _lookup(values: Values, column: tuple[str, str]) -> float | None:
    return values.get(column[0], {}).get(column[1])


def _cells(row: Row) -> list[str]:
    absent = MISSING if row.status == 'ok' else row.status
    return [
        f'{_number(paper, absent)} / {_number(our, MISSING)}'
        for paper, our in zip(row.paper, row.ours, strict=True)
    ]


def _number(value: float | None, absent: str) -> str:
    return absent if value is None or value != value else f'{value:.2f}'
