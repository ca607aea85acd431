"""Read the layers that TensorRT, trtexec and polygraphy print.

Four listings, with or without what a logger puts before each line:

- ``Engine Layer Information:`` of a verbose build, ``Layer(Op): name, Tactic: t, a (Int8[1,64:32]),
  b (...) -> c (...)``; before TensorRT 8.5 ``a[Int8(1,64)]``;
- layer information, ``Name: n, LayerType: op, Inputs: [ { Name: a, Format/Datatype: f }], ...``
  (``trtexec --dumpLayerInfo``, the inspector's format ONELINE);
- ``polygraphy inspect model --show layers``: ``Layer 0 | name [Op: op]`` and tensors in braces;
- which layers run on the GPU and not on a DLA, ``[GpuLayer] CONVOLUTION: name``: names only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Entry = Mapping[str, Any]  # A layer with the fields of the inspector's JSON.


def printed_entries(text: str) -> tuple[Entry | str, ...]:
    """The layers of the last engine that ``text`` lists, by its most detailed listing."""
    for listing in (_information, _summary, _polygraphy, _placed):
        engines = [entries for entries in _engines(listing(text)) if entries]
        if engines:
            return tuple(engines[-1])
    return ()


def _engines(entries: Iterator[Entry | str | None]) -> Iterator[list[Entry | str]]:
    """Split at None, where the next engine's listing starts."""
    engine: list[Entry | str] = []
    for entry in entries:
        if entry is None:
            yield engine
            engine = []
        else:
            engine.append(entry)
    yield engine


def _entry(name: str, op: str, inputs: Any, outputs: Any, **fields: str) -> Entry:
    return {"Name": name, "LayerType": op, "Inputs": inputs, "Outputs": outputs, **fields}


# --- layer information ----------------------------------------------------------------------

_TITLE = re.compile(r"(^|[\]:] ?)(Layers:|Engine Layer Information:)\s*$")
_INFORMATION = re.compile(r"(^|[\]:] ?)Name: (?P<name>.+?), LayerType: (?P<op>\w*), Inputs: ")
_TENSOR = re.compile(
    r"\{ Name: (?P<name>.*?)(, Location: \w+)?, Dimensions: \[[^\]]*\], "
    r"Format/Datatype: (?P<phrase>[^}]*?) ?\}"
)
_FIELDS = {
    "Origin": re.compile(r", Origin: (\w+)"),
    "Activation": re.compile(r", (?:Conv)?Activation: (\w+)"),
    "Metadata": re.compile(r", Metadata: (.*)$"),
}


def _information(text: str) -> Iterator[Entry | None]:
    if "Format/Datatype: " not in text:  # TensorRT-RTX and 11 have two fields.
        return
    for line in _lines(text):
        match = _INFORMATION.search(line)
        if match is None:
            if _TITLE.search(line):
                yield None
            continue
        read, _, rest = line[match.end() :].partition("Outputs: [")
        fields = {name: field[1] for name, p in _FIELDS.items() if (field := p.search(rest))}
        yield _entry(match["name"], match["op"], _tensors(read), _tensors(rest), **fields)


def _tensors(section: str) -> list[dict[str, str]]:
    matches = _TENSOR.finditer(section)
    return [{"Name": match["name"], "Format/Datatype": match["phrase"]} for match in matches]


def _lines(text: str) -> list[str]:
    """Lines; str.splitlines also splits at the separators that metadata hold."""
    return [line.rstrip("\r") for line in text.split("\n")]


# --- a verbose build's summary --------------------------------------------------------------

_SUMMARY = re.compile(
    r"(^|[\]:] ?)Layer\((?P<op>\w+)\): (?P<name>.+?), Tactic: [-\w]+, "
    r"(?P<read>.*?) ?-> (?P<made>.*)"
)
_SIZED = re.compile(r"(?P<name>.*?) ?[\[(](?P<dtype>\w+)[\[(][-:,\d]*[\])][\])](, |\s*$)")


def _summary(text: str) -> Iterator[Entry | None]:
    for line in _lines(text):
        match = _SUMMARY.search(line)
        if match is not None:
            yield _entry(match["name"], match["op"], _sized(match["read"]), _sized(match["made"]))
        elif _TITLE.search(line):
            yield None


def _sized(section: str) -> list[dict[str, str]]:
    matches = _SIZED.finditer(section)
    return [{"Name": match["name"], "Format/Datatype": match["dtype"]} for match in matches]


# --- polygraphy -----------------------------------------------------------------------------

_POLYGRAPHY = re.compile(r"Layer \d+ +\| (?P<name>.+?) \[Op: (?P<op>\w+)\]")
_BRACES = re.compile(r"^\s*(?P<made>-> )?\{(?P<tensors>.*?)\}$", re.MULTILINE | re.DOTALL)
_DESCRIBED = re.compile(
    r"(?P<name>.+?) \[(?P<facts>[^\[\]]*shape=[^\[\]]*)\]\s*(,\s*|$)", re.DOTALL
)


def _polygraphy(text: str) -> Iterator[Entry | None]:
    headers = list(_POLYGRAPHY.finditer(text))
    ends = [*(header.start() for header in headers[1:]), len(text)]
    for header, end in zip(headers, ends, strict=False):
        body = text[header.end() : end]
        tensors: dict[bool, list[dict[str, str]]] = {False: [], True: []}
        for braces in _BRACES.finditer(body):
            made = braces["made"] is not None
            tensors[made] = tensors[made] or _described(braces["tensors"])
        yield _entry(header["name"], header["op"], tensors[False], tensors[True])


def _described(section: str) -> list[dict[str, str]]:
    matches = _DESCRIBED.finditer(section)
    return [
        {"Name": match["name"].strip(), "Format/Datatype": _type(match["facts"])}
        for match in matches
    ]


def _type(facts: str) -> str:
    known = re.search(r"dtype=(\w+)", facts) or re.search(r"Format: ([^,]*)", facts)
    return known[1] if known else ""


# --- where layers run -----------------------------------------------------------------------

_PLACED = re.compile(r"\[GpuLayer\] ([A-Z_]+: )?(?P<name>\S.*?)\s*$")
_PLACES = re.compile(r"Layers [Rr]unning on GPU")


def _placed(text: str) -> Iterator[str | None]:
    for line in _lines(text):
        match = _PLACED.search(line)
        if match is not None:
            yield match["name"]
        elif _PLACES.search(line):
            yield None
