"""Damaged input is rejected with an error, and the fuzzer detects what it should."""

from contextlib import suppress
import os
import time
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from benchmark import main
from lpr_ros.core.config import parse_assignments
from lpr_ros.core.errors import (
    MAX_MESSAGE_CHARS,
    CloudError,
    ConfigError,
    DatasetError,
    short_repr,
)
from lpr_ros.core.io.pointcloud2 import FIELD_TYPES, read_cloud
from lpr_ros.core.pipeline import PipelineConfig
from lpr_training.benchmarks.fuzz import process, run
from lpr_training.benchmarks.fuzz.process import ACCEPTED, REJECTED, outcomes
from lpr_training.benchmarks.fuzz.registry import TARGETS
from lpr_training.benchmarks.fuzz.target import Target, random_of


def test_damaged_inputs_of_every_format_are_accepted_or_rejected_with_an_error():
    result = run.run(2300, seed=11)
    found = [row['listed'] for row in result['targets'] if row['findings']]
    assert not found
    assert result['inputs'] >= 2300
    for row in result['targets']:
        assert row['refused'] > 0, f'{row["target"]}: no input was rejected'


def test_fuzz_command_prints_a_table_and_names_unknown_targets(tmp_path, capsys):
    arguments = ['fuzz', '--inputs', '30', '--targets', 'tum', 'kitti poses']
    assert main([*arguments, '--json', str(tmp_path / 'out.json')]) == 0
    assert '| **all** | 30 |' in capsys.readouterr().out
    assert main(['fuzz', '--targets', 'tmu']) == 1
    assert "--targets 'tmu': unknown" in capsys.readouterr().err


def test_seed_and_index_determine_an_input(tmp_path):
    target = TARGETS['tum'](tmp_path)
    made = [target.make(random_of('tum', 5, i)).data for i in range(20)]
    assert made == [target.make(random_of('tum', 5, i)).data for i in range(20)]
    assert len(set(made)) > 15
    assert made[0] != target.make(random_of('tum', 6, 0)).data


def test_every_reader_rejects_special_files_without_blocking(monkeypatch):
    """A FIFO would block for ever, /dev/zero would be read without end."""
    monkeypatch.setattr(process, 'HANG_S', 10.0)
    found = list(outcomes('special files', 0, 0, 250))
    assert {
        (outcome.kind, outcome.detail) for outcome in found if outcome.kind != REJECTED
    } == set()


def fill(size: int) -> None:
    """Touch memory, then raise."""
    np.ones(size, dtype=np.uint8)
    raise DatasetError('file.bin: expected less')


def spin() -> None:
    while True:
        pass


def reject(message: str) -> None:
    raise DatasetError(message)


@pytest.mark.parametrize(('action', 'kind', 'detail'), [
    (lambda: None, ACCEPTED, ''),
    (lambda: reject('file.bin: expected an end'), REJECTED, 'DatasetError'),
    (lambda: reject('file.bin: '), 'no reason', ''),
    (lambda: reject('expected an end'), 'no reason', ''),
    (lambda: {}['here'], 'KeyError', "'here'"),
    (lambda: np.empty(2**62, dtype=np.uint8), 'MemoryError', 'allocate'),
    (lambda: fill(300 << 20), 'memory', 'grew by'),
    (os.abort, 'crash', 'SIGABRT'),
    (lambda: os._exit(3), 'crash', 'exit code 3'),
    (spin, 'hang', 'no result'),
    (lambda: time.sleep(60), 'hang', 'no result'),
])  # fmt: skip
def test_outcomes_tell_findings_from_rejections_and_continue(monkeypatch, action, kind, detail):
    def make(folder):
        return Target('target', lambda random: None, lambda data: action(), 'file.bin')

    monkeypatch.setitem(process.TARGETS, 'target', make)
    if kind == 'hang':
        # Each limit must work alone: spinning uses CPU time, sleeping does not.
        monkeypatch.setattr(process, 'HANG_CPU_S', 0.2)
        monkeypatch.setattr(process, 'HANG_S', 60.0 if action is spin else 1.0)
    found = list(outcomes('target', 0, 0, 2))
    assert [outcome.index for outcome in found] == [0, 1]
    assert found[0].kind == kind
    assert detail in found[0].detail


numbers = st.one_of(st.integers(-(2**63), 2**64), st.integers(0, 100))
fields = st.builds(
    SimpleNamespace,
    name=st.sampled_from(['x', 'y', 'z', 'xyz', 'intensity', 'ring', 'time', 't', '']),
    offset=numbers,
    datatype=st.sampled_from([*FIELD_TYPES, 0, 200]),
    count=numbers,
)


@settings(max_examples=300, deadline=None)
@given(
    layout=st.fixed_dictionaries(
        dict.fromkeys(['height', 'width', 'point_step', 'row_step'], numbers)
    ),
    described=st.lists(fields, max_size=6),
    data=st.binary(max_size=400),
    big=st.booleans(),
)
def test_any_pointcloud2_yields_finite_points_or_a_cloud_error(layout, described, data, big):
    stamp = SimpleNamespace(sec=0, nanosec=0)
    message = SimpleNamespace(
        header=SimpleNamespace(stamp=stamp, frame_id=''), fields=described, data=data,
        is_bigendian=big, is_dense=True, **layout,
    )  # fmt: skip
    with suppress(CloudError):
        points = read_cloud(message).points
        assert points.shape[1] == 3
        assert np.isfinite(points).all()


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
sections = st.sampled_from(['candidates', 'keyframes', 'database', 'support', 'nothing'])


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(sections, plain, max_size=3) | plain)
def test_any_plain_value_yields_a_configuration_or_a_config_error(data):
    with suppress(ConfigError):
        made = PipelineConfig.from_dict(data)
        assert PipelineConfig.from_dict(made.to_dict()) == made


@pytest.mark.parametrize('text', [
    '[' * 5000,
    'candidates: 2001-99-99',
    'candidates: ' + '9' * 5000,
    'candidates: 0x' + 'f' * 9000,
    'candidates: !!python/object/apply:os.getcwd []',
    'x: &x [1]\n' + ''.join(f'{c}: &{c} [{", ".join([f"*{p}"] * 9)}]\n'
                            for p, c in zip('xabcdefghij', 'abcdefghijk', strict=True))
    + 'candidates: *k',
    '? *k\n: 1',
    'candidates: &a [*a]',
], ids=['nested', 'date', 'digits', 'hex', 'object', 'bomb', 'anchor', 'itself'])  # fmt: skip
def test_hostile_yaml_is_rejected_quickly_with_a_short_message(tmp_path, text):
    path = tmp_path / 'node.yaml'
    path.write_text(text)
    with pytest.raises(ConfigError, match=r'node.yaml: .') as rejected:
        PipelineConfig.from_yaml(path)
    assert len(str(rejected.value)) < MAX_MESSAGE_CHARS
    if '\n' not in text:
        with pytest.raises(ConfigError):
            parse_assignments(['candidates=' + text, 'no assignment'])


def test_long_messages_and_values_are_abbreviated():
    message = str(DatasetError('begin ' + 'x' * 10**6 + ' end'))
    assert len(message) < MAX_MESSAGE_CHARS
    assert message.startswith('begin x')
    assert message.endswith('x end')
    assert str(DatasetError('short')) == 'short'
    assert short_repr((1, 2.5, 'a')) == "(1, 2.5, 'a')"
    assert len(short_repr(list(range(10**6)))) < 100
    assert 'digits' in short_repr(10**5000)
