"""ROS parameters declared from nested configuration dataclasses.

The field `window` of the section `sequence` becomes the parameter `sequence.window`, with the
default, unit, range and description that `option` declares.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
import math
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter

from lpr_ros.core.config import Config, check_immutable, check_value, override
from lpr_ros.core.errors import ConfigError, error_with_type

T = TypeVar('T', bound=Config)

SCALAR_TYPES = {
    bool: Parameter.Type.BOOL,
    int: Parameter.Type.INTEGER,
    float: Parameter.Type.DOUBLE,
    str: Parameter.Type.STRING,
}
ARRAY_TYPES = {
    bool: Parameter.Type.BOOL_ARRAY,
    int: Parameter.Type.INTEGER_ARRAY,
    float: Parameter.Type.DOUBLE_ARRAY,
    str: Parameter.Type.STRING_ARRAY,
}
QOS_OVERRIDES = 'qos_overrides'  # a section that rclpy declares when it needs it


@dataclass(frozen=True)
class Leaf:
    """One parameter: its dotted name and what its field declares."""

    name: str
    default: Any
    type: Parameter.Type
    description: str
    unit: str
    low: float
    high: float
    choices: tuple[Any, ...]
    fixed: bool  # read on startup only

    @property
    def is_array(self) -> bool:
        """Whether the value is an array."""
        return self.type in ARRAY_TYPES.values()

    @property
    def has_range(self) -> bool:
        """Whether ROS can check the range: it supports closed ranges of scalars only."""
        finite = math.isfinite(self.low) and math.isfinite(self.high)
        return finite and self.type in (Parameter.Type.INTEGER, Parameter.Type.DOUBLE)

    @property
    def constraints(self) -> str:
        """The allowed values as text; empty if there is no constraint."""
        if self.choices:
            return 'one of ' + ', '.join(map(str, self.choices))
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f'{self.low:g} to {self.high:g}'
        if math.isfinite(self.low):
            return f'at least {self.low:g}'
        return f'at most {self.high:g}' if math.isfinite(self.high) else ''

    def check(self, value: Any) -> None:
        """Raise a ConfigError naming the parameter, its value and the allowed values."""
        field_value = tuple(value) if self.is_array else value
        limits = {'low': self.low, 'high': self.high, 'choices': self.choices}
        check_value(self.name, field_value, limits)

    def descriptor(self) -> ParameterDescriptor:
        """Return the descriptor that `ros2 param describe` and GUI tools show."""
        unit = f' [{self.unit}]' if self.unit else ''
        descriptor = ParameterDescriptor(
            type=self.type.value,
            description=self.description + unit,
            additional_constraints='; '.join(
                part for part in (self.constraints, 'read on startup only' * self.fixed) if part
            ),
        )
        if self.has_range and self.type is Parameter.Type.INTEGER:
            low, high = int(self.low), int(self.high)
            descriptor.integer_range = [IntegerRange(from_value=low, to_value=high)]
        elif self.has_range:
            low, high = float(self.low), float(self.high)
            descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
        return descriptor


def leaves(config: Config, prefix: str = '', *, fixed: bool = False) -> Iterator[Leaf]:
    """Yield the parameters of a configuration, with its values as defaults.

    All parameters of a fixed section are fixed.
    """
    hints = get_type_hints(type(config))
    for f in fields(config):
        value, name = getattr(config, f.name), prefix + f.name
        is_fixed = fixed or f.metadata.get('fixed', False)
        if isinstance(value, Config):
            yield from leaves(value, f'{name}.', fixed=is_fixed)
            continue
        yield Leaf(
            name,
            list(value) if isinstance(value, tuple) else value,
            _ros_type(name, hints[f.name]),
            f.metadata.get('description', ''),
            f.metadata.get('unit', ''),
            f.metadata.get('low', -math.inf),
            f.metadata.get('high', math.inf),
            f.metadata.get('choices', ()),
            is_fixed,
        )


class ConfigParameters(Generic[T]):
    """Declares the parameters of a configuration on a node and builds it from their values."""

    def __init__(self, node: Node, defaults: T, *, others: Collection[str] = ()):
        """Declare the parameters, and warn about others that were given.

        `others` are parameters and sections that a file may have for other nodes.
        """
        self._node = node
        self._defaults = defaults
        self._leaves = {leaf.name: leaf for leaf in leaves(defaults)}
        self._on_change: Callable[[T], None] | None = None
        for leaf in self._leaves.values():
            _declare(node, leaf)
        for warning in unknown_parameters(node, self._leaves, others):
            node.get_logger().warning(warning)
        node.add_on_set_parameters_callback(self._on_set)

    def read(self) -> T:
        """Return the configuration with the current parameter values."""
        return self._build({})

    def watch(self, on_change: Callable[[T], None]) -> None:
        """Check every change as a whole, reject changes of fixed parameters, report the others.

        `on_change` may also reject a change, by raising a ConfigError.
        """
        self._on_change = on_change

    def unwatch(self) -> None:
        """Accept changes of fixed parameters again.

        Only values that are invalid by themselves are rejected: parameters that depend on each
        other can be set one by one, and the next `read` checks them together.
        """
        self._on_change = None

    def _build(self, changes: Mapping[str, Any]) -> T:
        values = {name: self._node.get_parameter(name).value for name in self._leaves}
        values.update(changes)
        for name, value in values.items():
            self._leaves[name].check(value)
        return override(self._defaults, {name: _plain(v) for name, v in values.items()})

    def _on_set(self, parameters: Iterable[Parameter]) -> SetParametersResult:
        changes = {p.name: p.value for p in parameters if p.name in self._leaves}
        if not changes:
            return SetParametersResult(successful=True)
        try:
            if self._on_change is None:
                for name, value in changes.items():
                    self._leaves[name].check(value)
                return SetParametersResult(successful=True)
            changed = self._build(changes)
            check_immutable(self.read(), changed)
            self._on_change(changed)
        except Exception as error:  # an exception in this callback would end the node
            return SetParametersResult(successful=False, reason=error_with_type(error))
        return SetParametersResult(successful=True)


def unknown_parameters(
    node: Node, known: Collection[str], others: Collection[str] = ()
) -> Iterator[str]:
    """Yield a warning for each given parameter that the node does not have: likely a typo.

    Files and command lines can name any parameter; ROS ignores those that no node declares.
    """
    for name in sorted(node._parameter_overrides):  # rclpy has no public way to list them
        is_of_another = name.partition('.')[0] in (*others, QOS_OVERRIDES)
        if name in known or is_of_another or node.has_parameter(name):
            continue
        nearest = get_close_matches(name, known, n=1, cutoff=0.0)
        yield f'unknown parameter {name!r} is ignored; did you mean {nearest[0]!r}?'


def _declare(node: Node, leaf: Leaf) -> None:
    """Declare one parameter; a value given on startup overrides the default."""
    # ROS takes an empty list for a byte array, so the type is declared without a value first.
    is_empty = leaf.default == []
    try:
        node.declare_parameter(
            leaf.name, leaf.type if is_empty else leaf.default, leaf.descriptor()
        )
    except (InvalidParameterTypeException, InvalidParameterValueException) as error:
        raise ConfigError(f'{leaf.name}: {error}') from error
    if is_empty and node.get_parameter_or(leaf.name).type_ is Parameter.Type.NOT_SET:
        node.set_parameters([Parameter(leaf.name, leaf.type, [])])


def _plain(value: Any) -> Any:
    """Return a parameter value with arrays as lists, as `override` takes them."""
    return value if isinstance(value, bool | int | float | str) else list(value)


def _ros_type(name: str, hint: Any) -> Parameter.Type:
    if get_origin(hint) is tuple:
        kinds = {kind for kind in get_args(hint) if kind is not Ellipsis}
        if len(kinds) == 1 and (kind := kinds.pop()) in ARRAY_TYPES:
            return ARRAY_TYPES[kind]
    elif hint in SCALAR_TYPES:
        return SCALAR_TYPES[hint]
    raise ConfigError(f'{name}: expected a bool, int, float, str or tuple of one, got {hint}')
