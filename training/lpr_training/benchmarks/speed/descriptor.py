"""Time to compute a descriptor: this backend, MinkowskiEngine and the matmul lower bound.

The three alternate, so that other load on the machine affects them equally; medians are reported.
The lower bound ("floor") is the same multiply-adds as dense GEMMs of the same shapes.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
import statistics
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor, nn
from tqdm import tqdm

from lpr_ros.core.errors import BackendError, DatasetError
from lpr_ros.core.markdown import markdown_table
from lpr_ros.core.model.config import InputConfig, ModelConfig
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.model.quantize import quantize
from lpr_ros.core.sparse import CloudBatch, collate, torch_layers
from lpr_training.benchmarks.options import add_data_option, add_option

MODES = ('forward', 'forward+backward')
BATCHES = (1, 8)
# The worker threads of a library keep spinning for a while and would slow down the next one.
SETTLE_S = 0.05


@dataclass(frozen=True, eq=False)
class Case:
    """Clouds of one size."""

    name: str
    clouds: list[NDArray[np.generic]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_option(parser, '--repeats', 20, 'Runs per measurement, of which the median is reported')
    add_data_option(parser, 'kitti_full/*.bin')


def run(data: Path, repeats: int = 20) -> dict[str, Any]:
    """Measure every case, batch size and mode."""
    model = PlaceModel(ModelConfig())
    reference = minkowski_model(model)
    rows = []
    plan = [(c, b, m) for c in make_cases(data) for b in BATCHES for m in MODES]
    bar = tqdm(plan, unit='case')
    for case, batch_size, mode in bar:
        bar.set_description(f'{case.name}, batch {batch_size}, {mode}')
        batch = collate([case.clouds[i % len(case.clouds)] for i in range(batch_size)])
        actions: dict[str, Callable[[], None]] = {
            'torch_ms': timed_pass(model, batch, mode),
            'floor_ms': _floor(model, batch, mode),
        }
        if reference is not None:
            actions['minkowski_ms'] = timed_pass(reference, batch, mode)
        medians = interleaved_medians_ms(actions, repeats)
        rows.append(
            {
                'name': case.name,
                'voxels': sum(batch.counts),
                'batch': batch_size,
                'mode': mode,
                'torch_ms': medians['torch_ms'],
                'minkowski_ms': medians.get('minkowski_ms'),
                'floor_ms': medians['floor_ms'],
            }
        )
    return {'cases': rows, 'threads': torch.get_num_threads(), 'repeats': repeats}


def table(result: dict[str, Any]) -> str:
    """Return the results as a markdown table."""
    head = ('cloud', 'voxels', 'batch', 'mode', 'ours ms', 'floor ms', 'MinkowskiEngine ms')
    ratios = ('ours / floor', 'MinkowskiEngine / ours')
    rows = []
    for row in result['cases']:
        ours, floor, other = row['torch_ms'], row['floor_ms'], row['minkowski_ms']
        other_ms, speedup = (
            ('-', '-') if other is None else (f'{other:.1f}', f'{other / ours:.1f}')
        )
        case = (row['name'], row['voxels'], row['batch'], row['mode'])
        times = (f'{ours:.1f}', f'{floor:.1f}', other_ms)
        rows.append((*case, *times, f'{ours / floor:.1f}', speedup))
    return markdown_table((*head, *ratios), rows)


def make_cases(data: Path) -> list[Case]:
    """Return the full-resolution scans at 0.4 m, and Oxford-like clouds of 4,096 points."""
    scans = read_scans(data)
    metric, scaled = InputConfig(), InputConfig(step=(0.01, 0.01, 0.01))
    return [
        Case('4096 points, 0.01', [quantize(oxford_like(s), scaled) for s in scans]),
        Case('full scan, 0.4 m', [quantize(scan, metric) for scan in scans]),
    ]


def read_scans(data: Path) -> list[NDArray[np.float32]]:
    """Return the points (N, 3) of the full-resolution KITTI scans."""
    paths = sorted((data / 'kitti_full').glob('*.bin'))
    if not paths:
        raise DatasetError(f'expected {data}/kitti_full/*.bin, found none; set --data')
    return [np.fromfile(path, np.float32).reshape(-1, 4)[:, :3] for path in paths]


def oxford_like(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return 4,096 points without ground within 25 m, scaled to [-1, 1]."""
    near = points[(np.abs(points[:, :2]) < 25.0).all(axis=1) & (points[:, 2] > -1.4)]
    chosen = np.random.default_rng(0).choice(len(near), 4096, replace=len(near) < 4096)
    return near[chosen] / 25.0


