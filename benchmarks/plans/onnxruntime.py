"""How well the onnxruntime pack predicts ONNX Runtime's optimized graph; see fidelity.py.

python -m benchmarks.plans.onnxruntime --json fidelity.json
python -m benchmarks.plans.onnxruntime --networks ort_set --folder networks --placements 2
python -m benchmarks.plans.onnxruntime --model net.onnx,images=1x3x320x320
"""

from benchmarks.plans.cpu import CpuEngine
from benchmarks.plans.fidelity import main
from placer.engines.onnxruntime import OnnxRuntimeEngine

ONNX_RUNTIME = CpuEngine(
    "onnxruntime", "ONNX Runtime's optimized graph", lambda _: OnnxRuntimeEngine()
)

if __name__ == "__main__":
    main(ONNX_RUNTIME, __doc__)
