"""Lowers an ONNX file to MLIR bytecode: ``python -m placer_engine_iree.lowering IN OUT``.

It runs as a program of its own so that a crash of the importer is not one of the search. Unlike
``iree-import-onnx`` it writes bytecode, which keeps the ONNX nodes' names as locations.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import onnx.shape_inference
from iree.compiler.extras import onnx_importer
from iree.compiler.ir import Context


def lower(source: Path, target: Path) -> None:
    """Write the MLIR bytecode of the ONNX file ``source`` to ``target``."""
    model = onnx.shape_inference.infer_shapes(onnx.load(source))
    info = onnx_importer.ModelInfo(model)
    module = info.create_module(context=Context()).operation
    onnx_importer.NodeImporter.define_function(info.main_graph, module).import_all()
    module.verify()
    with target.open("wb") as out:
        module.write_bytecode(out)


if __name__ == "__main__":
    lower(Path(sys.argv[1]), Path(sys.argv[2]))
