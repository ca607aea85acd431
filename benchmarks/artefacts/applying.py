"""Train the bundled example anew and export it twice, for the tests of ``placer apply``.

Development only (needs torch, onnxscript, scikit-learn and onnx):

    python -m benchmarks.artefacts.applying tests/artefacts     # narrow, as in the repository
    python -m benchmarks.artefacts.applying folder --width 64   # the bundled model's own size

Writes ``digits-seed0.onnx`` and ``digits-seed1.onnx``, the network of ``examples/digits`` trained
with either seed and exported as the example is (TorchScript exporter, BatchNormalization left in
place), and ``digits-seed1-dynamo.onnx``, the second by torch's other exporter.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import torch
from torch import nn

from benchmarks.command_line import parser_of

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "digits"))
from train import SIZE, export, images, train

OPSET = 18  # The lowest that the exporter writes without converting.


def export_dynamo(net: nn.Module, path: Path) -> None:
    """Write ONNX by ``torch.export``: other names, other nodes, other attributes."""
    program = torch.onnx.export(
        net,
        (torch.zeros(1, 1, SIZE, SIZE),),
        dynamo=True,
        opset_version=OPSET,
        input_names=["image"],
        output_names=["logits"],
        external_data=False,
    )
    proto = program.model_proto
    for node in proto.graph.node:  # Stack traces name folders of the machine that exported.
        del node.metadata_props[:]
    del proto.metadata_props[:], proto.graph.metadata_props[:]
    for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output):
        del value.metadata_props[:]
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, path)


def main() -> None:
    """Train with two seeds, export and write."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--width", type=int, default=16)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    x, y = map(torch.tensor, images())
    with TemporaryDirectory(dir=arguments.folder) as folder:
        work = Path(folder)
        for seed in (0, 1):
            net = train(x, y, seed, arguments.width)
            export(net, work / f"digits-seed{seed}.onnx")
        export_dynamo(net, work / "digits-seed1-dynamo.onnx")
        for path in sorted(work.iterdir()):
            print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")
            path.replace(arguments.folder / path.name)


if __name__ == "__main__":
    main()
