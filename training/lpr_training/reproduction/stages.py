"""Stages of work, each skipped if its product exists."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
import logging
from pathlib import Path
import time

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """One step of a plan, done if its product exists."""

    name: str
    product: Path
    work: Callable[[], None]
    seconds: float = 0.0  # estimated duration
    disk_bytes: float = 0.0  # estimated size of the output

    @property
    def is_done(self) -> bool:
        """Whether the product exists."""
        return self.product.exists()


def run_stages(stages: Iterable[Stage]) -> None:
    """Run the stages in order, skipping those that are done."""
    stages = list(stages)
    for number, stage in enumerate(stages, start=1):
        label = f'[{number}/{len(stages)}] {stage.name}'
        if stage.is_done:
            logger.info('%s: already done', label)
            continue
        logger.info('%s ...', label)
        started = time.monotonic()
        stage.work()
        logger.info('%s: %s', label, duration(time.monotonic() - started))


def plan_table(stages: Iterable[Stage]) -> str:
    """Return the stages with estimated time and disk space as a Markdown table."""
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
    lines.append(f'| **remaining** | **{duration(seconds)}** | **{disk / 1e6:.1f} MB** |')
    return '\n'.join(lines)


def duration(seconds: float) -> str:
    """Format a duration in a suitable unit."""
    for limit, unit, size in ((120, 's', 1), (7200, 'min', 60), (172800, 'h', 3600)):
        if seconds < limit:
            return f'{seconds / size:.0f} {unit}'
    return f'{seconds / 86400:.1f} days'
