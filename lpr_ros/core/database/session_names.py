"""Names of sessions: what is valid, and how to make them valid and unique."""

from collections.abc import Collection

from lpr_ros.core.errors import DatabaseError, short_repr

MAX_SESSIONS = 4096
MAX_BASE_NAME_BYTES = 255
MAX_SESSION_NAME_BYTES = MAX_BASE_NAME_BYTES + len(f' ({MAX_SESSIONS})')


def check_session_name(name: object, max_bytes: int = MAX_SESSION_NAME_BYTES) -> None:
    """Raise DatabaseError unless a name is a short, printable UTF-8 string."""
    # Length first: other checks of a name of megabytes are slow.
    if not isinstance(name, str) or not 0 < len(name) <= max_bytes:
        raise DatabaseError(
            f'session name {short_repr(name)}: expected 1 to {max_bytes} bytes of text'
        )
    if not name.isprintable():  # also true for surrogates, which have no UTF-8
        raise DatabaseError(f'session name {name!r}: expected printable characters only')
    if len(name.encode()) > max_bytes:
        raise DatabaseError(f'session name {name!r}: expected at most {max_bytes} bytes')


def clean_session_name(text: str) -> str:
    """Return a valid session name similar to any text, e.g. to the name of a folder."""
    printable = ''.join(character if character.isprintable() else '_' for character in text)
    return printable.encode()[:MAX_BASE_NAME_BYTES].decode(errors='ignore') or '_'


def unique_session_name(name: str, taken: Collection[str]) -> str:
    """Return `name`, or the first of `name (2)`, `name (3)`, ... that is not taken."""
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f'{name} ({number})'
    return unique
