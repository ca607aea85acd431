"""Write a network as Keras on TensorFlow has it, by tf2onnx: one of a set.

NASNetMobile is one of the twentieth set, aside, DenseNet121 of the twenty-first, read.

Needs tensorflow-cpu and tf2onnx.

    python -m benchmarks.networks.by_tensorflow NASNetMobile --folder networks/twentieth_set/aside
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
import tf2onnx

from benchmarks.command_line import parser_of


def write(name: str, folder: Path) -> None:
    """Write the network of keras.applications, with weights that are the same each time."""
    keras.utils.set_random_seed(0)
    image = keras.Input((64, 64, 3), batch_size=1)
    model = getattr(keras.applications, name)(weights=None, classes=10, input_tensor=image)

    @tf.function(input_signature=[tf.TensorSpec(model.inputs[0].shape, tf.float32)])  # type: ignore[untyped-decorator]
    def infer(values: Any) -> Any:
        return model(values, training=False)

    path = str(folder / f"{name}.onnx")
    tf2onnx.convert.from_function(infer, infer.input_signature, opset=17, output_path=path)


def main() -> None:
    """Write it to ``--folder``."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("name", choices=("NASNetMobile", "DenseNet121"))
    options = parser.parse_args()
    write(options.name, options.folder)


if __name__ == "__main__":
    main()
