"""Check every name that placer asks TensorRT's Python bindings for against the real bindings.

    python -m benchmarks.robustness.tensorrt_bindings [--versions 10.0.1 11.0.0.114 ...]

TensorRT's library needs a GPU and its package is large; its bindings are a small wheel of their
own, which the script downloads with pip. They import without the library if something exports the
few functions that they link to, which a C file of a few lines does here (needs a C compiler).
Nothing of TensorRT runs. Classes, members and enum values are the real ones of each version.

A name that placer uses counts as TensorRT's if any of the versions has it. It must be there in
every version, be asked for with getattr or hasattr only, or be listed with the reason why it is
never reached where it is missing (``UNREACHED``).
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.command_line import parser_of, write_json

SOURCES = Path(__file__).parents[2] / "placer" / "engines" / "tensorrt"
VERSIONS = (
    *("10.0.1", "10.1.0", "10.2.0", "10.3.0", "10.4.0", "10.5.0", "10.6.0", "10.7.0", "10.8.0.43"),
    *("10.9.0.34", "10.10.0.31", "10.11.0.33", "10.12.0.36", "10.13.0.35", "10.13.3.9"),
    *("10.14.1.48.post1", "10.15.1.29", "10.16.0.72", "10.16.1.11"),
    *("11.0.0.114", "11.1.0.106", "11.2.1.2", "11.3.0.99", "11.4.0.106"),
)
LIBRARIES = ("nvinfer", "nvonnxparser", "nvinfer_plugin")
FUNCTIONS = (
    "createInferBuilder_INTERNAL",
    "createInferRefitter_INTERNAL",
    "createInferRuntime_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL",
    "createNvOnnxParser_INTERNAL",
    "getBuilderPluginRegistry",
    "getNvOnnxParserVersion",
    "getPluginRegistry",
    "initLibNvInferPlugins",
)
_IMPLICIT = "weak types and implicit quantization, which 11 refuses before it gets there"
UNREACHED = {
    "FP16": _IMPLICIT,
    "IInt8EntropyCalibrator2": _IMPLICIT,
    "int8_calibrator": _IMPLICIT,
    "set_calibration_profile": _IMPLICIT,
    "STRIPPED_WEIGHTS_SIZE": "of EngineStat, which is asked for first",
    "create_runtime_config": "TensorRT-RTX only",
    "device_memory_size": "the way of 10.0",
    "get_engine_stat": "with EngineStat, which is asked for first",
    "update": "of hashlib, not of ITimingCache",
    "write": "of files, not of IStreamWriter",
}
# Run where the bindings can be imported: names by class, those of the module under "".
DUMP = """
import inspect, json, sys
import tensorrt_bindings as trt
found = {"": sorted(dir(trt))}
def visit(prefix, owner):
    for name, member in vars(owner).items():
        if inspect.isclass(member) and not name.startswith("_"):
            key = f"{prefix}{name}"
            if key not in found:
                found[key] = sorted(n for n in dir(member) if not n.startswith("_"))
                visit(f"{key}.", member)
visit("", trt)
json.dump(found, sys.stdout)
"""


@dataclass(frozen=True)
class Used:
    """A name that the sources ask for: in which files, and whether only by getattr or hasattr."""

    name: str
    files: tuple[str, ...]
    optional: bool


def used_names() -> dict[str, Used]:
    """Names of attributes in placer's TensorRT engine, whatever object they belong to."""
    plain: dict[str, set[str]] = {}
    asked: dict[str, set[str]] = {}
    for path in sorted(SOURCES.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                plain.setdefault(node.attr, set()).add(path.name)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("getattr", "hasattr")
                and isinstance(node.args[1], ast.Constant)
            ):
                asked.setdefault(str(node.args[1].value), set()).add(path.name)
    return {name: _used(name, plain, asked) for name in plain.keys() | asked.keys()}


def _used(name: str, plain: Mapping[str, set[str]], asked: Mapping[str, set[str]]) -> Used:
    files = plain.get(name, set()) | asked.get(name, set())
    return Used(name, tuple(sorted(files)), optional=name not in plain)


def names_of(version: str, folder: Path) -> Mapping[str, Sequence[str]]:
    """What the bindings of ``version`` define, by class."""
    wheels = folder / version
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    glibc = [f"--platform=manylinux_2_{n}_x86_64" for n in (35, 31, 28, 27, 17)]
    command = [
        *(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"),
        *("--python-version", python, *glibc, "-d", str(wheels)),
        f"tensorrt-cu12-bindings=={version}",
    ]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheels)
    make_libraries(wheels, version.split(".", maxsplit=1)[0])
    environment = {**os.environ, "LD_LIBRARY_PATH": str(wheels), "PYTHONPATH": str(wheels)}
    # In a folder of its own: beside this file its name would stand for the bindings'.
    dump = [sys.executable, "-c", DUMP]
    done = subprocess.run(
        dump, cwd=wheels, env=environment, capture_output=True, text=True, check=True
    )
    found: Mapping[str, Sequence[str]] = json.loads(done.stdout)
    return found


def make_libraries(folder: Path, major: str) -> None:
    """Libraries that export what the bindings link to and do nothing."""
    source = folder / "empty.c"
    source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in FUNCTIONS))
    for library in LIBRARIES:
        target = folder / f"lib{library}.so.{major}"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", target, source], check=True)


def missing(
    used: Mapping[str, Used], known: Mapping[str, Mapping[str, Sequence[str]]]
) -> dict[str, list[str]]:
    """Versions that lack a name which another version has, by name."""
    by_version = {
        version: {name for names in classes.values() for name in names}
        for version, classes in known.items()
    }
    of_tensorrt = set().union(*by_version.values()) & used.keys()
    lacking = {
        name: [version for version, names in by_version.items() if name not in names]
        for name in sorted(of_tensorrt)
    }
    return {name: versions for name, versions in lacking.items() if versions}


def main() -> None:
    """Print the table; exit code 1 if a name that must be there is missing somewhere."""
    parser = parser_of(__doc__)
    parser.add_argument("--versions", nargs="+", default=VERSIONS)
    parser.add_argument("--json", type=Path, help="file to write what was found to")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        known = {version: names_of(version, Path(folder)) for version in arguments.versions}
    used = used_names()
    lacking = missing(used, known)
    names = {n for classes in known.values() for members in classes.values() for n in members}
    print(f"{len(names & used.keys())} names of TensorRT used; versions: {', '.join(known)}")
    table = Table("name", "used in", "missing in", "why that is right")
    for name, versions in lacking.items():
        why = (
            "asked for only if it is there" if used[name].optional else UNREACHED.get(name, "WRONG")
        )
        table.add_row(name, ", ".join(used[name].files), ", ".join(versions), why)
    Console(width=150).print(table)
    if arguments.json:
        document = {"used": sorted(names & used.keys()), "missing": lacking}
        write_json(arguments.json, document)
    if any(not used[name].optional and name not in UNREACHED for name in lacking):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
