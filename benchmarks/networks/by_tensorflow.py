"""Write NASNetMobile as Keras on TensorFlow has it, by tf2onnx: one of the twentieth lot, aside.

Needs tensorflow-cpu and tf2onnx.

    python -m benchmarks.networks.by_tensorflow --folder networks/twentieth_lot/aside
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
import tf2onnx

from benchmarks.command_line import parser_of


def write(folder: Path) -> None:
    """Write the network, with weights that are the same each time."""
    keras.utils.set_random_seed(0)
    image = keras.Input((64, 64, 3), batch_size=1)
    model = keras.applications.NASNetMobile(weights=None, classes=10, input_tensor=image)

    @tf.function(input_signature=[tf.TensorSpec(model.inputs[0].shape, tf.float32)])  # type: ignore[untyped-decorator]
    def infer(values: Any) -> Any:
        return model(values, training=False)

    path = str(folder / "NASNetMobile.onnx")
    tf2onnx.convert.from_function(infer, infer.input_signature, opset=17, output_path=path)


def main() -> None:
    """Write it to ``--folder``."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
