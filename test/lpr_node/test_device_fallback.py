"""Missing and lost devices."""

import numpy as np
import pytest
from toy_clouds import tiny_config
from toy_drive import step, tiny_extractor

from lpr_ros.core.errors import BackendError
from lpr_ros.core.model.descriptor_extractor import NetworkDescriptorExtractor
from lpr_ros.core.model.place_model import PlaceModel
from lpr_ros.lpr_node.device_fallback import FallbackDescriptorExtractor


class LostDevice(NetworkDescriptorExtractor):
    """An extractor whose device fails on first use, like CUDA without memory."""

    def describe(self, points):
        raise RuntimeError('CUDA out of memory')


def test_a_lost_device_is_replaced_by_the_cpu_with_one_warning():
    loads, warnings = [], []

    def load(device):
        loads.append(device)
        is_cpu = device == 'cpu'
        made = tiny_extractor() if is_cpu else LostDevice(PlaceModel(tiny_config()))
        made.device = device
        return made

    safe = FallbackDescriptorExtractor(load, 'cuda', fallback=True, warn=warnings.append)
    points = step(0).points
    assert np.array_equal(safe.describe(points), safe.describe(points))
    assert (loads, safe.device, len(warnings)) == (['cuda', 'cpu'], 'cpu', 1)
    strict = FallbackDescriptorExtractor(load, 'cuda', fallback=False, warn=warnings.append)
    with pytest.raises(RuntimeError, match='CUDA'):
        strict.describe(points)


def test_a_missing_device_fails_or_falls_back_by_parameter():
    def load(device):
        if device != 'cpu':
            raise BackendError('torch sees no CUDA device here')
        return tiny_extractor()

    def ignore(text):
        pass

    with pytest.raises(BackendError, match='cuda'):
        FallbackDescriptorExtractor(load, 'cuda', fallback=False, warn=ignore)
    made = FallbackDescriptorExtractor(load, 'cuda', fallback=True, warn=ignore)
    assert made.device == 'cpu'
