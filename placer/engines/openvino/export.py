"""An ONNX file as an OpenVINO model: an ``.xml`` file and a ``.bin`` file beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from placer.common.file_groups import draft_folder
from placer.common.files import cannot_write
from placer.engines.openvino.library import load_openvino
from placer.errors import RunError


def weights_of(path: Path) -> Path:
    """The file of the weights of the OpenVINO model at ``path``."""
    return path.with_suffix(".bin")


def save_as_openvino(source: Path, path: Path) -> None:
    """Write the ONNX file ``source`` to ``path`` (.xml) with its types as they are.

    Both files are written in a folder beside ``path``, whose folder the caller has locked, and then
    renamed. Raises RunError if OpenVINO is missing or refuses the file, or if the disk is full,
    InputError if ``path`` cannot be written.
    """
    try:
        openvino = load_openvino()
    except ImportError as error:
        raise RunError("OpenVINO is not installed; pip install openvino") from error
    try:
        with draft_folder(path) as folder:
            written = folder / path.name
            model = openvino.Core().read_model(source)
            # By default weights of 32 bits are rounded to 16.
            openvino.save_model(model, written, compress_to_fp16=False)
            weights_of(written).replace(weights_of(path))
            written.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    except RuntimeError as error:
        raise RunError(f"OpenVINO cannot convert {source}: {error}") from error


def with_further_outputs(ir: Path, tensors: Sequence[str], folder: Path) -> Path | None:
    """The OpenVINO model ``ir``, written to ``folder`` with ``tensors`` for further, last outputs.

    None if it has no tensor of one of these names.
    """
    openvino = load_openvino()
    model = openvino.Core().read_model(ir)
    known = {name for op in model.get_ops() for port in op.outputs() for name in port.names}
    if not known.issuperset(tensors):
        return None
    model.add_outputs(list(tensors))
    written = folder / ir.name
    openvino.save_model(model, written, compress_to_fp16=False)
    return written
