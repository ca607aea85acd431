"""Write a set of networks that PyTorch's exporters make, as ONNX files, for benchmarks of plans.

Sets are modules of ``networks`` that need torch and what their docstrings name. A network whose
file is there already is left alone.

    python benchmarks/write_networks.py common --folder networks
    python benchmarks/openvino_fidelity.py --placements 3 --model networks/aside/GoogLeNet.onnx
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from command_line import parser_of

NAMES = (
    "common",
    "cpu",
    "deployed",
    "exported",
    "exported_aside",
    "exported_more_pairs",
    "exported_pairs",
    "further_deployed",
    "lot",
    "newer",
    "ort_lot",
    "paired",
    "second_lot",
    "third_lot",
)


def main() -> None:
    """Write each part of a set to a folder of its name in ``--folder``; ``.`` is that folder."""
    parser = parser_of(__doc__)
    parser.add_argument("set", choices=NAMES)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    export = import_module("networks.exported").export  # Needs torch, which --help does not.
    for part, networks in import_module(f"networks.{arguments.set}").SETS.items():
        folder = arguments.folder / part
        folder.mkdir(parents=True, exist_ok=True)
        for name, network in networks.items():
            path = folder / f"{name}.onnx"
            if not path.exists():
                export(network, path)
            print(path.relative_to(arguments.folder), flush=True)


if __name__ == "__main__":
    main()
