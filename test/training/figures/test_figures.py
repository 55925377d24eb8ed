"""Figures render without pyplot, and the computations behind them are correct."""

from io import BytesIO
from itertools import permutations
import subprocess
import sys

from matplotlib.figure import Figure
import numpy as np
import pytest

from lpr_training import figures
from lpr_training.analysis.effective_rank import effective_rank, rank
from lpr_training.analysis.ica import fit_ica
from lpr_training.analysis.wasserstein import between_cells, exact_w2, gaussian_w2

RNG = np.random.default_rng


def ramp(count=10):
    return np.linspace(0, 1, count)


def make_matches():
    positions = np.stack([np.cos(ramp(40) * 12), np.sin(ramp(40) * 12)], axis=1) * 50
    queries = np.arange(20, 40)
    correct = queries % 3 > 0
    return positions, queries, queries - 20, correct, np.ones(20, dtype=bool), queries % 5 > 0


FIGURES = {
    'map_at_k': lambda: figures.plot_map_at_k({'Oxford': {'a': ramp(), 'b': ramp() / 2}}),
    'roc': lambda: figures.plot_roc({'V-03': {'a': (ramp(), ramp())}, 'V-04': {}}),
    'precision_recall': lambda: figures.plot_precision_recall({'a': (ramp(), 1 - ramp() / 2)}),
    'ranks': lambda: figures.plot_ranks({'S': np.eye(16)[None].repeat(5, axis=0)}),
    'cell_distances': lambda: figures.plot_cell_distances({'a': np.eye(4), 'b': 2 * np.eye(4)}),
    'cells': lambda: figures.plot_cells(
        RNG(0).normal(size=(60, 3, 4)),
        RNG(1).normal(size=(60, 3, 4)),
        0,
        [1, 2, 3],
        [0, 2],
        RNG(2),
    ),
    'matches': lambda: figures.plot_matches(*make_matches(), title='drive'),
    'history': lambda: figures.plot_history({'loss': {'train': (ramp(), ramp() + 1)}}),
}


@pytest.mark.filterwarnings('ignore:No artists with labels')
@pytest.mark.parametrize('name', FIGURES)
def test_figure_renders(name):
    figure = FIGURES[name]()
    assert isinstance(figure, Figure)
    for suffix in ('png', 'pdf'):
        file = BytesIO()
        figure.savefig(file, format=suffix)
        assert len(file.getvalue()) > 1000


def test_figures_do_not_import_pyplot():
    code = 'import sys, lpr_training.figures; sys.exit("matplotlib.pyplot" in sys.modules)'
    env_path = ':'.join(sys.path)
    finished = subprocess.run([sys.executable, '-c', code], env={'PYTHONPATH': env_path})
    assert finished.returncode == 0


def test_legend_counts_the_matches():
    axes = figures.plot_matches(*make_matches()).axes[0]
    _, queries, _, correct, _, detected = make_matches()
    labels = axes.get_legend_handles_labels()[1]
    assert f'correct ({(correct & detected).sum()})' in labels
    assert f'wrong ({(~correct & detected).sum()})' in labels
    assert f'missed ({(~detected).sum()})' in labels
    assert len(queries) == 20


def test_ranks_on_hand_computed_cases():
    spectra = np.stack(
        [np.diag([1.0, 1, 0, 0]), np.diag([1.0, 1, 1, 1]), np.diag([1.0, 1e-6, 0, 0])]
    )
    assert rank(spectra).tolist() == [2, 4, 1]
    np.testing.assert_allclose(effective_rank(spectra), [2, 4, 1], atol=2e-3)
    rotation = np.linalg.qr(RNG(0).normal(size=(4, 4)))[0]
    np.testing.assert_allclose(
        effective_rank(rotation @ spectra @ rotation.T), effective_rank(spectra)
    )


def test_w2_equals_the_best_of_all_permutations():
    a, b = RNG(0).normal(size=(2, 6, 3))
    best = min(np.square(a - b[list(p)]).sum(axis=1).mean() for p in permutations(range(6)))
    assert exact_w2(a, b) == pytest.approx(np.sqrt(best))
    with pytest.raises(ValueError, match='6 and 5'):
        exact_w2(a, b[:5])


@pytest.mark.parametrize('distance', [exact_w2, gaussian_w2])
def test_w2_of_a_shift_is_its_length(distance):
    a = RNG(1).normal(size=(50, 4))
    shifted = RNG(2).permutation(a + np.array([3.0, 4, 0, 0]))
    assert distance(a, shifted) == pytest.approx(5.0)
    assert distance(a, a[::-1]) == pytest.approx(0.0, abs=1e-6)


def test_gaussian_w2_of_a_known_pair_bounds_exact_w2():
    rng = RNG(3)
    a, b = rng.normal(size=(400, 3)), rng.normal(size=(400, 3)) * [1, 2, 3] + [1, 0, 0]
    truth = np.sqrt(
        1 + (2 - 1) ** 2 + (3 - 1) ** 2
    )  # diagonal covariances: difference of standard deviations
    assert gaussian_w2(a, b) == pytest.approx(truth, rel=0.1)
    assert exact_w2(a, b) == pytest.approx(gaussian_w2(a, b), rel=0.1)
    assert gaussian_w2(a, b) <= exact_w2(a, b) + 1e-9  # a lower bound (Gelbrich)


def test_between_cells_is_a_metric_matrix():
    vectors = RNG(4).normal(size=(30, 4, 3)) + np.arange(4)[None, :, None]
    for gaussian in (False, True):
        matrix = between_cells(vectors, gaussian)
        np.testing.assert_allclose(matrix, matrix.T)
        assert (np.diag(matrix) == 0).all()
        assert matrix[0, 3] > matrix[0, 1] > 0


def test_ica_recovers_independent_sources():
    rng = RNG(5)
    sources = np.stack([rng.laplace(size=3000), rng.uniform(-1, 1, 3000)], axis=1)
    mixed = sources @ rng.normal(size=(2, 5)) + 7.0
    found = fit_ica(mixed, 2, RNG(0)).apply(mixed)
    np.testing.assert_allclose(np.cov(found, rowvar=False, bias=True), np.eye(2), atol=1e-6)
    correlation = np.abs(np.corrcoef(found.T, sources.T)[:2, 2:])
    assert correlation.max(axis=0).min() > 0.99
    assert sorted(correlation.argmax(axis=0)) == [0, 1]


def test_ica_is_deterministic_and_rejects_low_rank_data():
    x = RNG(6).laplace(size=(200, 4))
    np.testing.assert_array_equal(fit_ica(x, 2, RNG(1)).matrix, fit_ica(x, 2, RNG(1)).matrix)
    with pytest.raises(ValueError, match='rank 2 or more'):
        fit_ica(np.outer(np.arange(9.0), np.ones(4)), 2, RNG(1))
