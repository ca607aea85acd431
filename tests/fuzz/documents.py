"""Damage to texts, JSON, arrays and plain bytes; everything follows from the ``Random`` given."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from copy import deepcopy
from random import Random
from typing import Any

import numpy as np

_NAMES = ("other", "x", "y", "\u202egnp", "a\nb", "../x", "a" * 300, "[b]")
_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**63,
    1e308,
    -0.5,
    float("nan"),
    float("inf"),
    "",
    "x",
    "-",
    "\u202e",
    "a\nb",
    "x" * 5000,
    "../../x",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
)


def damaged_bytes(data: bytes, random: Random) -> bytes:
    """``data`` with some bytes changed, cut, repeated or left out."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        place = random.randrange(len(changed))
        match random.randrange(4):
            case 0:
                changed[place] = random.randrange(256)
            case 1:
                del changed[place:]
            case 2:
                changed[place:place] = changed[place : place + random.randrange(64)]
            case _:
                del changed[place : place + random.randrange(16)]
    return bytes(changed)


def damaged_json(text: str, random: Random) -> str:
    """``text`` with one to three of its values replaced, left out, repeated or renamed."""
    document = json.loads(text)
    for _ in range(random.choice((1, 1, 2, 3))):
        places = list(_places(document))
        if not places:
            break
        container, key = random.choice(places)
        match random.randrange(6):
            case 0 | 1 | 2:
                container[key] = deepcopy(random.choice(_VALUES))
            case 3:
                del container[key]
            case 4:
                other, name = random.choice(places)
                container[key] = json.loads(json.dumps(other[name]))
            case _:
                if isinstance(container, list):
                    container.append(container[key])
                else:
                    container[random.choice(_NAMES)] = container.pop(key)
    return json.dumps(document)


def _places(value: Any) -> Any:
    """Every container and key of a document."""
    keys = range(len(value)) if isinstance(value, list) else list(value)
    for key in keys:
        yield value, key
        if isinstance(value[key], list | dict):
            yield from _places(value[key])


_SCALARS = (
    "",
    "null",
    "true",
    "-1",
    "0",
    "1e400",
    ".nan",
    "[]",
    "{}",
    "[[[[]]]]",
    "x" * 5000,
    "\u202e",
    "!!python/name:os.system x",
    "&a [*a]",
    "2026-01-01",
    "0x10",
    "'",
    '"',
    "{",
    "- -",
    "? :",
    "../../x",
    "/etc/passwd",
    "%",
    "@",
    "99999999999999999999",
    "Relu",
    "[1, [2, {3: 4}]]",
    "~",
)


def damaged_text(text: str, random: Random) -> str:
    """``text`` with lines or values of it changed, and at times characters."""
    for _ in range(random.choice((1, 1, 2, 3))):
        lines = text.split("\n")
        place = random.randrange(len(lines))
        match random.randrange(8):
            case 0:
                del lines[place]
            case 1:
                lines.insert(place, random.choice(lines))
            case 2:
                lines[place] = "  " + lines[place]
            case 3 | 4 | 5:
                head, colon, _ = lines[place].partition(": ")
                lines[place] = f"{head}{colon}{random.choice(_SCALARS)}"
            case 6:
                at = random.randrange(len(lines[place]) + 1)
                mark = random.choice("[]{}:,'\"&*!|>#%@\t\x01\u202e ")
                lines[place] = lines[place][:at] + mark + lines[place][at:]
            case _:
                bracket = random.choice(("[", "{a: ", "(", "- "))
                lines[place] += bracket * random.choice((3, 50, 9000))
        text = "\n".join(lines)
    return text


def damaged_arrays(arrays: Mapping[str, np.ndarray], random: Random) -> tuple[bytes, list[str]]:
    """An .npz file of ``arrays`` with one of them, its header or the archive changed; and what."""
    changed: dict[str, np.ndarray] = dict(arrays)
    name = random.choice(sorted(changed))
    array = changed[name]
    match random.randrange(10):
        case 0:
            kind = "another type"
            chosen = random.choice(("f8", "i4", "c8", "?", "u1", "S3", "U2"))
            changed[name] = array.astype(chosen if array.dtype.kind in "fiub" else "S3")
        case 1:
            kind = "one value"
            number = random.choice((np.nan, np.inf, 1e38, 0))
            changed[name] = np.full_like(array, number if array.dtype.kind == "f" else 0)
        case 2:
            kind = "another shape"
            changed[name] = array[..., None] if random.random() < 0.5 else array[:1]
        case 3:
            kind = "no rows"
            changed[name] = array[:0]
        case 4:
            kind = "another name"
            changed[random.choice(_NAMES)] = changed.pop(name)
        case 5:
            kind = "labels"
            changed["labels"] = np.array(random.choice(_LABELS))
        case 6:
            kind = "huge and empty"
            changed[name] = np.empty((0, 2**40), "f4")
        case _:
            kind = "archive"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, value in changed.items():
            header = io.BytesIO()
            np.lib.format.write_array(header, value, allow_pickle=False)
            data = header.getvalue()
            if random.random() < 0.2:
                number = random.choice((b"(9,", b"(9999999999,", b"(-1,", b"(a,"))
                data = data.replace(b"(%d," % len(value) if value.ndim else b"(", number)
            archive.writestr(f"{key}.npy", data)
    written = stream.getvalue()
    return (damaged_bytes(written, random) if random.random() < 0.3 else written), [kind]


_LABELS: tuple[list[Any], ...] = (
    [0.5, float("nan")],
    [0, 1, 2],
    [-1, 0, 5],
    [2**40, 0, 1],
    [True, False, True],
    ["a", "b", "c"],
    [],
    [[0], [1], [2]],
)
