"""Files that a run of placer wrote, told from other people's by how they begin or end."""

from __future__ import annotations

import re
from pathlib import Path

from placer.errors import InputError

# What goes into files that have no place of their own to say it: the producer's name in ONNX
# models, the comment at the end of archives.
PRODUCER = "placer"
ARCHIVE_COMMENT = b"placer"
_HEAD, _TAIL = 1 << 14, 1 << 7
# How they begin: a document with its format, a page with its title, a lock and a table in Markdown
# with their first line. Text of others may quote any of it further on.
_TEXT = re.compile(
    rb"""\A(?:
    \s*\{\s*"format":\s*"placer-[a-z]+/\d | format:[ ]placer-[a-z]+/\d
    | <!doctype[ ]html>.*?<title>[^<]*[ ]-[ ]placer</title>
    | \#[ ]Written[ ]by[ ]`placer[ ] | \*\*placer[ ]onboard\*\*:)""",
    re.VERBOSE | re.DOTALL,
)
# The fields `ir_version` and `producer_name` of ModelProto (onnx.proto, protobuf.dev "Encoding").
_MODEL = re.compile(rb"\A\x08.\x12\x06placer", re.DOTALL)
# The end of an archive that has this comment.
_ARCHIVE = re.compile(rb"PK\x05\x06.{16}\x06\x00placer\Z", re.DOTALL)


def is_own(path: Path) -> bool:
    """Whether a run of placer wrote the file ``path``, as far as its content says.

    An empty file holds nothing that could be lost and counts as own. Raises InputError if it cannot
    be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
            file.seek(max(0, path.stat().st_size - _TAIL))
            tail = file.read()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; choose another output") from error
    is_archive = head.startswith(b"PK\x03\x04") and _ARCHIVE.search(tail) is not None
    return not head or is_archive or any(mark.search(head) for mark in (_TEXT, _MODEL))
