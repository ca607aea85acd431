"""Read YAML into typed documents; errors name file, line and field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails

from placer.common.files import read_text
from placer.common.limits import Limits
from placer.common.names import near
from placer.errors import InputError

M = TypeVar("M", bound=BaseModel)

# LibYAML is five times as fast, where PyYAML was built with it.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# LibYAML reads ahead, so it meets its own limit of 1,000 levels (since PyYAML 6.0.4) before ours.
_TOO_DEEP_FOR_LIBYAML = "exceeded maximum nesting depth"

# YAML's own kinds of values, less those that no rule has: bytes, sets, ordered maps.
_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("null", "bool", "int", "float", "str", "seq", "map", "timestamp")
)
_TEXT_TAG = "tag:yaml.org,2002:str"  # The one that may be written: any scalar can be read as text.

_LARGEST_INTEGER = 2**64 - 1
_LONGEST_INTEGER = 200  # characters: binary digits, with underscores between them

# What pydantic says in words of Python.
_IN_YAML = {
    "extra_forbidden": "there is no such field",
    "missing": "it is missing; give it",
    "tuple_type": "give a list, as in [a, b]",
    "list_type": "give a list, as in [a, b]",
    "too_short": "give at least one",
    "dict_type": "give a mapping of fields",
    "model_type": "give a mapping of fields",
    "string_type": "give text",
    "bool_type": "give true or false",
    "bool_parsing": "give true or false",
    "int_type": "give a whole number",
    "int_parsing": "give a whole number",
    "int_from_float": "give a whole number",
    "float_type": "give a number",
    "float_parsing": "give a number",
    "finite_number": "give a finite number",
}
# How the rest of what it says begins, and what stands for that.
_BEGINNINGS = {
    "Value error, ": "",
    "Input should ": "it must ",
    "String should ": "the text must ",
    "Tuple should ": "the list must ",
    "List should ": "the list must ",
    "Dictionary should ": "the mapping must ",
}


def parse_file(path: Path, folder: Path, model: type[M]) -> M:
    """Read one YAML file of a pack into ``model``; the file must lie inside ``folder``.

    Raises InputError, with the line, for a file that is missing, elsewhere or not valid.
    """
    if not path.exists():
        raise InputError(f"{path} does not exist; a rule pack needs it")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{path} points outside its rule pack; replace the link by a file")
    return parse_text(read_text(path, "a YAML file", "rule_bytes"), str(path), model)


def parse_text(
    text: str, name: str, model: type[M], context: object = None, depth: int | None = None
) -> M:
    """Parse YAML ``text`` into ``model``; ``name`` stands for the file in messages.

    ``context`` is what validators of ``model`` see as theirs. ``depth``: how deeply the document
    may be nested; by default as the limits of the environment say. Raises InputError, which names
    the line and the field, for text that does not fit ``model``.
    """
    limit = Limits.from_environment().yaml_depth if depth is None else depth
    tree, data = _read_yaml(text, name, limit)
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        # A field that is not known may be the one that seems to be missing, misspelt.
        errors = error.errors(include_url=False)
        first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
        location = [part for part in first["loc"] if part != "function-after"]
        field = ".".join(str(part) for part in location) or "document"
        message = _IN_YAML.get(first["type"]) or _plain(first["msg"])
        message += _meant(model, first)
        line = _line_of(tree, location)
        raise InputError(f"{name}:{line}: field '{field}': {message}") from error


@contextmanager
def as_value_error() -> Iterator[None]:
    """Turn an InputError into the ValueError that pydantic's validators raise."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error)) from error


def _plain(told: str) -> str:
    """What pydantic says of a value, in the words of a reader who never heard of it."""
    for beginning, plain in _BEGINNINGS.items():
        if told.startswith(beginning):
            return plain + told.removeprefix(beginning).replace(" after validation", "")
    return told


def _meant(model: type[BaseModel], error: ErrorDetails) -> str:
    """``; did you mean 'A'?`` for a field or a value that is like one there is, else nothing."""
    if error["type"] == "extra_forbidden":
        *way, field = error["loc"]
        return near(field, _fields_at(model, way))
    if error["type"] == "literal_error":
        known = re.findall(r"'([^']*)'", error["ctx"]["expected"])
        return near(error["input"], known) if len(known) > 1 else ""
    return ""


def _fields_at(model: type[BaseModel], way: Sequence[int | str]) -> Iterator[str]:
    """Names of the fields of the models that the location ``way`` of ``model`` may be."""
    models = [model]
    for part in way:
        fields = [one.model_fields[part] for one in models if part in one.model_fields]
        if fields:  # Positions in lists and keys of mappings lie within the field's own type.
            models = [kind for one in fields for kind in _models_in(one.annotation)]
    for kind in models:
        yield from kind.model_fields


