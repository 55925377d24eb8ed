"""What every protocol returns: a frozen dataclass that converts to plain JSON values."""

from dataclasses import dataclass, fields
import math
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Result:
    """Base of the results; fractions in [0, 1], undefined values NaN (null in JSON)."""

    def to_dict(self) -> dict[str, Any]:
        """Return nested dicts, lists and scalars that `json.dump` writes as valid JSON."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


def plain(value: Any) -> Any:
    """Turn arrays, tuples, NumPy scalars, nested dataclasses and NaN into JSON values."""
    if hasattr(value, '__dataclass_fields__'):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
