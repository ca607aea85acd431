"""How well the onnxruntime pack predicts ONNX Runtime's optimized graph; see cpu_fidelity.py.

python benchmarks/onnxruntime_fidelity.py --json fidelity.json
python benchmarks/onnxruntime_fidelity.py --networks others
python benchmarks/onnxruntime_fidelity.py --model net.onnx,images=1x3x320x320
"""

from cpu_fidelity import Subject, main

from placer.engines.onnxruntime import OnnxRuntimeEngine

ONNX_RUNTIME = Subject(
    "onnxruntime", "ONNX Runtime's optimized graph", lambda _: OnnxRuntimeEngine()
)

if __name__ == "__main__":
    main(ONNX_RUNTIME, __doc__)
