"""What a reproduction is asked to do, remembered in its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any

from lpr_ros.core.errors import ConfigError
from lpr_training.evaluation.report import write_json

RECORD = 'reproduce.json'


@dataclass(frozen=True)
class Settings:
    """The options of reproduce.py."""

    benchmark: str
    data: Path
    out: Path
    paper: Path
    epochs: int = 0  # 0: as the configuration says
    seeds: tuple[int, ...] = (1, 2, 3)
    only: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    device: str = 'auto'
    batch: int = 16
    figure_clouds: int = 500

    def remember(self) -> None:
        """Write what decides the numbers; refuse a folder begun with something else."""
        now = {
            'benchmark': self.benchmark,
            'data': str(self.data.resolve()),
            'epochs': self.epochs,
            'assignments': list(self.assignments),
        }
        path = self.out / RECORD
        if not path.exists():
            write_json(path, now)
            return
        try:
            earlier: Mapping[str, Any] = json.loads(path.read_text(encoding='utf-8'))
        except ValueError as error:
            raise ConfigError(f'{path}: expected JSON: {error}') from error
        changed = [f'{k} was {earlier.get(k)!r}, is {now[k]!r}' for k in now if
                   earlier.get(k) != now[k]]  # fmt: skip
        if changed:
            raise ConfigError(
                f'{self.out} was begun otherwise ({"; ".join(changed)}); choose another --out'
            )
