"""The settings of a reproduction, stored in its folder."""

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
    epochs: int = 0  # 0: as configured
    seeds: tuple[int, ...] = (1, 2, 3)
    only: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    device: str = 'auto'
    batch: int = 16
    figure_clouds: int = 500

    def store(self) -> None:
        """Store the settings that determine the results; ConfigError if they have changed."""
        current = {
            'benchmark': self.benchmark,
            'data': str(self.data.resolve()),
            'epochs': self.epochs,
            'assignments': list(self.assignments),
        }
        path = self.out / RECORD
        if not path.exists():
            write_json(path, current)
            return
        try:
            earlier: Mapping[str, Any] = json.loads(path.read_text(encoding='utf-8'))
        except ValueError as error:
            raise ConfigError(f'{path}: expected JSON: {error}') from error
        changed = [
            f'{key} was {earlier.get(key)!r}, is {value!r}'
            for key, value in current.items()
            if earlier.get(key) != value
        ]
        if changed:
            raise ConfigError(
                f'{self.out} has other settings ({"; ".join(changed)}); choose another --out'
            )
