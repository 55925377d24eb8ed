"""Damaged input is refused in words; and the fuzzer sees what it is there to see."""

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
from lpr_ros.core.errors import LONGEST_MESSAGE, CloudError, ConfigError, DatasetError, shown
from lpr_ros.core.pipeline import PipelineConfig
from lpr_ros.core.pointcloud2 import FIELD_TYPES, read_cloud
from lpr_training.benchmarks import fuzz, fuzz_process
from lpr_training.benchmarks.fuzz_list import TARGETS
from lpr_training.benchmarks.fuzz_process import ACCEPTED, REFUSED, outcomes
from lpr_training.benchmarks.fuzz_targets import Target, random_of


def test_damaged_inputs_of_every_format_are_accepted_or_refused_in_words():
    result = fuzz.run(2300, seed=11)
    found = [row['listed'] for row in result['targets'] if row['findings']]
    assert not found
    assert result['inputs'] >= 2300
    for row in result['targets']:
        assert row['refused'] > 0, f'{row["target"]}: no input was damaged'


def test_the_command_writes_what_was_tried(tmp_path, capsys):
    arguments = ['fuzz', '--inputs', '30', '--targets', 'tum', 'g2o']
    assert main([*arguments, '--json', str(tmp_path / 'out.json')]) == 0
    assert '| **all** | 30 |' in capsys.readouterr().out
    assert main(['fuzz', '--targets', 'tmu']) == 1
    assert "no target 'tmu'" in capsys.readouterr().err


def test_an_input_follows_from_its_seed_and_index(tmp_path):
    target = TARGETS['tum'](tmp_path)
    made = [target.make(random_of('tum', 5, i)).data for i in range(20)]
    assert made == [target.make(random_of('tum', 5, i)).data for i in range(20)]
    assert len(set(made)) > 15
    assert made[0] != target.make(random_of('tum', 6, 0)).data


def fill(size: int) -> None:
    """Touch memory and refuse afterwards."""
    np.ones(size, dtype=np.uint8)
    raise DatasetError('file.bin: expected less')


def spin() -> None:
    while True:
        pass


def refuse(message: str) -> None:
    raise DatasetError(message)


@pytest.mark.parametrize(('action', 'kind', 'detail'), [
    (lambda: None, ACCEPTED, ''),
    (lambda: refuse('file.bin: expected an end'), REFUSED, 'DatasetError'),
    (lambda: refuse('file.bin: '), 'no reason', ''),
    (lambda: refuse('expected an end'), 'no reason', ''),
    (lambda: {}['here'], 'KeyError', "'here'"),
    (lambda: np.empty(2**62, dtype=np.uint8), 'MemoryError', 'allocate'),
    (lambda: fill(300 << 20), 'memory', 'bytes more'),
    (os.abort, 'crash', 'SIGABRT'),
    (lambda: os._exit(3), 'crash', 'exit code 3'),
    (spin, 'hang', 'no answer'),
    (lambda: time.sleep(60), 'hang', 'no answer'),
])  # fmt: skip
def test_the_fuzzer_tells_findings_from_refusals_and_goes_on(monkeypatch, action, kind, detail):
    def make(folder):
        return Target('it', lambda random: None, lambda data: action(), 'file.bin')

    monkeypatch.setitem(fuzz_process.TARGETS, 'it', make)
    if kind == 'hang':
        # One of the two alone has to catch it: spinning burns a core, sleeping does not.
        monkeypatch.setattr(fuzz_process, 'HANG_CPU_S', 0.2)
        monkeypatch.setattr(fuzz_process, 'HANG_S', 60.0 if action is spin else 1.0)
    found = list(outcomes('it', 0, 0, 2))
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
def test_any_pointcloud2_is_finite_points_or_a_cloud_error(layout, described, data, big):
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
def test_any_plain_value_is_a_configuration_or_a_config_error(data):
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
def test_hostile_yaml_is_refused_briefly_and_at_once(tmp_path, text):
    path = tmp_path / 'node.yaml'
    path.write_text(text)
    with pytest.raises(ConfigError, match=r'node.yaml: .') as refused:
        PipelineConfig.from_yaml(path)
    assert len(str(refused.value)) < LONGEST_MESSAGE
    if '\n' not in text:
        with pytest.raises(ConfigError):
            parse_assignments(['candidates=' + text, 'no assignment'])


def test_messages_are_cut_in_the_middle_and_values_are_shown_in_short():
    message = str(DatasetError('begin ' + 'x' * 10**6 + ' end'))
    assert len(message) < LONGEST_MESSAGE
    assert message.startswith('begin x')
    assert message.endswith('x end')
    assert str(DatasetError('short')) == 'short'
    assert shown((1, 2.5, 'a')) == "(1, 2.5, 'a')"
    assert len(shown(list(range(10**6)))) < 100
    assert 'digits' in shown(10**5000)
