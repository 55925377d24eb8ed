"""Status level, summary and key-value pairs of /diagnostics."""

from diagnostic_msgs.msg import DiagnosticStatus
from message_samples import round_trip
import pytest

from lpr_ros.lpr_node import diagnostics
from lpr_ros.lpr_node.diagnostics import (
    Diagnostics,
    EventLog,
    MapStatus,
    RuntimeStatus,
    Statistics,
    status_level,
)

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR


@pytest.mark.parametrize(('state', 'new', 'total', 'expected'), [
    ('active', {'scans': 10}, {}, (OK, 'Receiving scans')),
    ('active', {}, {}, (OK, 'Waiting for scans')),
    ('inactive', {'dropped.cloud': 3}, {}, (OK, 'Inactive')),
    ('inactive', {'faults': 1}, {}, (ERROR, 'Unexpected exception, see the log')),
    ('active', {'scans': 10, 'dropped.newer_scan': 5}, {}, (OK, 'Receiving scans')),
    ('active', {'scans': 10, 'dropped.newer_scan': 6}, {}, (WARN, 'dropped.newer_scan: 6')),
    ('active', {'loops_dropped.lio_sam': 2}, {}, (WARN, 'loops_dropped.lio_sam: 2')),
    ('active', {'odometry_dropped.pose': 1, 'scans_lost': 2}, {},
     (WARN, 'odometry_dropped.pose: 1, scans_lost: 2')),
    ('active', {'scans': 1}, {'accepted': 9}, (OK, 'Receiving scans')),
    ('active', {'scans': 1}, {'accepted': 99, 'loops': 1}, (OK, 'Receiving scans')),
    ('active', {'scans': 1}, {'accepted': 10},
     (WARN, 'All loop closures contradict the odometry: increase odometry_noise')),
])  # fmt: skip
def test_the_summary_names_the_problem(state, new, total, expected):
    assert status_level(state, new, total) == expected


def test_silence_comes_before_drops_and_only_while_active():
    new = {'dropped.cloud': 3}
    assert status_level('active', new, {}, silence='nobody publishes') == (
        WARN,
        'nobody publishes',
    )
    assert status_level('inactive', new, {}, silence='nobody') == (OK, 'Inactive')


def test_an_unsaved_map_comes_before_drops():
    summary = status_level('active', {'dropped.cloud': 3}, {}, map_error='the disk is full')
    assert summary == (WARN, 'Map not saved: the disk is full')


def test_the_message_holds_status_rates_and_timings():
    statistics = Statistics()
    messages = Diagnostics('lpr_node', statistics)
    statistics.count('scans', 3)
    statistics.time('keyframe', 0.25)
    status = RuntimeStatus(
        'cpu', 'robot', 7, 2, 40, 3 * 2**20, 1, ('lio_sam',), MapStatus('', 5, 9.0)
    )
    (sent,) = messages.message(0, 'active', status).status
    values = {value.key: value.value for value in sent.values}
    assert values['state'] == 'active'
    assert (values['keyframes'], values['sessions'], values['database_mib']) == ('7', '2', '3.0')
    assert values['known_wrong_matches'] == '40'
    assert (values['map_keyframes'], values['map_age_s'], values['backends']) == (
        '5', '9', 'lio_sam',
    )  # fmt: skip
    assert (values['scans'], values['keyframe_mean_ms']) == ('3', '250.0')
    (sent,) = messages.message(0, 'unconfigured', None).status
    assert 'keyframes' not in {value.key for value in sent.values}


def test_names_that_are_not_utf8_can_be_sent():
    status = RuntimeStatus(
        'cpu', 'robot', 0, 0, 0, 0, 0, (), MapStatus('/data/\udcff: No space left')
    )
    message = Diagnostics('lpr_node', Statistics()).message(0, 'active', status)
    (sent,) = round_trip(message).status
    assert sent.message == 'Map not saved: /data/\\udcff: No space left'


def test_a_flood_of_sessions_does_not_flood_the_log(ros, monkeypatch):
    now_s, logged = [100.0], []
    monkeypatch.setattr(diagnostics.time, 'monotonic', lambda: now_s[0])
    events = EventLog(ros.node(), Statistics())
    events._log = type('Log', (), {'info': logged.append})
    for number in range(50):
        events.start_session(f'robot ({number})', 'jump')
    assert len(logged) == diagnostics.MAX_SESSION_LINES
    now_s[0] += diagnostics.LOG_INTERVAL_S
    events.start_session('robot (51)', 'jump')
    assert logged[-1] == "session 'robot (51)' starts: jump"


def test_events_are_counted_by_what_was_dropped_and_logged_once_in_a_while(ros):
    statistics, node = Statistics(), ros.node()
    events = EventLog(node, statistics)
    logged = []
    events._log = type('Log', (), {'warning': logged.append, 'error': logged.append})
    for _ in range(3):
        events.drop_scan('cloud', 'no points')
        events.drop_odometry('pose', 'not finite')
        events.drop_keyframe('verification', 'killed')
        events.drop_loop('lio_sam', 'full')
        events.drop_retraction('rtabmap', 'kept')
        events.retract([(7, 2), (8, 3)])
        events.retract([])
    assert statistics.counts() == {
        'dropped.cloud': 3,
        'odometry_dropped.pose': 3,
        'keyframes_dropped.verification': 3,
        'loops_dropped.lio_sam': 3,
        'retractions_dropped.rtabmap': 3,
        'retracted': 6,
    }
    assert len(logged) == 6
    assert logged[-1].endswith('7 to 2, 8 to 3')
    assert statistics.last_error == 'kept'
    events.is_muted = True
    events.fault(ValueError('interrupted'))
    assert 'faults' not in statistics.counts()
    events.is_muted = False
    events.fault(ValueError('a bug'))
    assert statistics.counts()['faults'] == 1
    assert 'ValueError: a bug' in logged[-1]
