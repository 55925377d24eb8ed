"""Configuration as frozen, nested, self-validating dataclasses.

A field is declared once with `option`, which carries its unit, range and description. YAML files,
ROS parameters, checkpoints and the documentation are derived from that declaration.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
import math
from pathlib import Path
import re
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from lpr_ros.core.errors import ConfigError, error_text, short_repr
from lpr_ros.core.files import open_regular

T = TypeVar('T', bound='Config')

# YAML 1.1 reads 1e-3, which has no decimal point, as a string.
EXPONENT = re.compile(r'[-+]?\d+[eE][-+]?\d+')


def option(
    default: Any,
    description: str,
    *,
    unit: str = '',
    low: float = -math.inf,
    high: float = math.inf,
    choices: Collection[Any] = (),
    fixed: bool = False,
) -> Any:
    """Declare one configuration field: default, description, unit and allowed values.

    A fixed field cannot be changed while the configured object is running (`check_immutable`).
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
    """Base class of all configurations: validated on construction, converts to plain dicts."""

    def __post_init__(self) -> None:
        """Reject values outside their declared choices or range."""
        for f in fields(self):
            check_value(f'{type(self).__name__}.{f.name}', getattr(self, f.name), f.metadata)

    @classmethod
    def from_dict(cls: type[T], data: Mapping[str, Any], where: str = '') -> T:
        """Build from a plain mapping; ConfigError for unknown keys and wrong types."""
        if not isinstance(data, Mapping):
            raise ConfigError(
                f'{where or cls.__name__}: expected a mapping, got {short_repr(data)}'
            )
        hints = get_type_hints(cls)
        known = [f.name for f in fields(cls)]
        unknown = sorted(set(map(str, data)) - set(known))
        if unknown:
            raise ConfigError(
                f'{where or cls.__name__}: unknown key {short_repr(unknown[0])}; '
                f'known keys: {known}'
            )
        values = {
            name: _convert(value, hints[name], f'{where}.{name}' if where else name)
            for name, value in data.items()
        }
        return cls(**values)

    @classmethod
    def from_yaml(cls: type[T], path: Path) -> T:
        """Load from a YAML file."""
        try:
            with open_regular(path) as stream:
                data = _parse(stream.read().decode('utf-8'))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f'{path}: cannot be read as YAML: {error}') from error
        except ConfigError as error:
            raise ConfigError(f'{path}: {error}') from error
        try:
            return cls.from_dict({} if data is None else data)
        except ConfigError as error:
            raise ConfigError(f'{path}: {error}') from error

    def to_dict(self) -> dict[str, Any]:
        """Return nested dicts, lists and scalars, the input of `from_dict`."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def changed_settings(config: Config) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ from their defaults: name -> (value, default)."""
    values, defaults = _flat(config.to_dict()), _flat(type(config)().to_dict())
    return {key: (value, defaults[key]) for key, value in values.items() if value != defaults[key]}


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
            raise ConfigError(f'unknown key {key!r}; known keys: {sorted(node)}')
        node[leaf] = value
    return type(config).from_dict(data)


def check_immutable(old: Config, new: Config, where: str = '', *, fixed: bool = False) -> None:
    """Raise ConfigError if the new configuration changes a field declared as fixed.

    `fixed` marks all fields of this section as fixed.
    """
    for f in fields(old):
        name = f'{where}.{f.name}' if where else f.name
        before, after = getattr(old, f.name), getattr(new, f.name)
        is_fixed = fixed or f.metadata.get('fixed', False)
        if isinstance(before, Config):
            check_immutable(before, after, name, fixed=is_fixed)
        elif is_fixed and before != after:
            raise ConfigError(
                f'{name}: cannot be changed from {before!r} to {after!r} while running; restart '
                'with the new value'
            )


def parse_assignments(texts: Sequence[str]) -> dict[str, Any]:
    """Parse command-line overrides: KEY=VALUE, with VALUE in YAML."""
    assignments = {}
    for text in texts:
        key, equals, value = text.partition('=')
        if not (key and equals):
            raise ConfigError(f'expected KEY=VALUE, got {text!r}')
        try:
            assignments[key] = _parse(value)
        except ConfigError as error:
            raise ConfigError(f'{short_repr(text)}: the value {error}') from error
    return assignments


def _parse(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except Exception as error:  # dates, long integers and deep nesting raise other types
        raise ConfigError(f'cannot be read as YAML: {error_text(error)}') from error


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Convert a YAML or JSON value to the annotated type."""
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
            raise ConfigError(
                f'{where}: expected float, got an integer too large for it'
            ) from error
    if hint is float and isinstance(value, str) and EXPONENT.fullmatch(value):
        return float(value)
    if hint is Any or (type(value) is hint):
        return value
    raise ConfigError(
        f'{where}: expected {getattr(hint, "__name__", hint)}, got {short_repr(value)}'
    )


def _convert_tuple(value: Any, args: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f'{where}: expected a list, got {short_repr(value)}')
    if len(args) == 2 and args[1] is Ellipsis:
        args = (args[0],) * len(value)
    if len(value) != len(args):
        raise ConfigError(f'{where}: expected {len(args)} values, got {short_repr(value)}')
    return tuple(
        _convert(v, hint, f'{where}[{i}]')
        for i, (v, hint) in enumerate(zip(value, args, strict=True))
    )


def check_value(where: str, value: Any, metadata: Mapping[str, Any]) -> None:
    """Check a value, or each element of a tuple, against the declaration of its field."""
    if not metadata or isinstance(value, Config):  # sections validate themselves
        return
    for scalar in value if isinstance(value, tuple) else (value,):
        if metadata['choices'] and scalar not in metadata['choices']:
            known = list(metadata['choices'])
            raise ConfigError(f'{where}: {short_repr(scalar)} is not one of {known}')
        if isinstance(scalar, int | float) and not isinstance(scalar, bool):
            low, high = metadata['low'], metadata['high']
            if abs(scalar) == math.inf:  # comparing avoids the conversion of large integers
                raise ConfigError(f'{where}: {short_repr(scalar)}, expected a finite number')
            if not low <= scalar <= high:  # also false for NaN
                raise ConfigError(f'{where}: {short_repr(scalar)} is not within [{low}, {high}]')
