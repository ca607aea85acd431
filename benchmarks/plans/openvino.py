"""How well the openvino pack predicts what OpenVINO's CPU plugin executes; see fidelity.py.

OpenVINO compiles in a worker process, so that a candidate with which it crashes counts as refused.
The tables of docs/openvino.md, a set of networks at a time:

python -m benchmarks.plans.openvino --json fidelity.json
python -m benchmarks.plans.openvino --networks newer third_set --folder networks --placements 1
python -m benchmarks.plans.openvino --model net.onnx,images=1x3x320x320 --differences
"""

from collections.abc import Mapping

from benchmarks.plans.cpu import CpuEngine
from benchmarks.plans.fidelity import main
from placer.engines.isolation import IsolatedEngine
from placer.engines.openvino.factory import OpenVinoFactory
from placer.engines.registry import EngineOptions
from placer.rules.packaging.load import load_pack


def _engine(shapes: Mapping[str, tuple[int, ...]]) -> IsolatedEngine:
    return OpenVinoFactory().create(EngineOptions(load_pack("openvino"), shapes=shapes))


OPENVINO = CpuEngine("openvino", "OpenVINO's runtime model", _engine, shows_bodies=False)

if __name__ == "__main__":
    main(OPENVINO, __doc__)
