"""Checkpoints: round trip, and errors that name the file and the problem."""

from dataclasses import replace
import json
import os
import pickle

import pytest
from safetensors.torch import save_file
import torch

import average
from lpr_ros.core.errors import CheckpointError
from lpr_ros.core.files import atomic_file
from lpr_ros.core.model.checkpoint import (
    FORMAT,
    Checkpoint,
    from_model,
    load_checkpoint,
    save_checkpoint,
)
from lpr_ros.core.model.config import PRESETS, InputConfig
from lpr_ros.core.model.import_minkloc import import_checkpoint, main, read_foreign_tensors
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.core.sparse import collate

NAME = 'backbone.convs.0.kernel'


@pytest.fixture
def checkpoint(tiny_model) -> Checkpoint:
    return from_model(
        tiny_model,
        provenance={'data': 'toy', 'epochs': 3, 'metrics': {'recall': [0.5, 1.0]}},
        license='CC BY-NC-SA 3.0, from the toy data',
        calibration={'threshold': 0.25},
    )


@pytest.fixture
def path(tmp_path, checkpoint):
    target = tmp_path / 'model.safetensors'
    save_checkpoint(target, checkpoint)
    return target


def with_metadata(path, **changes: str | None) -> None:
    """Rewrite a checkpoint with other metadata entries; None removes one."""
    checkpoint = load_checkpoint(path)
    metadata = {
        'format': FORMAT,
        'version': '1',
        'model': json.dumps(checkpoint.config.to_dict()),
        'provenance': '{}',
        'calibration': '{}',
        'license': '',
        **changes,
    }
    metadata = {key: value for key, value in metadata.items() if value is not None}
    save_file(dict(checkpoint.tensors), path, metadata=metadata)


def test_round_trip_keeps_everything(path, checkpoint, tiny_model, clouds):
    loaded = load_checkpoint(path)
    assert loaded.config == checkpoint.config
    assert loaded.provenance == checkpoint.provenance
    assert loaded.license == checkpoint.license
    assert loaded.calibration == checkpoint.calibration
    assert loaded.tensors.keys() == tiny_model.state_dict().keys()
    for name, tensor in tiny_model.state_dict().items():
        assert torch.equal(loaded.tensors[name], tensor), name
        assert loaded.tensors[name].dtype == tensor.dtype, name
    model = loaded.build()
    assert not model.training
    with torch.no_grad():
        assert torch.equal(model(collate(clouds)), tiny_model(collate(clouds)))
    assert loaded.fingerprint == checkpoint.fingerprint


@pytest.mark.parametrize('preset', sorted(PRESETS))
def test_configuration_of_every_preset_round_trips(preset, tmp_path):
    config = PRESETS[preset]()
    save_checkpoint(tmp_path / 'empty', Checkpoint(config, {}))
    assert load_checkpoint(tmp_path / 'empty').config == config


def test_checkpoint_is_independent_of_further_training(tiny_model):
    taken = from_model(tiny_model)
    before = taken.fingerprint
    with torch.no_grad():
        tiny_model.backbone.conv0.kernel.add_(1.0)
    assert taken.fingerprint == before


@pytest.mark.parametrize('kept', [0, 4, 100, 0.5, -1])
def test_truncated_file_is_refused(path, kept):
    content = path.read_bytes()
    length = int(len(content) * kept) if isinstance(kept, float) else kept
    path.write_bytes(content[:length])
    with pytest.raises(CheckpointError, match=r'model\.safetensors: damaged or not'):
        load_checkpoint(path)


@pytest.mark.parametrize('position', [0, 7, 8, 9])
def test_damaged_header_is_refused(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match=r'model\.safetensors: '):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'format': 'other'}, "format 'other'.*expected 'lpr_ros checkpoint' version 1"),
        ({'format': None}, 'format None.*expected'),
        ({'version': '2'}, "version '2'.*version 1"),
        ({'model': None}, "metadata 'model': expected JSON"),
        ({'model': '{'}, "metadata 'model': expected JSON"),
        ({'model': '[]'}, r"metadata 'model': expected a JSON object, got \[\]"),
        ({'model': '{"color": 1}'}, "unknown key 'color'"),
        ({'model': '{"pooling": {"clusters": "16"}}'}, "pooling.clusters: expected int, got '16'"),
        ({'model': '{"pooling": {"kind": "max"}}'}, "'max' is not one of"),
        ({'calibration': '3'}, "metadata 'calibration'"),
    ],
)
def test_wrong_metadata_is_reported_with_file_and_value(path, changes, message):
    with_metadata(path, **changes)
    with pytest.raises(CheckpointError, match=rf'model\.safetensors: .*{message}'):
        load_checkpoint(path)


