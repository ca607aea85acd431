"""How well the openvino pack predicts what OpenVINO's CPU plugin executes; see cpu_fidelity.py.

python benchmarks/openvino_fidelity.py --json fidelity.json
python benchmarks/openvino_fidelity.py --networks others
python benchmarks/openvino_fidelity.py --model net.onnx,images=1x3x320x320
"""

from cpu_fidelity import Subject, main

from placer.engines.openvino.engine import OpenVinoEngine

OPENVINO = Subject(
    "openvino", "OpenVINO's runtime model", lambda shapes: OpenVinoEngine(shapes=shapes)
)

if __name__ == "__main__":
    main(OPENVINO, __doc__)
