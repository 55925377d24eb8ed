"""Configuration as frozen, nested, self-checking dataclasses.

A field is declared once with `option`, which carries its unit, range and description; YAML files,
ROS parameters, checkpoints and the documentation are all derived from that declaration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
import math
from pathlib import Path
import re
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from lpr_ros.core.errors import ConfigError, reason, shown

T = TypeVar('T', bound='Config')

# YAML 1.1 takes 1e-3 for text, as it has no point.
EXPONENT = re.compile(r'[-+]?\d+[eE][-+]?\d+')


def option(
    default: Any,
    description: str,
    *,
    unit: str = '',
    low: float = -math.inf,
    high: float = math.inf,
    choices: tuple[Any, ...] = (),
    fixed: bool = False,
) -> Any:
    """Declare one configuration field: default, meaning, unit and what it may be.

    A fixed one cannot be changed while what it configures is running (`refuse_fixed`).
    """
    metadata = {
        'description': description,
        'unit': unit,
        'low': low,
        'high': high,
        'choices': choices,
        'fixed': fixed,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Config:
    """Base of every configuration: checks itself on construction, reads and writes plain dicts."""

    def __post_init__(self) -> None:
        """Refuse a value outside its declared choices or range."""
        for f in fields(self):
            check_value(f'{type(self).__name__}.{f.name}', getattr(self, f.name), f.metadata)

    @classmethod
    def from_dict(cls: type[T], data: Mapping[str, Any], where: str = '') -> T:
        """Build from a plain mapping; unknown keys and wrong types raise ConfigError."""
        if not isinstance(data, Mapping):
            raise ConfigError(f'{where or cls.__name__}: expected a mapping, got {shown(data)}')
        hints = get_type_hints(cls)
        known = [f.name for f in fields(cls)]
        unknown = sorted(set(map(str, data)) - set(known))
        if unknown:
            raise ConfigError(
                f'{where or cls.__name__}: unknown key {shown(unknown[0])}; known keys: {known}'
            )
        values = {
            name: _convert(value, hints[name], f'{where}.{name}' if where else name)
            for name, value in data.items()
        }
        return cls(**values)

    @classmethod
    def from_yaml(cls: type[T], path: Path) -> T:
        """Read a YAML file into this configuration."""
        try:
            data = _parse(Path(path).read_text(encoding='utf-8'))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f'{path}: cannot be read as YAML: {error}') from error
        except ConfigError as error:
            raise ConfigError(f'{path}: {error}') from error
        try:
            return cls.from_dict({} if data is None else data)
        except ConfigError as error:
            raise ConfigError(f'{path}: {error}') from error

    def to_dict(self) -> dict[str, Any]:
        """Return plain nested dicts, lists and scalars, as `from_dict` takes them."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def changed_settings(config: Config) -> dict[str, tuple[Any, Any]]:
    """Return the settings that are not at their defaults: name -> (value, default)."""
    now, usual = _flat(config.to_dict()), _flat(type(config)().to_dict())
    return {key: (value, usual[key]) for key, value in now.items() if value != usual[key]}


def _flat(data: dict[str, Any], prefix: str = '') -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            flat |= _flat(value, f'{prefix}{key}.')
        else:
            flat[prefix + key] = value
    return flat


def override(config: T, assignments: Mapping[str, Any]) -> T:
    """Return a copy with dotted keys replaced, e.g. {'pooling.clusters': 32}."""
    data = config.to_dict()
    for key, value in assignments.items():
        *path, leaf = key.split('.')
        node = data
        for part in path:
            if not isinstance(node.get(part), dict):
                raise ConfigError(f'unknown key {key!r}: {part!r} is not a section')
            node = node[part]
        if leaf not in node:
            raise ConfigError(f'unknown key {key!r}; known here: {sorted(node)}')
        node[leaf] = value
    return type(config).from_dict(data)


def refuse_fixed(old: Config, new: Config, where: str = '', *, fixed: bool = False) -> None:
    """Raise ConfigError when the new configuration changes a field declared as fixed.

    All fields of a fixed section are; `fixed` says that these are in one.
    """
    for f in fields(old):
        name = f'{where}.{f.name}' if where else f.name
        before, after = getattr(old, f.name), getattr(new, f.name)
        is_fixed = fixed or f.metadata.get('fixed', False)
        if isinstance(before, Config):
            refuse_fixed(before, after, name, fixed=is_fixed)
        elif is_fixed and before != after:
            raise ConfigError(
                f'{name}: cannot be changed from {before!r} to {after!r} while running; restart '
                'with the new value'
            )


def parse_assignments(texts: Sequence[str]) -> dict[str, Any]:
    """Read command-line overrides: KEY=VALUE, the value as YAML."""
    assignments = {}
    for text in texts:
        key, equals, value = text.partition('=')
        if not (key and equals):
            raise ConfigError(f'expected KEY=VALUE, got {text!r}')
        try:
            assignments[key] = _parse(value)
        except ConfigError as error:
            raise ConfigError(f'{shown(text)}: the value {error}') from error
    return assignments


def _parse(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except Exception as error:  # not YAMLError alone: dates, long numbers and nesting raise others
        raise ConfigError(f'cannot be read as YAML: {reason(error)}') from error


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Turn a YAML/JSON value into the annotated type, or say what was expected."""
    if isinstance(hint, type) and is_dataclass(hint):
        if isinstance(value, hint):
            return value
        if issubclass(hint, Config):
            return hint.from_dict(value, where)
    if get_origin(hint) is tuple:
        return _convert_tuple(value, get_args(hint), where)
    if hint is float and type(value) is int:
        try:
            return float(value)
        except OverflowError as error:
            raise ConfigError(f'{where}: expected float, got an integer beyond it') from error
    if hint is float and isinstance(value, str) and EXPONENT.fullmatch(value):
        return float(value)
    if hint is Any or (type(value) is hint):
        return value
    raise ConfigError(f'{where}: expected {getattr(hint, "__name__", hint)}, got {shown(value)}')


def _convert_tuple(value: Any, args: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f'{where}: expected a list, got {shown(value)}')
    if len(args) == 2 and args[1] is Ellipsis:
        args = (args[0],) * len(value)
    if len(value) != len(args):
        raise ConfigError(f'{where}: expected {len(args)} values, got {shown(value)}')
    return tuple(
        _convert(v, hint, f'{where}[{i}]')
        for i, (v, hint) in enumerate(zip(value, args, strict=True))
    )


def check_value(where: str, value: Any, metadata: Mapping[str, Any]) -> None:
    """Check each scalar of a field (tuples element by element) against its declaration."""
    if not metadata or isinstance(value, Config):  # a section has checked itself
        return
    for scalar in value if isinstance(value, tuple) else (value,):
        if metadata['choices'] and scalar not in metadata['choices']:
            known = list(metadata['choices'])
            raise ConfigError(f'{where}: {shown(scalar)} is not one of {known}')
        if isinstance(scalar, int | float) and not isinstance(scalar, bool):
            low, high = metadata['low'], metadata['high']
            if abs(scalar) == math.inf:  # of an int of any size too
                raise ConfigError(f'{where}: {shown(scalar)}, expected a finite number')
            if not low <= scalar <= high:  # also false for NaN
                raise ConfigError(f'{where}: {shown(scalar)} is not within [{low}, {high}]')
