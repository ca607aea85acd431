"""Write networks of TensorFlow, Paddle and JAX with their own exporters, each where it is there.

    python -m benchmarks.networks.other_frameworks --folder networks/twentieth_lot   # tensorflow-cpu, tf2onnx
    python -m benchmarks.networks.other_frameworks --folder networks/twentieth_lot   # paddlepaddle, paddle2onnx
    python -m benchmarks.networks.other_frameworks --folder networks/twentieth_lot   # flax, jax2onnx
"""  # noqa: E501

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.command_line import parser_of

_OPSET = 17


def tensorflow(folder: Path) -> None:
    """NASNetMobile and the transformer of Keras's example on series, aside."""
    import keras

    def series() -> Any:
        values = keras.Input((128, 1), batch_size=1)
        found = values
        for _ in range(2):
            attend = keras.layers.MultiHeadAttention(key_dim=64, num_heads=4)
            inner = keras.layers.LayerNormalization(epsilon=1e-6)(attend(found, found)) + found
            wide = keras.layers.Conv1D(4, 1, activation="relu")(inner)
            narrow = keras.layers.Conv1D(1, 1)(wide)
            found = keras.layers.LayerNormalization(epsilon=1e-6)(narrow) + inner
        pooled = keras.layers.GlobalAveragePooling1D(data_format="channels_first")(found)
        hidden = keras.layers.Dense(128, activation="relu")(pooled)
        return keras.Model(values, keras.layers.Dense(2, activation="softmax")(hidden))

    keras.utils.set_random_seed(0)
    image = keras.Input((64, 64, 3), batch_size=1)
    mobile = keras.applications.NASNetMobile(weights=None, classes=10, input_tensor=image)
    _from_keras(mobile, folder / "aside" / "NASNetMobile.onnx")
    _from_keras(series(), folder / "aside" / "transformer of series.onnx")


def _from_keras(model: Any, path: Path) -> None:
    import tensorflow as tf
    import tf2onnx

    @tf.function(input_signature=[tf.TensorSpec(model.inputs[0].shape, tf.float32)])  # type: ignore[untyped-decorator]
    def infer(values: Any) -> Any:
        return model(values, training=False)

    tf2onnx.convert.from_function(
        infer, infer.input_signature, opset=_OPSET, output_path=str(path)
    )


def paddle(folder: Path) -> None:
    """PP-LiteSeg (Peng et al. 2022): STDC, pools, and attention to places where maps are added."""
    import paddle as pd
    from paddle import nn
    from paddle.nn import functional

    def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> Any:
        convolution = nn.Conv2D(inputs, outputs, kernel, stride, kernel // 2, bias_attr=False)
        return nn.Sequential(convolution, nn.BatchNorm2D(outputs), nn.ReLU())

    class Stdc(nn.Layer):  # type: ignore[misc]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            half, quarter, eighth = outputs // 2, outputs // 4, outputs // 8
            self.first = conv(inputs, half, 1)
            self.down = self.skip = None
            if stride == 2:  # noqa: PLR2004
                self.down = nn.Sequential(
                    nn.Conv2D(half, half, 3, 2, 1, groups=half, bias_attr=False),
                    nn.BatchNorm2D(half),
                )
                self.skip = nn.AvgPool2D(3, 2, 1)
            widths = ((half, quarter), (quarter, eighth), (eighth, eighth))
            self.rest = nn.LayerList([conv(a, b, 3) for a, b in widths])

        def forward(self, features: Any) -> Any:
            first = self.first(features)
            found = self.down(first) if self.down else first
            parts = [self.skip(first) if self.skip else first]
            for layer in self.rest:
                found = layer(found)
                parts.append(found)
            return pd.concat(parts, axis=1)

    class LiteSeg(nn.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2))
            self.stages = nn.LayerList(
                [
                    nn.Sequential(Stdc(a, b, 2), Stdc(b, b, 1))
                    for a, b in ((32, 64), (64, 128), (128, 256))
                ]
            )
            self.pools = nn.LayerList(
                [
                    nn.Sequential(nn.AdaptiveAvgPool2D(size), conv(256, 32, 1))
                    for size in (1, 2, 4)
                ]
            )
            self.pooled = conv(32, 32, 3)
            self.narrow = nn.LayerList([conv(c, 32, 3) for c in (128, 64)])
            self.gates = nn.LayerList(
                [nn.Sequential(conv(4, 2, 3), nn.Conv2D(2, 1, 3, padding=1)) for _ in "12"]
            )
            self.smooth = nn.LayerList([conv(32, 32, 3) for _ in "12"])
            self.last = nn.Sequential(conv(32, 32, 3), nn.Conv2D(32, 5, 1, bias_attr=False))

        def forward(self, image: Any) -> Any:
            found, levels = self.stem(image), []
            for stage in self.stages:
                found = stage(found)
                levels.append(found)
            size, total = levels[-1].shape[2:], 0
            for pool in self.pools:
                total = total + functional.interpolate(pool(levels[-1]), size, mode="bilinear")
            found = self.pooled(total)
            for i in range(2):
                near = self.narrow[i](levels[1 - i])
                far = functional.interpolate(found, near.shape[2:], mode="bilinear")
                kinds = [f(x, axis=1, keepdim=True) for x in (near, far) for f in (pd.mean, pd.max)]
                weight = functional.sigmoid(self.gates[i](pd.concat(kinds, axis=1)))
                found = self.smooth[i](near * weight + far * (1 - weight))
            return functional.interpolate(self.last(found), image.shape[2:], mode="bilinear")

    pd.seed(0)
    network = LiteSeg()
    network.eval()
    path = folder / "aside" / "PP-LiteSeg"
    spec = [pd.static.InputSpec([1, 3, 128, 128], "float32", "image")]
    pd.onnx.export(network, str(path), input_spec=spec, opset_version=_OPSET)


