"""Options of the engines ``tensorrt`` and ``tensorrt-rtx``, refused before a worker starts."""

import pytest

from placer.engines.registry import EngineOptions
from placer.engines.tensorrt.factory import TensorRtFactory
from placer.errors import InputError
from placer.rules.packaging.load import load_pack


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("optimization-level", "6", "optimization-level=6: give 0, 1, 2, 3, 4, 5"),
        ("workspace-mb", "0", "workspace-mb=0: give a whole number above 0"),
        ("build-timeout", "1h", "build-timeout=1h: give a whole number above 0"),
        ("typing", "wek", "did you mean 'weak'"),
        ("worspace-mb", "1", "did you mean 'workspace-mb'"),
    ],
)
def test_an_engine_option_without_a_value_that_tensorrt_takes_is_refused(
    option: str, value: str, message: str
):
    options = EngineOptions(load_pack("tensorrt"), extra={option: value})
    with pytest.raises(InputError, match=message):
        TensorRtFactory("tensorrt").create(options)
