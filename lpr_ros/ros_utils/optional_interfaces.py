"""Message and service types of packages that may not be installed."""

from importlib import import_module
from typing import Any

from lpr_ros.core.errors import InterfaceError


def interface(name: str) -> Any:
    """Return a message or service class by its ROS name, such as std_msgs/msg/String."""
    package, kind, class_name = name.split('/')
    try:
        return getattr(import_module(f'{package}.{kind}'), class_name)
    except (ImportError, AttributeError) as error:
        raise InterfaceError(f'{name} not found: install the package {package}') from error
