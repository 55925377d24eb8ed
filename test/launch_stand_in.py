"""The part of `launch` and `launch_ros` that the launch files use, to test them without ROS.

Neither is on the package index. Real ones take precedence if they are installed.
"""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any


class LaunchContext:
    def __init__(self) -> None:
        self.launch_configurations: dict[str, str] = {}
        self.is_shutdown = False


class LaunchDescription:
    def __init__(self, entities: list[Any]):
        self.entities = entities


class LaunchConfiguration:
    def __init__(self, name: str):
        self.name = name

    def perform(self, context: LaunchContext) -> str:
        return context.launch_configurations[self.name]


class DeclareLaunchArgument:
    def __init__(self, name: str, *, default_value: str, description: str):
        self.name, self.default_value, self.description = name, default_value, description


class Action(SimpleNamespace):
    def __init__(self, *positional: Any, **named: Any):
        super().__init__(positional=positional, **named)


MODULES = {
    'launch': {'LaunchContext': LaunchContext, 'LaunchDescription': LaunchDescription},
    'launch.actions': {
        'DeclareLaunchArgument': DeclareLaunchArgument,
        'IncludeLaunchDescription': Action,
        'OpaqueFunction': Action,
        'SetEnvironmentVariable': Action,
    },
    'launch.events': {},
    'launch.events.process': {'ProcessExited': Action},
    'launch.launch_description_sources': {'PythonLaunchDescriptionSource': Action},
    'launch.substitutions': {'LaunchConfiguration': LaunchConfiguration},
    'launch_ros': {},
    'launch_ros.actions': {'Node': Action},
}


def install(monkeypatch: Any) -> None:
    """Make the stand-ins importable unless the real packages are."""
    try:
        import launch_ros  # noqa: F401
    except ImportError:
        for name, contents in MODULES.items():
            module = ModuleType(name)
            vars(module).update(contents)
            monkeypatch.setitem(sys.modules, name, module)
