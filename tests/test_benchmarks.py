"""Scripts in benchmarks/ find in the package, and in each other, what they import."""

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py"))


def imported(script: Path) -> Iterator[tuple[str, str]]:
    """Modules of the package and names that ``script`` imports from them, wherever in the file."""
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "placer":
            yield from ((node.module or "", alias.name) for alias in node.names)


def test_what_benchmarks_import_of_the_package_is_there():
    asked = {pair for script in SCRIPTS for pair in imported(script)}
    assert len(asked) > 100
    assert [pair for pair in sorted(asked) if not is_there(*pair)] == []


def is_there(module: str, name: str) -> bool:
    """Whether ``module`` has ``name``, which may be a module itself."""
    found = importlib.import_module(module)
    is_package = hasattr(found, "__path__")
    return hasattr(found, name) or (
        is_package and importlib.util.find_spec(f"{module}.{name}") is not None
    )


def test_what_benchmarks_import_of_each_other_is_there():
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in SCRIPTS}
    defined = {name: names_of(ROOT / f"{name.replace('.', '/')}.py") for name in modules}
    missing = [
        (script.name, node.module, alias.name)
        for script in SCRIPTS
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchmarks")
        for alias in node.names
        if f"{node.module}.{alias.name}" not in modules
        and alias.name not in defined.get(node.module or "", ())
    ]
    assert missing == []


def test_no_benchmark_imports_the_package_that_only_holds_models():
    """It loads OpenCV; ``benchmarks.networks.ocr`` finds the models without that."""
    importing = {
        script.name
        for script in SCRIPTS
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        if "rapidocr_onnxruntime" in ast.unparse(node)
    }
    assert importing == set()


def names_of(script: Path) -> set[str]:
    """What a script defines or imports at its top."""
    found = set[str]()
    for node in ast.parse(script.read_text()).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        else:
            found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found
