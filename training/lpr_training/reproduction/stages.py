"""Stages: named pieces of work that leave a product, and are skipped once it is there."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
import logging
from pathlib import Path
import time

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """One piece of work; it is done when its product exists."""

    name: str
    product: Path
    work: Callable[[], None]
    seconds: float = 0.0  # about how long it takes
    disk_bytes: float = 0.0  # about how much it leaves

    @property
    def is_done(self) -> bool:
        """Whether the product is there."""
        return self.product.exists()


def run_stages(stages: Iterable[Stage]) -> None:
    """Work through the stages in order, skipping those that are done."""
    stages = list(stages)
    for number, stage in enumerate(stages, start=1):
        label = f'[{number}/{len(stages)}] {stage.name}'
        if stage.is_done:
            logger.info('%s: done before', label)
            continue
        logger.info('%s ...', label)
        started = time.monotonic()
        stage.work()
        logger.info('%s: %s', label, duration(time.monotonic() - started))


def plan_table(stages: Iterable[Stage]) -> str:
    """Return what will be done, how long it takes and how much disk it needs, as markdown."""
    lines = ['| stage | time | disk |', '|---|---|---|']
    seconds = disk = 0.0
    for stage in stages:
        if stage.is_done:
            lines.append(f'| {stage.name} | done | |')
            continue
        seconds += stage.seconds
        disk += stage.disk_bytes
        size = f'{stage.disk_bytes / 1e6:.1f} MB'
        lines.append(f'| {stage.name} | {duration(stage.seconds)} | {size} |')
    lines.append(f'| **all that is left** | **{duration(seconds)}** | **{disk / 1e6:.1f} MB** |')
    return '\n'.join(lines)


def duration(seconds: float) -> str:
    """Return a time in the unit that fits it."""
    for limit, unit, size in ((120, 's', 1), (7200, 'min', 60), (172800, 'h', 3600)):
        if seconds < limit:
            return f'{seconds / size:.0f} {unit}'
    return f'{seconds / 86400:.1f} days'
