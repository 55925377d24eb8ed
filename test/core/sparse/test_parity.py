"""Same weights, same cloud: the descriptor and gradients of MinkowskiEngine.

Everywhere against its stored outputs; against the engine itself where it is installed.
"""

from make_minkowski_reference import (
    HEADS,
    REFERENCE,
    cases,
    gradients_of,
    make_clouds,
    published_model,
    set_weights,
    summary_of,
)
import numpy as np
import pytest
import torch
from toy_clouds import random_walk

from lpr_ros.core.errors import BackendError
from lpr_ros.core.model.config import PRESETS, ModelConfig
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.sparse import collate, load_backend

CASES = pytest.mark.parametrize(
    ('case', 'backbone', 'pooling'), cases(), ids=[case for case, _, _ in cases()]
)
# Biases that a batch norm, the softmax or the centering cancels have no gradient but rounding.
ROUNDING = 1e-6


@pytest.fixture(scope='module')
def reference():
    with np.load(REFERENCE) as stored:
        return dict(stored)


@pytest.fixture(scope='module')
def batch():
    return collate(make_clouds())


@pytest.fixture
def minkowski():
    try:
        return load_backend('minkowski')
    except BackendError as error:
        pytest.skip(str(error))


def build(backbone, pooling, backend='torch'):
    model = PlaceModel(ModelConfig(backbone=backbone, pooling=pooling), backend)
    set_weights(model)
    return model.eval()


def relative_error(ours, reference):
    """Return the largest relative distance between two sets of descriptors."""
    distances = np.linalg.norm(ours - reference, axis=1)
    return (distances / np.linalg.norm(reference, axis=1)).max()


@CASES
def test_descriptors_and_gradients_equal_the_stored_ones(
    case, backbone, pooling, reference, batch
):
    model = build(backbone, pooling)
    with torch.no_grad():
        descriptors = model(batch).numpy()
    assert relative_error(descriptors, reference[f'{case}/descriptors']) < 1e-4
    gradients = gradients_of(model, batch)
    expected = reference[f'{case}/gradients']
    assert sorted(gradients) == reference[f'{case}/names'].tolist()
    total = np.linalg.norm(expected[:, 0])
    for name, (norm, component) in zip(sorted(gradients), expected, strict=True):
        tolerance = 1e-3 * norm + ROUNDING * total
        assert summary_of(name, gradients[name]) == pytest.approx(
            (norm, component), abs=tolerance
        ), name


@pytest.mark.filterwarnings('ignore::UserWarning', 'ignore::DeprecationWarning')
@pytest.mark.parametrize(
    ('name', 'backends'),
    [
        ('minkloc3d', ('torch',)),
        ('minkloc3dv2', ('torch', 'minkowski')),
        ('wild_places', ('torch',)),
    ],
)
def test_backends_equal_the_engine_in_every_gradient(name, backends, batch, minkowski):
    backbone, pooling = PRESETS[name]().backbone, HEADS['whitened']
    published = published_model(backbone, pooling)
    set_weights(published)
    with torch.no_grad():
        descriptors = published.eval()(batch).numpy()
    expected = gradients_of(published, batch)
    total = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    for backend in backends:
        model = build(backbone, pooling, backend)
        assert model.state_dict().keys() == published.state_dict().keys()
        with torch.no_grad():
            assert relative_error(model(batch).numpy(), descriptors) < 1e-4, backend
        for parameter, gradient in gradients_of(model, batch).items():
            error = (gradient - expected[parameter]).norm()
            tolerance = 1e-3 * expected[parameter].norm() + ROUNDING * total
            assert error <= tolerance, (backend, parameter)


def test_cloud_means_of_both_backends_are_those_of_each_cloud(minkowski, rng):
    """Five clouds, as global pooling of MinkowskiEngine mixes up three or more."""
    batch = collate([random_walk(rng, count) for count in (50, 80, 20, 140, 5)])
    kernel = torch.randn(8, 1, 4)
    for ops in (load_backend('torch'), minkowski):
        layer = ops.Conv(1, 4, 2, stride=2)
        layer.kernel = torch.nn.Parameter(kernel)
        with torch.no_grad():
            x = layer(ops.tensor(batch))
            features, counts = ops.cloud_features(x)
            expected = torch.stack([part.mean(dim=0) for part in features.split(counts)])
            torch.testing.assert_close(ops.cloud_mean(x), expected)


def test_stored_reference_is_small():
    assert REFERENCE.stat().st_size < 300_000