def _models_in(hint: Any) -> Iterator[type[BaseModel]]:
    """The models that a type is made of."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for part in get_args(hint):
        yield from _models_in(part)


def _read_yaml(text: str, name: str, limit: int) -> tuple[yaml.Node, object]:
    """Return the node tree (for line numbers) and the plain data of one YAML document."""
    try:
        _check_events(text, name, limit)
        tree = yaml.compose(text, Loader=LOADER)
        if not isinstance(tree, yaml.MappingNode):
            raise InputError(f"{name}:1: expected a mapping of fields")
        _refuse_tags(tree, name)
        _refuse_odd_keys(tree, name)
        _refuse_huge_integers(tree, name)
        return tree, yaml.SafeLoader("").construct_document(tree)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        if error.problem == _TOO_DEEP_FOR_LIBYAML:
            raise _too_deep(name, line, limit) from error
        is_path = error.problem is not None and "escape character" in error.problem
        fix = "; write a path with backslashes in single quotes" if is_path else ""
        raise InputError(f"{name}:{line}: not valid YAML: {error.problem}{fix}") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise InputError(f"{name}: not valid YAML: {error}") from error


def _check_events(text: str, name: str, limit: int) -> None:
    """Refuse aliases and deep nesting while the document is read, before a tree is made of it."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            # Aliases can blow up exponentially and a rule has no use for them.
            raise InputError(f"{name}:{line}: YAML aliases are not allowed; repeat the value")
        tag = getattr(event, "tag", None)
        if tag not in (None, _TEXT_TAG):
            # A written tag makes PyYAML convert what does not look like that type, e.g. !!int "".
            raise _tag_refused(name, line, tag)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > limit:
            raise _too_deep(name, line, limit)


def _too_deep(name: str, line: int, limit: int) -> InputError:
    return InputError(f"{name}:{line}: nested too deeply, more than {limit} levels")


def _tag_refused(name: str, line: int, tag: str) -> InputError:
    return InputError(f"{name}:{line}: YAML tag '{tag}' is not allowed; remove it")


def _refuse_tags(tree: yaml.Node, name: str) -> None:
    for node in _walk(tree):
        if node.tag not in _TAGS:
            raise _tag_refused(name, node.start_mark.line + 1, node.tag)


def _refuse_odd_keys(tree: yaml.Node, name: str) -> None:
    for node in _walk(tree):
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise InputError(f"{name}:{line}: a field name must be plain text")
                if key.value in seen:
                    raise InputError(f"{name}:{line}: field '{key.value}' is given twice")
                seen.add(key.value)


def _refuse_huge_integers(tree: yaml.Node, name: str) -> None:
    """Refuse what no field needs and what Python, with thousands of digits, does not print."""
    loader = yaml.SafeLoader("")
    for node in _walk(tree):
        if node.tag != "tag:yaml.org,2002:int":
            continue
        is_long = len(node.value) > _LONGEST_INTEGER
        if is_long or abs(loader.construct_object(node)) > _LARGEST_INTEGER:
            line = node.start_mark.line + 1
            raise InputError(f"{name}:{line}: a whole number is larger than 64 bits can hold")


def _walk(node: yaml.Node) -> Iterator[yaml.Node]:
    yield node
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = list(node.value)
    else:
        children = []
    for child in children:
        yield from _walk(child)


def _line_of(tree: yaml.Node, location: list[int | str]) -> int:
    """Line of the deepest node on the way to ``location``; 1-based."""
    node = tree
    for part in location:
        child: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            child = next((v for k, v in node.value if k.value == str(part)), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            child = node.value[part] if part < len(node.value) else None
        if child is None:
            break
        node = child
    return int(node.start_mark.line) + 1


class Strict(BaseModel):
    """Base of all models: unknown fields are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse yes, no, true and false for numbers: pydantic takes them for 1 and 0."""
        has_one = next(_booleans(value), None) is not None
        if has_one and not _takes_booleans(cls, info.field_name or ""):
            raise ValueError("yes, no, true and false are not numbers; write a number")
        return value


def _booleans(value: object) -> Iterator[bool]:
    if isinstance(value, bool):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _booleans(one)


@cache
def _takes_booleans(model: type[BaseModel], field: str) -> bool:
    """Whether a value of ``field`` may be or hold one; models look at their own fields."""
    parts = set(_parts(model.model_fields[field].annotation))
    models = any(isinstance(part, type) and issubclass(part, BaseModel) for part in parts)
    return models or not parts.isdisjoint((bool, object, Any)) or parts.isdisjoint((int, float))


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _parts(part)
