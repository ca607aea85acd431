"""The folder that a new rule pack starts from: a manifest, one rule with its tests, a README.

Beside them lie the JSON Schemas that editors complete and check the files by.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

import yaml

from placer.common.files import cannot_write
from placer.errors import InputError
from placer.quantization import Scheme
from placer.rules.pack import Pack
from placer.rules.pack_manifest import PackRequirement, parse_requirement
from placer.rules.packaging.files import MANIFEST, PackFiles
from placer.rules.packaging.load import builtin_pack_names, is_builtin, load_files, load_pack
from placer.rules.packaging.store import Store
from placer.version import __version__

EXAMPLE = "example.yaml"
# Hidden, so that it is no part of the pack; the files' first lines name it.
SCHEMA_FOLDER = ".schema"
SCHEMAS = ("rule.schema.json", "pack.schema.json")

_GENERIC_SCHEME = Scheme(activation="int8", symmetric=True, bias="float")

_MANIFEST = Template("""\
# yaml-language-server: $$schema=.schema/pack.schema.json
name: $name
version: 0.1.0
engine: $engine
engine_versions: "$engine_versions"
placer_versions: ">=$placer"
$formats
licence: Apache-2.0
maintainers: [your team]
""")

_RULE = Template("""\
# yaml-language-server: $$schema=.schema/rule.schema.json
id: example
why: >
  An example to replace: say here what these pairs save on the engine, and the figure measured.
source: where that can be checked, e.g. a profile or a page of the engine's documentation
pattern:
  act: {op: PRelu, inputs: [x, slope], output: y}
where:
  - is_initializer: slope
layouts:
  float: {default: true}
  integer: {quantize: [act.x, y.*]}
tests:
  - model: |
      <ir_version: 9, opset_import: ["": 17]>
      g (float[1,16,8,8] image) => (float[1,16,8,8] out) <float[16,1,1] a = {0.1}> {
        [prelu1] out = PRelu(image, a)
      }
    matches:
      - {act: prelu1}
    quantized:
      integer: ["image->prelu1[0]", "out->output[0]"]
""")

_README = Template("""\
# $name

Rules of placer for the engine $engine. One rule per `.yaml` file, called after its `id`;
`pack.yaml` is the manifest. Replace `example.yaml`, if it is there. Editors with the YAML language
server check and complete rules whose first line is
`# yaml-language-server: $$schema=.schema/rule.schema.json`.

```bash
placer rules test ./$name                      # the rules' own tests
placer rules lint ./$name                      # rules that cannot be meant
placer optimize model.onnx --pack ./$name
placer rules pack ./$name                      # writes $name-0.1.0.zip
placer rules install $name-0.1.0.zip           # then, anywhere: --pack $name@0.1.0
```

Raise `version` in `pack.yaml` with every change that others get.
""")


def check_name(name: str) -> None:
    """Raise InputError for a name that a new pack cannot have."""
    if is_builtin(name):
        raise InputError(f"'{name}' is the name of a built-in pack; choose another name")
    _check_characters(name)


def _check_characters(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise InputError(
            f"'{name}' names no pack or engine; use lower-case letters, digits and '-'"
        )


def new_pack(
    name: str,
    engine: str,
    extends: str | None,
    parent: Path,
    store: Store,
    rules: Mapping[str, bytes] | None = None,
) -> Path:
    """Write the folder ``parent/name`` and return it.

    ``rules``: files of rules by name, in place of the example. ``engine``: the one that the rules
    are for. ``extends``: the pack to take rules over from, ``NAME`` or ``NAME@VERSIONS``.

    Raises InputError for a name that a pack cannot have, for an extended pack that is not there or
    for another engine, and if the folder is there already.
    """
    check_name(name)
    _check_characters(engine)
    folder = parent / name
    if folder.exists():
        raise InputError(f"{folder} exists; choose another name or remove it")
    files = _files(name, engine, extends, folder, store, rules)
    load_files(files, store)
    try:
        files.write(folder, beside=_schemas())
    except OSError as error:
        raise cannot_write(folder, error) from error
    return folder


def _schemas() -> Mapping[str, bytes]:
    configs = resources.files("placer.configs")
    return {f"{SCHEMA_FOLDER}/{name}": (configs / name).read_bytes() for name in SCHEMAS}


def _files(
    name: str,
    engine: str,
    extends: str | None,
    folder: Path,
    store: Store,
    rules: Mapping[str, bytes] | None,
) -> PackFiles:
    extended = None if extends is None else load_pack(str(_requirement(extends)), store)
    like = extended or _builtin_for(engine)
    scheme = like.manifest.scheme if like else _GENERIC_SCHEME
    words = {
        "name": name,
        "engine": engine,
        "engine_versions": like.manifest.engine_versions if like else ">=0",
        "placer": ".".join(__version__.split(".")[:2]),
        "formats": _formats(scheme, extends, extended),
    }
    templates = {MANIFEST: _MANIFEST, EXAMPLE: _RULE, "README.md": _README}
    written = {file: text.substitute(words).encode() for file, text in templates.items()}
    if rules is not None:
        del written[EXAMPLE]
        written |= rules
    return PackFiles(folder, written)


def _formats(scheme: Scheme, extends: str | None, extended: Pack | None) -> str:
    """The lines of the manifest that say which number formats the pack is for."""
    if extends is None or extended is None:
        return yaml.safe_dump({"scheme": scheme.model_dump()}, sort_keys=False).rstrip()
    wanted = _requirement(extends)
    if not str(wanted.versions):
        minor = ".".join(extended.manifest.version.split(".")[:2])
        wanted = parse_requirement(f"{wanted.name}@>={minor}")
    return f'extends: "{wanted}"'


def _builtin_for(engine: str) -> Pack | None:
    packs = (load_pack(name) for name in builtin_pack_names())
    return next((pack for pack in packs if pack.manifest.engine == engine), None)


def _requirement(extends: str) -> PackRequirement:
    try:
        return parse_requirement(extends)
    except ValueError as error:
        raise InputError(f"`extends`: {error}") from error
