"""Write a set of networks that PyTorch's exporters make, as ONNX files, for benchmarks of plans.

Sets are modules of ``networks`` that need torch and what their docstrings name. A network whose
file is there already is left alone.

    python -m benchmarks.networks.write cpu --folder networks
    python -m benchmarks.plans.openvino --networks cpu --folder networks --placements 3
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.command_line import parser_of
from benchmarks.networks.sets import EXPORTED, written


def main() -> None:
    """Write each part of a set to a folder of its name in ``--folder``/the set's name."""
    parser = parser_of(__doc__)
    parser.add_argument("set", choices=EXPORTED)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    for path in written(arguments.set, arguments.folder):
        print(path.relative_to(arguments.folder), flush=True)


if __name__ == "__main__":
    main()
