"""Descriptor extraction, and the number of host-device synchronizations of the model."""

import ast
from collections import Counter
from dataclasses import replace
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from toy_clouds import random_scene, tiny_config

import lpr_ros.core
from lpr_ros.core.errors import BackendError, CloudError
from lpr_ros.core.model.checkpoint import from_model, save_checkpoint
from lpr_ros.core.model.config import ModelConfig
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor, choose_device
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.quantize import quantize
from lpr_ros.core.sparse import collate, kernel_map

CORE = Path(lpr_ros.core.__file__).parent


def test_describe_equals_quantize_collate_and_model(tiny_model, scene):
    extractor = NetworkDescriptorExtractor(tiny_model, device='cpu')
    descriptor = extractor.describe(scene)
    with torch.no_grad():
        expected = tiny_model(collate([quantize(scene, tiny_model.config.input)]))[0]
    assert descriptor.shape == (extractor.dim,) == (30,)
    assert descriptor.dtype == np.float32
    assert np.array_equal(descriptor, expected.numpy())


def test_batch_equals_one_by_one_and_order_of_points_does_not_matter(tiny_model, rng):
    extractor = NetworkDescriptorExtractor(tiny_model, device='cpu')
    scenes = [random_scene(rng, points) for points in (1500, 300, 700)]
    together = extractor.describe_quantized([quantize(s, extractor.input) for s in scenes])
    alone = np.stack([extractor.describe(rng.permutation(s)) for s in scenes])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


def test_extractor_runs_in_eval_mode_without_gradients(tiny_model, scene):
    extractor = NetworkDescriptorExtractor(tiny_model.train(), device='cpu')
    before = {name: tensor.clone() for name, tensor in tiny_model.state_dict().items()}
    first, second = extractor.describe(scene), extractor.describe(scene)
    assert np.array_equal(first, second)
    assert all(torch.equal(before[n], t) for n, t in tiny_model.state_dict().items())


def test_describe_creates_no_reference_cycles(tiny_model, scene):
    """Cycles would keep megabytes per cloud until the garbage collector runs."""
    extractor = NetworkDescriptorExtractor(tiny_model, device='cpu')
    extractor.describe(scene)
    gc.collect()
    gc.disable()
    try:
        extractor.describe(scene)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_extractor_from_a_file_equals_the_model(tiny_model, scene, tmp_path):
    save_checkpoint(tmp_path / 'model.safetensors', from_model(tiny_model))
    loaded = NetworkDescriptorExtractor.load(
        tmp_path / 'model.safetensors', device='cpu', backend='torch'
    )
    expected = NetworkDescriptorExtractor(tiny_model, device='cpu').describe(scene)
    assert np.array_equal(loaded.describe(scene), expected)


def test_bfloat16_stays_close_to_float32(scene, rng):
    """The nearest float32 descriptor is that of the same place."""
    scenes = [scene, *(random_scene(rng) for _ in range(3))]
    model = PlaceModel(tiny_config('gem')).eval()
    full = np.stack([NetworkDescriptorExtractor(model, device='cpu').describe(s) for s in scenes])
    coarse = NetworkDescriptorExtractor(model, device='cpu', precision='bfloat16')
    half = np.stack([coarse.describe(s) for s in scenes])
    assert half.dtype == np.float32
    errors = np.linalg.norm(half - full, axis=1)
    assert (errors < 0.05 * np.linalg.norm(full, axis=1)).all()
    distances = np.linalg.norm(half[:, None] - full, axis=2)
    assert (distances.argmin(axis=1) == np.arange(len(scenes))).all()


def test_unknown_device_and_precision_are_refused(tiny_model):
    with pytest.raises(BackendError, match=r"'tpu' is not one of \['auto', 'cpu', 'cuda'\]"):
        NetworkDescriptorExtractor(tiny_model, device='tpu')
    with pytest.raises(BackendError, match="'float16' is not one of"):
        NetworkDescriptorExtractor(tiny_model, precision='float16')