def jax(folder: Path) -> None:
    """MLP-Mixer (Tolstikhin et al. 2021) in flax, read."""
    import jax2onnx
    from flax import nnx

    class Block(nnx.Module):  # type: ignore[misc]
        def __init__(self, tokens: int, width: int, rngs: Any) -> None:
            self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in "12"])
            self.tokens = nnx.List(
                [nnx.Linear(a, b, rngs=rngs) for a, b in ((tokens, 32), (32, tokens))]
            )
            self.channels = nnx.List(
                [nnx.Linear(a, b, rngs=rngs) for a, b in ((width, 128), (128, width))]
            )

        def __call__(self, rows: Any) -> Any:
            turned = self.norms[0](rows).transpose(0, 2, 1)
            turned = self.tokens[1](nnx.gelu(self.tokens[0](turned)))
            rows = rows + turned.transpose(0, 2, 1)
            return rows + self.channels[1](nnx.gelu(self.channels[0](self.norms[1](rows))))

    class Mixer(nnx.Module):  # type: ignore[misc]
        def __init__(self, rngs: Any) -> None:
            self.patches = nnx.Conv(3, 64, (8, 8), (8, 8), rngs=rngs)
            self.blocks = nnx.List([Block(64, 64, rngs) for _ in "12"])
            self.norm = nnx.LayerNorm(64, rngs=rngs)
            self.last = nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, image: Any) -> Any:
            rows = self.patches(image)
            rows = rows.reshape(rows.shape[0], -1, rows.shape[-1])
            for block in self.blocks:
                rows = block(rows)
            return self.last(self.norm(rows).mean(axis=1))

    path = folder / "read" / "MLP-Mixer (flax).onnx"
    jax2onnx.to_onnx(
        Mixer(nnx.Rngs(0)), [(1, 64, 64, 3)], return_mode="file", output_path=str(path)
    )


def main() -> None:
    """Write what the frameworks that are installed here can write."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    folder = parser.parse_args().folder
    for part in ("read", "aside"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name, needed, write in (
        ("TensorFlow", "tf2onnx", tensorflow),
        ("Paddle", "paddle2onnx", paddle),
        ("JAX", "jax2onnx", jax),
    ):
        if find_spec(needed) is not None:
            print(name, flush=True)
            write(folder)


if __name__ == "__main__":
    main()
