"""Paper tables: published numbers unchanged, ours next to them, gaps marked."""

import json
from pathlib import Path

import numpy as np
import pytest

from lpr_ros.core.errors import DatasetError
from lpr_training.evaluation import paper_tables
from lpr_training.evaluation.between_runs import Run, evaluate_oxford
from lpr_training.evaluation.paper_tables import (
    ablation_table,
    kitti_bev_table,
    load_paper_tables,
    oxford_scores,
    oxford_table,
    wild_places_scores,
    wild_places_table,
)
from lpr_training.evaluation.wild_places_intra import evaluate_wild_places_intra

PAPER = Path(paper_tables.__file__).with_name('paper_tables.json')
METHOD = 'Ours (C=16, M=16)'


@pytest.fixture
def paper():
    return load_paper_tables(PAPER)


def row_of(table, method):
    return next(row for row in table.rows if row.method == method)


def test_table_pairs_our_number_with_the_published_one(paper):
    table = oxford_table(paper, {METHOD: {'Oxford': {'R@1': 95.5, 'R@1%': 98.0}}})
    row = row_of(table, METHOD)
    assert (row.paper[0], row.ours[0]) == (96.63, 95.5)
    assert row.ours[2] is None
    assert '| 96.63 / 95.50 | 98.87 / 98.00 |' in table.to_markdown()
    written = json.loads(json.dumps(table.to_dict()))['rows'][table.rows.index(row)]
    assert (written['method'], written['ours'][0], written['ours'][2]) == (METHOD, 95.5, None)


def test_method_missing_in_the_paper_gets_a_row(paper):
    table = wild_places_table(paper, {'GeM': {'V-03': {'F1max': 40.0}}})
    row = row_of(table, 'GeM')
    assert row.paper[0] is None
    assert row.ours[0] == 40.0
    assert '- / 40.00' in table.to_markdown()


def test_every_row_has_every_column(paper):
    for table in (
        oxford_table(paper, {}),
        wild_places_table(paper, {}),
        ablation_table(paper, {}),
    ):
        lines = [line for line in table.to_markdown().splitlines() if line.startswith('|')]
        assert {line.count('|') for line in lines} == {len(table.columns) + 2}
        assert len(lines) == len(table.rows) + 2


def test_status_replaces_missing_published_numbers(paper):
    table = ablation_table(paper, {'RBLW on, SVDPI off': {'Oxford': {'R@1': 12.0}}})
    assert 'diverged / 12.00' in table.to_markdown()


def test_scores_are_in_percent():
    rng = np.random.default_rng(0)
    positions = rng.uniform(0, 300, (80, 2))
    runs = [
        Run(name, positions + rng.normal(0, 20, (80, 2)), positions, np.ones(80, dtype=bool))
        for name in 'ab'
    ]
    result = evaluate_oxford(runs)
    one = oxford_scores({'Oxford': result})
    assert one['Oxford']['R@1'] == pytest.approx(100 * result.recall_at_1)
    assert 'Average' not in one
    four = oxford_scores(dict.fromkeys(('Oxford', 'U.S.', 'R.A.', 'B.D.'), result))
    assert four['Average']['R@1%'] == pytest.approx(100 * result.recall_at_one_percent)
    stamps = np.arange(80) * 30_000_000_000
    intra = evaluate_wild_places_intra(positions, positions, stamps)
    scores = wild_places_scores({'V-03': intra}, {'Venman': result})
    assert scores['Venman']['MRR'] == pytest.approx(100 * result.mrr_official)
    assert scores['V-03']['F1max'] == pytest.approx(100 * intra.f1_max)


def test_kitti_table_lists_published_methods():
    text = kitti_bev_table({'MinkLoc3Dv2': 85.0, 'ours': 99.4}).to_markdown()
    assert '| MinkLoc3Dv2 | 86.40 / 85.00 |' in text
    assert '| BEVPlace | 99.30 / - |' in text
    assert '| ours | - / 99.40 |' in text


def test_invalid_table_files_are_rejected(tmp_path):
    with pytest.raises(DatasetError, match='expected the JSON tables'):
        load_paper_tables(tmp_path / 'none.json')
    other = tmp_path / 'other.json'
    other.write_text('{"a": 1}')
    with pytest.raises(DatasetError, match='table1_oxford'):
        load_paper_tables(other)