def test_cuda_is_preferred_if_available_and_refused_if_not(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    assert choose_device('auto') == choose_device('cpu') == torch.device('cpu')
    with pytest.raises(BackendError, match='no CUDA device'):
        choose_device('cuda')
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    assert choose_device('auto') == choose_device('cuda') == torch.device('cuda')
    assert choose_device('cpu') == torch.device('cpu')


def test_bad_points_never_reach_the_model(tiny_model):
    with pytest.raises(CloudError, match='no point within'):
        NetworkDescriptorExtractor(tiny_model, device='cpu').describe(np.full((5, 3), 100.0))


# Host synchronizations

# Operators whose output size or value the host must wait for.
WAITING = (
    'nonzero',
    'nonzero_numpy',
    '_unique2',
    'unique_dim',
    'unique_consecutive',
    'masked_select',
    '_local_scalar_dense',
    'bincount',
    'is_nonzero',
    'equal',
)
# Methods that read a tensor on the host; on the CPU some of them do not dispatch.
READING = ('tolist', 'item', 'cpu', 'numpy', '__bool__', '__int__', '__float__', '__index__')


class SyncCounter(TorchDispatchMode):
    """Count operations that would make the host wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._reader = _ReadCounter(self.counts)

    def __enter__(self) -> 'SyncCounter':
        super().__enter__()
        self._reader.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._reader.__exit__(*error)
        super().__exit__(*error)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = function.overloadpacket.__name__
        has_unknown_size = name == 'repeat_interleave' and kwargs.get('output_size') is None
        has_mask = name in ('index', 'index_put', 'index_put_') and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        crosses = name in ('_to_copy', 'copy_') and (
            args[-1 if name == 'copy_' else 0].device != result.device
        )
        if name in WAITING or has_unknown_size or has_mask or crosses:
            self.counts[name] += 1
        return result


class _ReadCounter(TorchFunctionMode):
    """Count host reads and moves to a device, also of tensors that are already there."""

    def __init__(self, counts: Counter[str]):
        super().__init__()
        self._counts = counts

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        name = getattr(function, '__name__', '')
        if name in READING and args and isinstance(args[0], torch.Tensor):
            self._counts[name] += 1
        if name == 'to' and any(isinstance(a, torch.device) for a in (*args, *kwargs.values())):
            self._counts['to device' if kwargs.get('non_blocking') else 'to device, wait'] += 1
        return function(*args, **kwargs)


def syncs_of(model: PlaceModel, clouds: list[np.ndarray]) -> Counter[str]:
    batch = collate(clouds)
    with torch.inference_mode(), SyncCounter() as counter:
        model.eval()(batch)
    return counter.counts


def test_counter_counts_every_kind_of_synchronization():
    x = torch.arange(4.0)
    kinds = {
        'tolist': x.tolist,
        'item': x[0].item,
        'nonzero': x.nonzero,
        'cpu': x.cpu,
        'index': lambda: x[x > 1],
        '_unique2': lambda: torch.unique(x),
        'bincount': lambda: torch.bincount(x.long()),
        '_local_scalar_dense': lambda: int(x[1]),
        'masked_select': lambda: x.masked_select(x > 2),
        '__bool__': lambda: bool(x[0] > 0),
        'repeat_interleave': lambda: x.repeat_interleave(x.long()),
        '_to_copy': lambda: x.to('meta'),
        'to device, wait': lambda: x.to(torch.device('cpu')),
    }
    for kind, wait in kinds.items():
        with SyncCounter() as counter:
            wait()
        assert counter.counts[kind] == 1, (kind, counter.counts)
    with SyncCounter() as counter:
        torch.relu(x[torch.tensor([1, 2])] + 1).sum()
    assert not counter.counts


# MinkFPN has five levels of voxels, four with a neighbor map, and four steps between them.
SYNCS = {
    'nonzero_numpy': 4,  # which neighbors exist: once per neighbor map
    '_unique2': 5,  # the cells of each level
    'bincount': 4 + 4,  # lists per output row, children per index
    'tolist': 4 + 4 + 1,  # group sizes of every map, and cells per cloud at the end
    'to device': 1 + 2 + 2 * 4,  # small index tensors, asynchronous
}


def test_one_forward_has_a_fixed_number_of_host_synchronizations(clouds, monkeypatch):
    """Depends on the number of levels, not on layers, clouds or voxels."""
    # As on a device that is not the host.
    monkeypatch.setattr(kernel_map, 'kernel_map_numba', None)
    model = PlaceModel(ModelConfig())
    assert syncs_of(model, clouds) == SYNCS
    assert syncs_of(model, clouds[1:2]) == SYNCS
    blocks = replace(ModelConfig().backbone, layers=(2, 1, 1, 1))
    assert syncs_of(PlaceModel(ModelConfig(backbone=blocks)), clouds) == SYNCS


MAY_NAME_DEVICES = {'descriptor_extractor.py', 'checkpoint.py', 'import_minkloc.py'}
DEVICE_FREE = sorted(
    path
    for folder in ('sparse', 'model')
    for path in (CORE / folder).glob('*.py')
    if path.name not in MAY_NAME_DEVICES
)


@pytest.mark.parametrize('path', DEVICE_FREE, ids=lambda path: f'{path.parent.name}/{path.name}')
def test_model_code_does_not_name_devices(path):
    tree = ast.parse(path.read_text(encoding='utf-8'))
    literals = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    methods = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not {text for text in literals if text.split(':')[0] in ('cpu', 'cuda')}
    assert not methods & {'cpu', 'cuda'}


def test_bfloat16_does_not_modify_the_given_model(tiny_model):
    before = {name: tensor.clone() for name, tensor in tiny_model.state_dict().items()}
    NetworkDescriptorExtractor(tiny_model, device='cpu', precision='bfloat16')
    after = tiny_model.state_dict()
    assert all(tensor.dtype == after[name].dtype for name, tensor in before.items())
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
