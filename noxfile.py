"""The project's checks, each in an environment of its own: ``nox -s NAME``, ``nox -l`` for a list.

``.ci/run`` and ``.github/workflows/ci.yml`` run these sessions. uv makes the environments where it
is installed, else virtualenv does.
"""

import re
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["lint", "types", "tests", "docs"]

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
ROOT = Path(__file__).parent


def installed_copy(session: nox.Session) -> Path:
    """Install placer without what it needs into a folder of its own; return the folder.

    ``rules/``, ``search/`` and ``configs/`` become ``placer.rules`` and so on when installed, which
    mypy and import-linter can follow in an installed copy only. The sources are copied first:
    setuptools would otherwise leave ``build/`` in the checkout, and install what an older one held.
    """
    sources = Path(session.create_tmp()).resolve() / "sources"  # Sessions change the folder.
    target = sources.with_name("installed")
    for folder in (sources, target):
        shutil.rmtree(folder, ignore_errors=True)
    outside = shutil.ignore_patterns(".*", "build", "site", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, sources, ignore=outside)
    session.install("--no-deps", "--target", str(target), str(sources))
    return target


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, its formatter, and the levels of the packages (import-linter)."""
    session.install("ruff>=0.12", "import-linter>=2.11")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    target = installed_copy(session)
    with session.chdir(target):
        configuration = str(ROOT / "pyproject.toml")
        session.run("lint-imports", "--config", configuration, env={"PYTHONPATH": str(target)})


@nox.session
def types(session: nox.Session) -> None:
    """mypy --strict: placer, the benchmarks, the example of an engine, the code of docs/api.md."""
    session.install(".[dev]")
    target = installed_copy(session)
    for folder in ("benchmarks", "tests"):  # Benchmarks draw graphs with tests/differential.
        shutil.copytree(ROOT / folder, target / folder)
    with session.chdir(target.parent):  # Away from the sources, which are no package layout.
        configuration = str(ROOT / "pyproject.toml")
        packages = ("-p", "placer", "-p", "benchmarks", "-p", "placer_engine_iree")
        plugin = ROOT / "examples" / "engine-plugin-iree" / "src"
        environment = {"MYPYPATH": f"{target}:{plugin}"}
        session.run("mypy", "--config-file", configuration, *packages, env=environment)
        guide = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
        Path("guide.py").write_text("\n".join(blocks), encoding="utf-8")
        session.run("mypy", "--config-file", configuration, "guide.py", env=environment)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The test suite; what follows ``--`` goes to pytest."""
    session.install("-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session(python=PYTHONS[0], venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """The test suite with the oldest versions that pyproject.toml allows, on the oldest Python."""
    session.install("--resolution", "lowest-direct", "-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site, into ``site/``; a broken link is an error."""
    session.install("-e", ".[docs]")
    session.run("mkdocs", "build", "--strict", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """The main job from a built wheel, in a clean environment and another folder."""
    session.install("build>=1.2")
    work = Path(session.create_tmp())
    shutil.rmtree(work / "dist", ignore_errors=True)
    session.run("python", "-m", "build", "--quiet", "--outdir", str(work / "dist"), ".")
    (built,) = (work / "dist").glob("placer-*.whl")
    session.install(str(built))
    digits = work / "digits"
    shutil.rmtree(work / "out", ignore_errors=True)
    shutil.copytree(ROOT / "examples" / "digits", digits, dirs_exist_ok=True)
    with session.chdir(work):
        session.run("placer", "rules", "test")
        session.run(
            *("placer", "optimize", "digits/digits.onnx", "--data", "digits/calibration.npz"),
            *("--eval-data", "digits/evaluation.npz", "--preset", "quick", "--budget", "6"),
            *("--output", "out", "--no-cache"),
        )
        session.run("python", "-c", CHECK_RESULT)


CHECK_RESULT = """
import json, pathlib
result = json.loads(pathlib.Path("out/result.json").read_text())
assert len(result["trials"]) == 6, result["trials"]
assert pathlib.Path("out/optimized.onnx").exists()
print("wheel:", result["verdict"], result["best"]["speedup"])
"""
