"""docs/rule-reference.md and the JSON Schemas of rules and manifests, made from ``schema``.

``python -m tests.generated`` writes them into the repository in the current folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import BaseModel, TypeAdapter

from placer.rules.field_types import InputName, OutputName, Reference, RuleId, TensorName
from placer.rules.pack import Pack
from placer.rules.pack_manifest import ManifestFile
from placer.rules.packaging.load import builtin_pack_names, load_pack
from placer.rules.schema import Layout, Rule

JsonSchema: TypeAlias = Mapping[str, Any]

PAGE = Path("docs/rule-reference.md")
SCHEMAS: Mapping[Path, type[BaseModel]] = {
    Path("configs/rule.schema.json"): Rule,
    Path("configs/pack.schema.json"): ManifestFile,
}

_HEAD = """# Rule language reference

Generated from `rules/schema.py` and the built-in packs by
`python -m tests.generated`; change those, not this page. [The guide](rules.md)
explains the language with examples. `placer rules schema` prints the JSON Schema of a rule; for
editors there are [rule.schema.json](../configs/rule.schema.json) and
[pack.schema.json](../configs/pack.schema.json).

An edge is written `NODE.TENSOR`, where that pattern node reads the tensor, or `TENSOR.*`, wherever
the tensor is read. A field without a default may be left out and then says nothing.
"""

# What a name's pattern stands for.
_NAMES = {
    TensorName: "tensor name",
    InputName: "input name",
    OutputName: "output name",
    Reference: "edge",
    RuleId: "name",
}


def reference() -> str:
    """Return the text of docs/rule-reference.md."""
    shown: set[str] = set()
    parts = [_HEAD, "## A rule (`ID.yaml`)\n", *_sections(Rule, shown)]
    parts += ["## A pack's manifest (`pack.yaml`)\n", *_sections(ManifestFile, shown)]
    parts.append("## Built-in packs\n")
    parts += [_pack(load_pack(name)) for name in builtin_pack_names()]
    return "\n".join(parts)


def schema_text(model: type[BaseModel]) -> str:
    """Return the JSON Schema of ``model`` as it is published."""
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**draft, **model.model_json_schema()}, indent=2) + "\n"


def _sections(model: type[BaseModel], shown: set[str]) -> Iterator[str]:
    """The model's own table, then one for each model that it uses and that is not yet ``shown``."""
    schema = model.model_json_schema()
    yield _table(schema, schema["description"])
    for name in _used(schema, schema["$defs"], []):
        if name in shown:
            continue
        shown.add(name)
        part = schema["$defs"][name]
        yield f"### {name}\n\n{_table(part, part['description'])}"


def _used(schema: JsonSchema, parts: JsonSchema, seen: list[str]) -> list[str]:
    for name in _references(schema.get("properties", {})):
        if name not in seen:
            seen.append(name)
            _used(parts[name], parts, seen)
    return seen


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _table(schema: JsonSchema, description: str) -> str:
    required = schema.get("required", [])
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, field in schema["properties"].items():
        default = "required" if name in required else _default(field.get("default"))
        cells = (f"`{name}`", _type(field), default, field["description"])
        lines.append(_row(cells))
    text = description.replace("``", "`")
    return f"{text}\n\n" + "\n".join(lines) + "\n"


def _default(value: object) -> str:
    """A default as written in YAML; nothing for a map, whose fields have their own."""
    if value is None or isinstance(value, dict):
        return ""
    return f"`{json.dumps(value)}`"


def _type(field: JsonSchema) -> str:
    names = {TypeAdapter(kind).json_schema()["pattern"]: text for kind, text in _NAMES.items()}
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in field:
        options = [_type(option) for option in field["anyOf"] if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(options))
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field["type"] == "array":
        return f"list of: {_type(field['items'])}"
    if field["type"] == "object":
        values = field.get("additionalProperties") or next(
            iter(field["patternProperties"].values())
        )
        return f"map of names to: {_type(values)}"
    if field["type"] == "string":
        return names.get(field.get("pattern", ""), "text")
    return {"boolean": "true or false", "number": "number", "integer": "integer"}[field["type"]]


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _pack(pack: Pack) -> str:
    """The rules of ``pack`` that are its own, and how many others it has."""
    manifest, own = pack.manifest, pack.own_rules
    lines = [
        f"### {pack.name_and_version}",
        "",
        f"For {manifest.engine} {manifest.engine_versions}; {_count(pack, len(own))}.",
        "",
        "| rule | nodes | layouts (default first) | why | source |",
        "|---|---|---|---|---|",
    ]
    for rule in own:
        cells = (f"`{rule.id}`", _nodes(rule), _layouts(rule), rule.why, rule.source)
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _count(pack: Pack, own: int) -> str:
    if len(pack.lineage) == 1:
        return f"{own} rules"
    parent = load_pack(pack.lineage[1].name)
    count = f"{own} rules and {len(pack.rules) - own} of {parent.manifest.name}"
    left = sorted({rule.id for rule in parent.rules} - {rule.id for rule in pack.rules})
    return count + (f", without {', '.join(f'`{rule}`' for rule in left)}" if left else "")


def _nodes(rule: Rule) -> str:
    """The operators of the pattern; those of optional nodes in brackets."""
    nodes = ["/".join(node.op) for node in rule.pattern.values()]
    optional = [node.optional for node in rule.pattern.values()]
    return ", ".join(
        f"[{op}]" if absent else op for op, absent in zip(nodes, optional, strict=True)
    )


def _layouts(rule: Rule) -> str:
    if len(rule.layouts) == 1:
        return _only(rule.layouts[rule.default_layout])
    others = [name for name in rule.layouts if name != rule.default_layout]
    return ", ".join((rule.default_layout, *others))


def _only(layout: Layout) -> str:
    if not layout.quantize:
        return "no choice: a fact about layers"
    if layout.requires:
        what = ", ".join(f"`{edge}`" for edge in layout.requires)
        return f"no choice: follows where {what} is quantized"
    return "no choice: always quantized"