def test_missing_file_and_foreign_file_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r'nowhere\.safetensors: no such file'):
        load_checkpoint(tmp_path / 'nowhere.safetensors')
    with pytest.raises(CheckpointError, match='damaged or not'):
        load_checkpoint(tmp_path)
    save_file({'x': torch.zeros(1)}, tmp_path / 'plain.safetensors')
    with pytest.raises(CheckpointError, match='format None'):
        load_checkpoint(tmp_path / 'plain.safetensors')


def test_missing_unknown_and_misshapen_tensors_are_listed(checkpoint):
    tensors = dict(checkpoint.tensors)
    del tensors[NAME]
    tensors['backbone.extra'] = torch.zeros(1)
    tensors['backbone.conv0.kernel'] = torch.zeros(2, 2)
    with pytest.raises(CheckpointError) as error:
        replace(checkpoint, tensors=tensors).build()
    assert f'missing {NAME}' in str(error.value)
    assert 'unknown backbone.extra' in str(error.value)
    assert 'backbone.conv0.kernel has shape (2, 2), expected (27, 1, 8)' in str(error.value)


def test_failed_save_keeps_the_old_file_and_leaves_no_other(path, checkpoint, monkeypatch):
    old = path.read_bytes()

    def fail(*_):
        raise OSError('disk full')

    monkeypatch.setattr(os, 'replace', fail)
    with pytest.raises(CheckpointError, match=r'model\.safetensors: cannot be written: disk full'):
        save_checkpoint(path, replace(checkpoint, license='new'))
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


def test_interrupted_save_keeps_the_old_file(path, checkpoint, monkeypatch):
    old = path.read_bytes()

    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, 'fsync', interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, checkpoint)
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


def test_concurrent_save_is_refused(path, checkpoint):
    old = path.read_bytes()
    with atomic_file(path) as partial:
        with pytest.raises(CheckpointError, match='cannot be written'):
            save_checkpoint(path, checkpoint)
        partial.write_bytes(b'other writer')
    assert path.read_bytes() == b'other writer' != old


def test_fingerprint_depends_on_weights_and_configuration_only(checkpoint):
    tensors = {name: tensor.clone() for name, tensor in checkpoint.tensors.items()}
    assert replace(checkpoint, tensors=tensors).fingerprint == checkpoint.fingerprint
    assert replace(checkpoint, license='x', provenance={}).fingerprint == checkpoint.fingerprint
    tensors[NAME][0, 0, 0] += 1e-6
    assert replace(checkpoint, tensors=tensors).fingerprint != checkpoint.fingerprint
    other = replace(checkpoint.config, input=replace(checkpoint.config.input, max_range_m=31.0))
    assert replace(checkpoint, config=other).fingerprint != checkpoint.fingerprint


def test_fingerprint_ignores_new_options_at_their_default(checkpoint, monkeypatch):
    before = checkpoint.fingerprint
    plain = InputConfig.to_dict
    monkeypatch.setattr(InputConfig, 'to_dict', lambda self: plain(self) | {'later': False})
    assert checkpoint.fingerprint == before


# Imported weights


@pytest.fixture(scope='module')
def published() -> PlaceModel:
    torch.manual_seed(3)
    return PlaceModel(PRESETS['minkloc3d']()).eval()


def published_names(model: PlaceModel) -> dict[str, torch.Tensor]:
    return {
        name.replace('pooling.p', 'pooling.pooling.p'): tensor
        for name, tensor in model.state_dict().items()
    }


@pytest.mark.parametrize('nested', [None, 'model', 'state_dict'])
def test_imported_weights_give_the_same_descriptors(nested, published, tmp_path, clouds):
    state = published_names(published)
    assert 'pooling.pooling.p' in state
    torch.save({nested: state, 'epoch': 3} if nested else state, tmp_path / 'published.pth')
    imported = import_checkpoint(tmp_path / 'published.pth', PRESETS['minkloc3d']())
    with torch.no_grad():
        assert torch.equal(imported.build()(collate(clouds)), published(collate(clouds)))
    assert imported.provenance == {'imported_from': 'published.pth'}


