"""Read the JSON documents of an output folder; one sentence says what is wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from placer.errors import InputError

_Document = TypeVar("_Document", bound=BaseModel)


def read_document(kind: type[_Document], path: Path, name: str, command: str) -> _Document:
    """The document at ``path``, called ``name``, that ``command`` writes.

    Raises InputError if it is not there, cannot be read, or is of another version.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; give the output folder of {command}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the path") from error
    except ValidationError as error:
        field = ".".join(map(str, error.errors(include_url=False)[0]["loc"])) or "document"
        raise InputError(
            f"{path} is no {name} of this version of placer: field '{field}'; run again"
        ) from error
