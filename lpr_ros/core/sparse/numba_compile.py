"""Compilation with numba, cached in a folder that only the current user can write.

Numba unpickles its cache, and its default folder is next to the source: whoever can write there
could run code in the node.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from lpr_ros.core.files import private_cache_folder

F = TypeVar('F', bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function that releases the GIL; RuntimeError without a safe cache folder.

    The environment variable NUMBA_CACHE_DIR takes precedence.
    """
    config: Any = numba.config  # set from the environment on import
    default = config.CACHE_DIR
    folder = default or private_cache_folder('numba')
    if folder is None:
        raise RuntimeError('no cache folder that only this user can write')
    config.CACHE_DIR = str(folder)
    try:
        wrapped: Any = numba.njit(cache=True, nogil=True)(function)
    finally:
        config.CACHE_DIR = default
    return cast(F, wrapped)
