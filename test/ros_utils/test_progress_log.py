"""The line of progress in the log: totals, growth, and silence while nothing changes."""

from types import SimpleNamespace

from lpr_ros.ros_utils import progress_log
from lpr_ros.ros_utils.progress_log import ProgressLog


def test_totals_are_logged_with_their_growth_and_only_when_they_change(monkeypatch):
    now_s, lines = [0.0], []
    monkeypatch.setattr(progress_log.time, 'monotonic', lambda: now_s[0])
    progress = ProgressLog(SimpleNamespace(info=lines.append))
    progress.tick({'scans': 1})
    now_s[0] = 31.0
    progress.tick({'scans': 0})
    assert lines == []  # the interval is not over, nothing has happened
    for after_s, totals in ((32.0, 290), (35.0, 340), (62.0, 590), (95.0, 590), (200.0, 591)):
        now_s[0] = after_s
        progress.tick({'scans': totals, 'dropped': 2})
    assert lines == [
        'scans 290 (+290), dropped 2 (+2)',
        'scans 590 (+300), dropped 2 (+0)',
        'scans 591 (+1), dropped 2 (+0)',
    ]
