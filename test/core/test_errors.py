"""Error messages: bounded, and always valid UTF-8."""

import pytest

from lpr_ros.core.errors import (
    MAX_MESSAGE_CHARS,
    LprError,
    ScanError,
    error_text,
    error_with_type,
    utf8_text,
)

NOT_UTF8 = 'scan_\udcff.bin'  # as Python reads the file name b'scan_\xff.bin'


@pytest.mark.parametrize(
    'error',
    [LprError(NOT_UTF8), ScanError('cloud', NOT_UTF8), OSError(2, 'No such file', NOT_UTF8)],
)
def test_a_file_name_that_is_not_utf8_is_escaped(error):
    for text in (error_text(error), error_with_type(error), utf8_text(error)):
        assert 'udcff.bin' in text
        assert text.encode()
    assert str(LprError(NOT_UTF8)) == 'scan_\\udcff.bin'


def test_an_escaped_message_is_still_truncated():
    assert len(str(LprError('\udcff' * MAX_MESSAGE_CHARS))) < MAX_MESSAGE_CHARS
