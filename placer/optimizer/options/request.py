"""What a user asks of a run: every option once, with its type, default, help and group.

The command line, ``placer.optimize``, the onboarding manifest, ``placer worker`` and the printed
command take from here what they say of an option, or are tested to agree with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from placer.common.counts import MOST_THREADS
from placer.common.shapes import ShapeRange
from placer.results.folder import SUFFIX
from placer.results.objective import Objective

if TYPE_CHECKING:  # It brings in onnx, and help is shown without.
    from placer.quantization.overrides import Override

AUTO = "auto"

Base = Literal["float16", "bfloat16", "float"]
BaseOption = Literal["auto", "float16", "bfloat16", "float"]
Beat = Literal["float", "implicit"]
Calibration = Literal["auto", "minmax", "percentile", "entropy", "mse"]
InputOutputTypes = Literal["keep", "convert"]
Export = Literal["openvino"]
Preset = Literal["quick", "default", "thorough"]
Ranges = Literal["imported", "calibrated"]
Recover = Literal[
    "none",
    "auto",
    "cross-layer-equalization",
    "smooth-quant",
    "layer-reconstruction",
    "weight-rounding",
    "bias-correction",
    "scale-correction",
]
WeightRangeOption = Literal["auto", "full", "reduced"]
Sampler = Literal["surrogate", "tpe", "random", "exhaustive"]

Group = Literal["Model and data", "Accuracy", "Engine", "Search", "Output"]
CommandName = Literal["optimize", "onboard", "worker"]
_MOST: frozenset[CommandName] = frozenset({"optimize", "onboard"})
_ALL: frozenset[CommandName] = frozenset({"optimize", "onboard", "worker"})
_OPTIMIZE: frozenset[CommandName] = frozenset({"optimize"})
_STUDY: frozenset[CommandName] = frozenset({"optimize", "worker"})


@dataclass(frozen=True)
class Option:
    """What there is to say of a field of ``Request`` that the user may set.

    ``default``: in words, where None stands for it. ``keyword``: its name in Python and in the
    manifest, unless it is the field's. ``flag``: its name on the command line, without dashes,
    unless it is the keyword's. ``least``, ``most``: the numbers that make sense. ``commands``: the
    commands that take it, ``onboard`` in its manifest.
    """

    group: Group
    help: str
    default: str = ""
    keyword: str = ""
    flag: str = ""
    least: int | None = None
    most: int | None = None
    commands: frozenset[CommandName] = _MOST


@dataclass(frozen=True)
class Request:
    """What the user asks for; None stands for the documented default.

    ``data`` and ``evaluation_data``: see ``placer.calibration.dataset.load_dataset``. ``timeout``
    in seconds. Of ``shape_ranges`` the optimum stands for the rest where one shape is needed.
    ``beats``: see ``placer.optimizer.setup.latency_baselines``. ``sampler``: see
    ``placer.optimizer.trials.proposer``. ``warm_starts``: see
    ``placer.optimizer.setup.warm_start``. ``cache_dir``: None keeps nothing.
    """

    model: Path
    output: Annotated[
        Path | None, Option("Output", "Folder of the results.", "MODEL.placer", commands=_OPTIMIZE)
    ] = None
    shape_ranges: Annotated[
        Mapping[str, ShapeRange],
        Option(
            "Model and data",
            "Shape of an input, e.g. image=1x3x320x320; a range of shapes, NAME=MIN:OPT:MAX; or "
            "the size of a dimension that the model names, e.g. sequence_length=128; any number "
            "of times.",
            keyword="shapes",
            flag="shape",
        ),
    ] = field(default_factory=dict)
    fix: Annotated[
        Mapping[str, float],
        Option(
            "Model and data",
            "Value of an input that never changes, e.g. sr=16000. It becomes a constant, and the "
            "branch that runs replaces an If that it or the shapes decide; any number of times.",
        ),
    ] = field(default_factory=dict)
    custom_ops: Annotated[
        tuple[Path, ...],
        Option(
            "Model and data",
            "Library with custom operators, as ONNX Runtime loads it; any number of times.",
            commands=_ALL,
        ),
    ] = ()
    data: Annotated[
        str | None,
        Option(
            "Model and data",
            "Calibration data: .npz, .npy, a folder of them or of images, or module:function.",
            commands=_ALL,
        ),
    ] = None
    evaluation_data: Annotated[
        str | None,
        Option(
            "Model and data",
            "Data for the gates.",
            "a disjoint half of data",
            keyword="eval_data",
            commands=_ALL,
        ),
    ] = None
    gates: Annotated[
        tuple[str, ...],
        Option(
            "Accuracy",
            "Accuracy condition, e.g. sqnr>=15, cosine>=0.99@logits, top1_drop<=0.01 or "
            "module:function>=0.4; any number of times.",
            "top1_drop<=0.01 with labels, else sqnr>=15, or argmax_agreement>=0.99 of integers",
            flag="gate",
        ),
    ] = ()
    beats: Annotated[
        tuple[Beat, ...],
        Option(
            "Accuracy",
            "Gate on latency: not slower than the float model (float), or than the INT8 engine "
            "that TensorRT 10 makes of it by itself (implicit).",
            flag="beat",
        ),
    ] = ()
    calibration: Annotated[
        Calibration, Option("Accuracy", "auto, minmax, percentile, entropy or mse.")
    ] = "auto"
    recover: Annotated[
        tuple[Recover, ...],
        Option(
            "Accuracy",
            "Change values of the result's weights and biases, never its layers, where that makes "
            "it more accurate: auto, none, cross-layer-equalization, smooth-quant, "
            "layer-reconstruction, weight-rounding, bias-correction or scale-correction; any "
            "number of times.",
            "none",
        ),
    ] = ()
    ranges: Annotated[
        Ranges,
        Option(
            "Accuracy",
            "For a model that is quantized already: imported keeps its scales and calibrates only "
            "tensors without one, calibrated calibrates all.",
        ),
    ] = "imported"
    overrides: Annotated[
        tuple[Override, ...],
        Option(
            "Accuracy",
            "Fix how tensors are calibrated, e.g. tensor=conv1*,method=percentile, "
            "tensor=x,range=-1:1 or node=head/*,weights=per-tensor; any number of times.",
            flag="override",
        ),
    ] = ()
    engine: Annotated[
        str,
        Option(
            "Engine",
            "auto, tensorrt, tensorrt-rtx, onnxruntime, openvino or fusion-model, which estimates; "
            "placer doctor lists all.",
        ),
    ] = AUTO
    gpu: Annotated[
        str | None,
        Option(
            "Engine",
            "GPU to estimate for: a name, e.g. a100, a YAML file, or a file of placer fit.",
        ),
    ] = None
    build_for: Annotated[
        str | None,
        Option(
            "Engine",
            "Build each candidate with TensorRT-RTX too, e.g. for sm89 (fusion-model).",
        ),
    ] = None
    threads: Annotated[
        int,
        Option(
            "Engine",
            "CPU threads of the engine; give as many as the deployed model will have, since "
            "another placement may be the fastest with another number.",
            least=1,
            most=MOST_THREADS,
        ),
    ] = 1
    objective: Annotated[
        Objective,
        Option(
            "Engine",
            "What to search for: latency, or throughput, which is inferences per second with "
            "several requests in flight (openvino).",
        ),
    ] = "latency"
    device: Annotated[
        str | None,
        Option("Engine", "Device that the engine runs on.", "its first", commands=_STUDY),
    ] = None
    devices: Annotated[
        tuple[str, ...],
        Option(
            "Engine",
            "Devices of this machine to search on at once, e.g. 0,1,2,3.",
            commands=_OPTIMIZE,
        ),
    ] = ()
    engine_options: Annotated[
        Mapping[str, str],
        Option(
            "Engine",
            "Option of the engine, KEY=VALUE, e.g. memory-gb=8; any number of times.",
            flag="engine-option",
        ),
    ] = field(default_factory=dict)
    pack: Annotated[
        str | None, Option("Engine", "Rule pack, a name or folder.", "the engine's")
    ] = None
    scheme: Annotated[
        str | None,
        Option(
            "Engine",
            "Number format other than the pack's own. On tensorrt: fp8, or int8-and-fp8, between "
            "which the search chooses site by site. On openvino: symmetric, or auto, the faster "
            "one here.",
        ),
    ] = None
    weight_range: Annotated[
        WeightRangeOption,
        Option(
            "Engine",
            "Integers that weights may have: full, or reduced, so that sums of products do not "
            "saturate on CPUs without VNNI; auto is reduced where the engine's would.",
        ),
    ] = "auto"
    base: Annotated[
        BaseOption | None,
        Option(
            "Engine",
            "Type of what is not quantized: float16, bfloat16 or float for GPU engines; float, "
            "bfloat16 or auto (the search decides) for openvino.",
            "float16, for openvino float",
        ),
    ] = None
    io_type: Annotated[
        InputOutputTypes,
        Option("Engine", "With base: keep the types of inputs and outputs, or convert them."),
    ] = "keep"
    exclude: Annotated[
        tuple[str, ...],
        Option(
            "Search",
            "Nodes to leave float: a name, a glob, op:Softmax, output:boxes or between:a->b; any "
            "number of times.",
        ),
    ] = ()
    only: Annotated[
        tuple[str, ...],
        Option("Search", "Leave all nodes float but these, named as for exclude.", "all"),
    ] = ()
    force: Annotated[
        tuple[str, ...],
        Option("Search", "Nodes that every proposal quantizes, named as for exclude."),
    ] = ()
    preset: Annotated[Preset, Option("Search", "Effort: quick, default or thorough.")] = "default"
    budget: Annotated[
        int | None,
        Option("Search", "Number of trials, the float model's included.", "the preset's", least=1),
    ] = None
    timeout: Annotated[
        float | None, Option("Search", "Time for the whole run, e.g. 90s, 10m or 1h.")
    ] = None
    sampler: Annotated[Sampler, Option("Search", "surrogate, tpe, random or exhaustive.")] = (
        "surrogate"
    )
    front: Annotated[
        int | None,
        Option(
            "Search",
            "Number of points of the Pareto front of latency and accuracy to find.",
            "the fastest only",
            least=2,
        ),
    ] = None
    warm_starts: Annotated[
        tuple[Path, ...],
        Option(
            "Search",
            "Begin with a previous result (folder or result.json), a placement.yaml or a Q/DQ "
            "model; any number of times.",
            flag="warm-start",
        ),
    ] = ()
    storage: Annotated[
        str | None,
        Option(
            "Search",
            "URL of an Optuna storage that workers share, e.g. postgresql://...",
            commands=_STUDY,
        ),
    ] = None
    study: Annotated[
        str | None,
        Option("Search", "Name of the study in storage.", "the model's", commands=_STUDY),
    ] = None
    seed: Annotated[
        int,
        Option(
            "Search",
            "Fixes random choices; proposals follow measured times, too, so two runs may differ.",
            least=0,
        ),
    ] = 0
    export: Annotated[
        Export | None,
        Option(
            "Output",
            "openvino: write the result as optimized.xml and optimized.bin, too.",
            commands=_OPTIMIZE,
        ),
    ] = None
    cache_dir: Annotated[
        Path | None,
        Option(
            "Output",
            "Keep calibration statistics and times of layers on disk.",
            keyword="cache",
            commands=_ALL,
        ),
    ] = None

    @property
    def output_folder(self) -> Path:
        """``output``, or ``<model>.placer`` in the current folder."""
        return self.output or Path(f"{self.model.stem}{SUFFIX}")


@dataclass(frozen=True)
class RequestOption:
    """An option and the field of ``Request`` that it sets. ``choices``: empty if any text does."""

    field: str
    keyword: str
    flag: str
    option: Option
    type: Any
    default: Any
    choices: tuple[str, ...]


@cache
def options() -> Mapping[str, RequestOption]:
    """Every option by its keyword, in the order of ``Request``."""
    hints = get_type_hints(Request, localns={"Override": object}, include_extras=True)
    by_keyword = {}
    for one in fields(Request):
        hint = hints[one.name]
        if get_origin(hint) is Annotated:
            kind, option = get_args(hint)
            keyword = option.keyword or one.name
            flag = f"--{option.flag or keyword.replace('_', '-')}"
            by_keyword[keyword] = RequestOption(
                one.name, keyword, flag, option, kind, one.default, _choices(kind)
            )
    return by_keyword


def _choices(kind: Any) -> tuple[str, ...]:
    """The values of a Literal, of one that may be None, or of a tuple of them."""
    literals = [one for one in (kind, *get_args(kind)) if get_origin(one) is Literal]
    return get_args(literals[0]) if literals else ()