def interleaved_medians_ms(
    actions: dict[str, Callable[[], None]], repeats: int
) -> dict[str, float]:
    """Run all actions in turn, `repeats` times after two warm-up rounds; return medians."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for round_number in range(repeats + 2):
        for name, action in actions.items():
            time.sleep(SETTLE_S)
            started = time.perf_counter()
            action()
            if round_number >= 2:
                times[name].append((time.perf_counter() - started) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def timed_pass(model: PlaceModel, batch: CloudBatch, mode: str) -> Callable[[], None]:
    """Return a function that runs one pass of a model over a batch."""

    def forward() -> None:
        model.eval()
        with torch.inference_mode():
            model(batch)

    def forward_backward() -> None:
        model.train()
        model.zero_grad(set_to_none=True)
        model(batch).square().sum().backward()

    return forward if mode == 'forward' else forward_backward


def minkowski_model(model: PlaceModel) -> PlaceModel | None:
    """Return the same model on MinkowskiEngine, or None if that is not installed."""
    try:
        other = PlaceModel(model.config, backend='minkowski')
    except BackendError:
        return None
    other.load_state_dict(model.state_dict())
    return other


def _floor(model: PlaceModel, batch: CloudBatch, mode: str) -> Callable[[], None]:
    """Return a function that runs the GEMMs of one pass; backward needs two more per layer."""
    operands = [
        (torch.randn(rows, width), torch.randn(width, out))
        for rows, width, out in matmul_shapes(model, batch)
    ]
    gradients = [torch.randn(len(a), b.shape[1]) for a, b in operands]

    def forward() -> None:
        for a, b in operands:
            a @ b

    def forward_backward() -> None:
        for (a, b), gradient in zip(operands, gradients, strict=True):
            a @ b
            gradient @ b.T
            a.T @ gradient

    return forward if mode == 'forward' else forward_backward


def matmul_shapes(model: PlaceModel, batch: CloudBatch) -> list[tuple[int, int, int]]:
    """Return (rows, inputs, outputs) of every matrix product in a forward pass.

    The first layer has a single input channel; its products are grouped by voxel.
    """
    shapes: list[tuple[int, int, int]] = []

    def record(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        if isinstance(module, nn.Linear):
            shapes.append((len(arguments[0]), module.in_features, module.out_features))
            return
        kernel: Tensor = module.kernel
        pairs = _pairs(module, arguments[0], output)
        if kernel.shape[-2] == 1:
            rows = len(output.features)
            shapes.append((rows, max(1, round(pairs / rows)), kernel.shape[-1]))
        else:
            shapes.append((pairs, kernel.shape[-2], kernel.shape[-1]))

    layers = (nn.Linear, torch_layers.Conv, torch_layers.ConvTranspose)
    hooks = [m.register_forward_hook(record) for m in model.modules() if isinstance(m, layers)]
    with torch.no_grad():
        model(batch)
    for hook in hooks:
        hook.remove()
    return shapes


def _pairs(module: nn.Module, x: Any, output: Any) -> int:
    if isinstance(module, torch_layers.ConvTranspose):
        return len(output.features)
    if module.kernel_size == 1 or module.stride == 2:
        return len(x.features)
    if x.is_occupancy:
        return sum(int(tile.sum()) for tile in x.level.occupancy(module.kernel_size).tiles)
    return sum(len(tile.inputs) for tile in x.level.neighbors(module.kernel_size).tiles)
