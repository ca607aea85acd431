"""How well the onnxruntime pack predicts ONNX Runtime's optimized graph; see fidelity.py.

python benchmarks/onnxruntime_fidelity.py --json fidelity.json
python benchmarks/onnxruntime_fidelity.py --networks ort_lot --folder networks --placements 2
python benchmarks/onnxruntime_fidelity.py --model net.onnx,images=1x3x320x320
"""

from cpu_fidelity import CpuEngine
from fidelity import main

from placer.engines.onnxruntime import OnnxRuntimeEngine

ONNX_RUNTIME = CpuEngine(
    "onnxruntime", "ONNX Runtime's optimized graph", lambda _: OnnxRuntimeEngine()
)

if __name__ == "__main__":
    main(ONNX_RUNTIME, __doc__)
