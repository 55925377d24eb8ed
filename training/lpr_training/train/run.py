"""A training run: epochs, validation, progress bar, checkpoints, calibration."""

from dataclasses import replace
import operator
from pathlib import Path
import time

import torch
from torch import nn
from tqdm import tqdm

from lpr_ros.core.errors import CheckpointError
from lpr_ros.core.model.checkpoint import load_checkpoint
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor, choose_device
from lpr_ros.core.model.place_model import PlaceModel
from lpr_training.train.calibration import calibrate_weights
from lpr_training.train.config import TrainConfig
from lpr_training.train.data import HeldOut, open_training_data
from lpr_training.train.distributed import join_processes
from lpr_training.train.run_folder import RunFolder
from lpr_training.train.trainer import DivergenceError, Step, Trainer
from lpr_training.train.validation import match_held_out, usable_for_selection

VALIDATION_STRIDE = 3
# Advances per batch: the remaining time is known before the first epoch ends.
BAR = '{desc}{percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]'


def fit(
    config: TrainConfig,
    data_root: Path,
    out: Path,
    *,
    init: Path | None = None,
    resume: bool = False,
    device: str = 'auto',
) -> RunFolder:
    """Train a new run or resume one; return its folder.

    A new run can be initialized from the checkpoint `init`: the backbone, which may have fewer
    layers, and the pooling if its settings are equal.
    """
    processes = join_processes()
    data = open_training_data(config.data, data_root)
    held_out = data.held_out
    if held_out is not None and (config.validate_every or held_out.sites):
        held_out = usable_for_selection(held_out, VALIDATION_STRIDE)
    torch.manual_seed(config.seed)
    trainer = Trainer(
        config, _new_model(config, init), data, device=choose_device(device), processes=processes
    )
    folder = RunFolder(out, config)
    if not resume:
        folder.check_new()
    first = folder.resume(trainer) if resume else 0
    if processes.is_first:
        folder.start()
    bar = tqdm(initial=first, total=config.epochs, bar_format=BAR, disable=not processes.is_first)
    with bar:
        for epoch in range(first, config.epochs):
            metrics = _train_epoch(trainer, epoch, bar, folder.held_out_recall)
            if _validates(config, epoch) and held_out is not None:
                metrics['validation_recall'] = _validate(trainer, held_out)
            if processes.is_first:
                folder.save(trainer, epoch, metrics)
            bar.update(epoch + 1 - bar.n)
            bar.set_postfix_str(_summary(metrics, folder.best_recall))
    processes.leave()
    if processes.is_first and held_out is not None:
        calibrate_weights(folder.chosen_weights, held_out, device=device)
    return folder


def _new_model(config: TrainConfig, init: Path | None) -> PlaceModel:
    if init is None:
        return PlaceModel(config.model)
    checkpoint = load_checkpoint(init)
    model, given = PlaceModel(config.model), checkpoint.config
    # Weights transfer to other cell sizes and to more layers.
    kinds = [
        (m.input.quantizer, replace(m.backbone, layers=config.model.backbone.layers))
        for m in (given, config.model)
    ]
    is_deeper = all(map(operator.ge, config.model.backbone.layers, given.backbone.layers))
    if kinds[0] != kinds[1] or not is_deeper:
        kinds[0] = given.input.quantizer, given.backbone
        raise CheckpointError(f'{init}: cannot initialize {kinds[1]} from weights of {kinds[0]}')
    source = checkpoint.build()
    added = model.backbone.load_state_dict(source.backbone.state_dict(), strict=False).missing_keys
    for name in added:
        # A residual block that adds zero: the deeper network has the same descriptors.
        if name.endswith('norm2.bn.weight'):
            nn.init.zeros_(model.backbone.get_parameter(name))
    if given.pooling == config.model.pooling:
        model.pooling.load_state_dict(source.pooling.state_dict())
    return model


def _train_epoch(
    trainer: Trainer, epoch: int, bar: 'tqdm[None]', held_out: float | None
) -> dict[str, float]:
    started, clouds = time.perf_counter(), 0
    steps: list[Step] = []
    for step in trainer.run_epoch(epoch):
        steps.append(step)
        clouds += step.clouds
        rate = clouds / (time.perf_counter() - started)
        recall = f'batch recall@1 {step.statistics["recall_at_1"]:.3f}'
        if held_out is not None:
            recall += f', validation {held_out:.3f}'
        bar.set_description(f'epoch {epoch}, batch {step.batch + 1}/{step.batches}')
        bar.set_postfix_str(f'loss {step.loss:.4f}, {recall}, {rate:.1f} clouds/s')
        bar.update(epoch + (step.batch + 1) / step.batches - bar.n)
    mean = {
        name: sum(s.statistics[name] * s.clouds for s in steps) / clouds
        for name in steps[0].statistics
    }
    return {
        'loss': sum(s.loss * s.clouds for s in steps) / clouds,
        **mean,
        'learning_rate': trainer.optimizer.param_groups[0]['lr'],
        'clouds_per_s': clouds / (time.perf_counter() - started),
    }


def _validates(config: TrainConfig, epoch: int) -> bool:
    every = config.validate_every
    return every > 0 and ((epoch + 1) % every == 0 or epoch + 1 == config.epochs)


def _validate(trainer: Trainer, held_out: HeldOut) -> float:
    extractor = NetworkDescriptorExtractor(trainer.model, device=trainer.device.type)
    try:
        matches = match_held_out(
            extractor, held_out, stride=VALIDATION_STRIDE, radius_m=held_out.radius_m
        )
    except torch.linalg.LinAlgError as error:
        raise DivergenceError(f'{error} while describing held-out places') from error
    return matches.recall()


def _summary(metrics: dict[str, float], best: float) -> str:
    text = f'loss {metrics["loss"]:.4f}, {metrics["clouds_per_s"]:.1f} clouds/s'
    if 'validation_recall' in metrics:
        text += f', validation recall@1 {metrics["validation_recall"]:.3f} (best {best:.3f})'
    return text
