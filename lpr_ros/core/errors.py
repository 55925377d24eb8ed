"""Exception types. Every message names the bad value and the expected one."""

import reprlib
from typing import Any

MAX_MESSAGE_CHARS = 2000  # values read from damaged files can be megabytes long

_SHORT = reprlib.Repr()
_SHORT.maxlevel = 3
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 12
_SHORT.maxstring = _SHORT.maxother = 200


def short_repr(value: Any) -> str:
    """Return the repr of a value, truncated if it is long, deep or recursive."""
    try:
        return _SHORT.repr(value)
    except ValueError as error:  # integers with too many digits to convert
        return f'{type(value).__name__} ({error})'


def utf8_text(value: object) -> str:
    """Return a value as text for logs, reports and ROS: file names may not be valid UTF-8."""
    return str(value).encode('utf-8', 'backslashreplace').decode()


def error_text(error: BaseException) -> str:
    """Return the message of an error, or its type if the message is empty."""
    return utf8_text(error) or type(error).__name__


def error_with_type(error: BaseException) -> str:
    """Return the message of an error, preceded by its type unless it is an LprError."""
    text = utf8_text(error)
    return text if isinstance(error, LprError) else f'{type(error).__name__}: {text}'


class LprError(Exception):
    """Base class of all errors raised by this package."""

    def __str__(self) -> str:
        message = utf8_text(super().__str__())
        if len(message) <= MAX_MESSAGE_CHARS:
            return message
        return f'{message[: MAX_MESSAGE_CHARS // 2]} ... {message[-MAX_MESSAGE_CHARS // 3 :]}'


class ConfigError(LprError, ValueError):
    """A configuration value, key or file is invalid."""


class CloudError(LprError, ValueError):
    """A point cloud is unusable: wrong shape, no finite points, or outside the grid."""


class ScanError(LprError, ValueError):
    """A scan was skipped; `kind` is the short name under which diagnostics count it."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class CheckpointError(LprError):
    """A checkpoint is missing, damaged, of another format, or inconsistent."""


class DatasetError(LprError):
    """A dataset file or bag is missing, damaged or not in the expected format."""


class BackendError(LprError):
    """The requested compute backend or device is not available on this machine."""


class InterfaceError(LprError):
    """A ROS message or service type is not installed."""


class AdapterError(LprError):
    """A SLAM back-end cannot receive a loop closure."""


class DatabaseError(LprError, ValueError):
    """A keyframe cannot be stored or looked up: invalid descriptor, stamp, pose or id."""


class MapError(LprError):
    """A map file is damaged, of another version or checkpoint, or cannot be read or written."""


class GraphError(LprError, ValueError):
    """A pose graph rejects its input: unknown keyframe, invalid pose or covariance."""


class OdometryError(LprError):
    """The LiDAR odometry process failed on a scan; it continues with the next one."""


class VerificationError(LprError):
    """The verification process failed on a keyframe; processing continues with the next one."""
