"""What can go wrong, as types. Every message holds the bad value and the expected one."""

import reprlib
from typing import Any

LONGEST_MESSAGE = 2000  # characters; damaged files have values of megabytes

_SHORT = reprlib.Repr()
_SHORT.maxlevel = 3
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = _SHORT.maxset = 12
_SHORT.maxstring = _SHORT.maxother = 200


def shown(value: Any) -> str:
    """Return a bad value for a message; of a large, deep or endless one only the beginning."""
    try:
        return _SHORT.repr(value)
    except ValueError as error:  # an integer of more digits than Python writes out
        return f'{type(value).__name__} ({error})'


def reason(error: BaseException) -> str:
    """Return what an error says, or what it is called where it says nothing."""
    return str(error) or type(error).__name__


def named(error: BaseException) -> str:
    """Return what an error says; of one that is not ours, also what it is called."""
    return str(error) if isinstance(error, LprError) else f'{type(error).__name__}: {error}'


class LprError(Exception):
    """Base of every error this package raises on purpose."""

    def __str__(self) -> str:
        message = super().__str__()
        if len(message) <= LONGEST_MESSAGE:
            return message
        return f'{message[: LONGEST_MESSAGE // 2]} ... {message[-LONGEST_MESSAGE // 3 :]}'


class ConfigError(LprError, ValueError):
    """A configuration value, key or file is wrong."""


class CloudError(LprError, ValueError):
    """A point cloud cannot be used: wrong shape, no finite points, outside the grid."""


class ScanError(LprError, ValueError):
    """A scan was left out and the drive goes on; `kind` is a short name to count it under."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class CheckpointError(LprError):
    """A checkpoint is damaged, of another format, or does not fit its own configuration."""


class DatasetError(LprError):
    """A file of a dataset or bag is missing, damaged or not what its format says."""


class BackendError(LprError):
    """A backend or device was asked for that this machine does not have."""


class DatabaseError(LprError, ValueError):
    """A keyframe cannot be stored or looked up: bad descriptor, stamp, pose or number."""


class MapError(LprError):
    """A map file is damaged, of another version or checkpoint, or cannot be written."""


class GraphError(LprError, ValueError):
    """A pose graph cannot take this: an unknown keyframe, a pose or covariance that is none."""


class VerificationError(LprError):
    """The process that verifies failed on a keyframe; the drive goes on."""