class Exploit:
    def __reduce__(self):
        return os.system, ('touch exploited',)


def test_pickle_with_code_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({'pooling.p': Exploit()}, 'torch.pth')
    (tmp_path / 'plain.pth').write_bytes(pickle.dumps(Exploit()))
    for name in ('torch.pth', 'plain.pth'):
        with pytest.raises(CheckpointError, match=rf'{name}: not a plain torch file'):
            read_foreign_tensors(tmp_path / name)
    assert not (tmp_path / 'exploited').exists()


@pytest.mark.parametrize(
    'content',
    [
        b'',
        b'hello',
        b'\x80\x02}q\x00.',
        b'PK\x03\x04broken',
        bytes(range(256)),
        b'\x80\x02\x8a\x0a',
    ],
)
def test_file_without_state_dict_is_refused(content, tmp_path):
    (tmp_path / 'odd.pth').write_bytes(content)
    with pytest.raises(CheckpointError, match=r'odd\.pth: '):
        import_checkpoint(tmp_path / 'odd.pth', PRESETS['minkloc3d']())


def test_weights_of_another_network_are_refused_with_their_names(published, tmp_path):
    torch.save(published_names(published), tmp_path / 'v1.pth')
    with pytest.raises(CheckpointError, match=r'missing backbone\.convs\.3\.kernel'):
        import_checkpoint(tmp_path / 'v1.pth', PRESETS['minkloc3dv2']())
    torch.save([1, 2], tmp_path / 'list.pth')
    with pytest.raises(CheckpointError, match='expected a dict of tensors, got list'):
        import_checkpoint(tmp_path / 'list.pth', PRESETS['minkloc3d']())


def test_command_writes_a_checkpoint_and_returns_zero(published, tmp_path, capsys):
    source, target = tmp_path / 'v1.pth', tmp_path / 'v1.safetensors'
    torch.save(published_names(published), source)
    assert main([str(source), str(target), '--model', 'minkloc3d']) == 0
    assert load_checkpoint(target).config == PRESETS['minkloc3d']()
    assert str(target) in capsys.readouterr().out


def test_command_reports_errors_and_returns_one(published, tmp_path, capsys):
    source = tmp_path / 'v1.pth'
    torch.save(published_names(published), source)
    for arguments in (
        [str(tmp_path / 'absent.pth'), str(tmp_path / 'out')],
        [str(source), str(tmp_path / 'out')],
        [str(source), str(source / 'out'), '--model', 'minkloc3d'],
    ):
        assert main(arguments) == 1
        assert str(tmp_path) in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()


def test_mean_of_checkpoints_averages_weights_and_drops_calibration(checkpoint, tmp_path):
    other = replace(checkpoint, tensors={k: 3 * t for k, t in checkpoint.tensors.items()})
    paths = [tmp_path / name for name in ('a.safetensors', 'b.safetensors', 'mean.safetensors')]
    for path, saved in zip(paths, (checkpoint, other), strict=False):
        save_checkpoint(path, saved)
    assert average.main([*map(str, paths[:2]), '--out', str(paths[2])]) == 0
    mean = load_checkpoint(paths[2])
    for name, tensor in checkpoint.tensors.items():
        factor = (
            2 if tensor.is_floating_point() else 3
        )  # counters are those of the last checkpoint
        torch.testing.assert_close(mean.tensors[name], factor * tensor)
    assert mean.calibration == {}
    assert mean.provenance['mean_of'] == 2 * [dict(checkpoint.provenance)]


def test_mean_of_different_networks_is_refused(checkpoint, path, tmp_path, capsys):
    other = tmp_path / 'other.safetensors'
    pooling = replace(checkpoint.config.pooling, sigma_exponent=0.25)
    save_checkpoint(other, replace(checkpoint, config=replace(checkpoint.config, pooling=pooling)))
    out = tmp_path / 'mean.safetensors'
    assert average.main([str(other), str(path), '--out', str(out)]) == 1
    assert 'sigma_exponent=0.25' in capsys.readouterr().err
    assert not out.exists()
