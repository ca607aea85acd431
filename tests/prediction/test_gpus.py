"""GPU descriptions: every built-in loads, its figures fit together, mistakes are named."""

from pathlib import Path

import pytest
import yaml

from placer.errors import InputError
from placer.prediction.times.generations import generation_of
from placer.prediction.times.gpus import Gpu, architecture_of, gpu_names, load_gpu

NAMES = gpu_names()
GEFORCE = ("rtx-3060-laptop", "rtx-3090", "rtx-4050-laptop", "rtx-4090", "rtx-5090")

# Dense multiply-adds per SM and clock: float16 with FP16 accumulation, and int8. Sources, NVIDIA
# whitepapers: Turing (8 tensor cores x 64 FP16 FMA per SM); A100 (4 x 256); GA102, table 6
# (4 x 128); Ada, appendix A (as GA102); H100 (twice the A100 per SM); RTX Blackwell, appendix A
# (as Ada). Jetson Orin: its technical brief's 170 sparse INT8 TOPS are 2048 dense FMA x 16 SMs x
# 1.3 GHz. Jetson Thor: 2070 sparse TFLOPS of FP4 are 8 times those of 4096 FP16 FMA x 20 SMs x
# 1.575 GHz. int8 has twice the float16 rate on all of them.
FMA_PER_SM_AND_CLOCK = {
    "7.5": (512, 1024),
    "8.0": (1024, 2048),
    "8.6": (512, 1024),
    "8.7": (1024, 2048),
    "8.9": (512, 1024),
    "9.0": (2048, 4096),
    "11.0": (4096, 8192),
    "12.0": (512, 1024),
}

GOOD = """\
name: mine
aliases: [my-gpu]
compute_capability: "8.9"
sms: 10
boost_clock_mhz: 1000
memory_gb: 8
memory_bandwidth_gb_s: 100
l2_mb: 2
peak: {float: 2.5, float16: 10, int8: 20}
sources:
  - fields: [sms, boost_clock_mhz, memory_gb, memory_bandwidth_gb_s, l2_mb, peak]
    source: data sheet of my GPU
"""


def user_file(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_shipped_gpus():
    assert gpu_names() == (
        *("a10", "a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb", "a30"),
        *("h100-pcie", "h100-sxm", "h200", "l4", "l40s"),
        *("orin-agx", "orin-nano-8gb", "orin-nx-16gb"),
        *("rtx-3060-laptop", "rtx-3090", "rtx-4050-laptop", "rtx-4090", "rtx-5090"),
        *("t4", "thor", "titan-rtx"),
    )


def test_every_name_and_alias_is_unique_and_loads_its_gpu():
    gpus = [load_gpu(name) for name in NAMES]
    assert tuple(gpu.name for gpu in gpus) == NAMES
    names = [name for gpu in gpus for name in (gpu.name, *gpu.aliases)]
    assert len(names) == len(set(names))
    assert len({gpu.fingerprint for gpu in gpus}) == len(gpus)


def test_names_and_aliases_are_found_in_any_case():
    assert load_gpu("A100").name == "a100-pcie-80gb"
    assert load_gpu("H100").name == "h100-sxm"
    assert load_gpu("RTX-4090") == load_gpu("4090")


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("rtx4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),  # As nvidia-smi writes them.
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("Tesla T4", "t4"),
        ("Jetson AGX Orin", "orin-agx"),
        ("Jetson AGX Thor", "thor"),
        ("sm89", "rtx-4090"),
        ("sm_87", "orin-agx"),
    ],
)
def test_what_a_gpu_is_called_in_shops_and_by_tools_is_understood(said: str, name: str):
    assert load_gpu(said).name == name


def test_compilers_know_a_gpu_by_its_compute_capability():
    asked = ("sm89", "SM_120", "orin", "NVIDIA L40S", "rtx-2080", "RTX 6000 Ada Generation")
    assert [architecture_of(gpu) for gpu in asked] == [
        *("sm89", "sm120", "sm87", "sm89", "sm75", "sm89"),
    ]
    with pytest.raises(InputError, match=r"unknown GPU 'rtx-4091'; use one of: .*did you mean"):
        architecture_of("rtx-4091")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("rtx-2080", "(Turing, compute capability 7.5) is not described; name one of the same"),
        ("RTX 2080 Ti", "capability (t4, titan-rtx), or describe it in a YAML file"),
        ("rtx3060", "capability (a10, rtx-3060-laptop, rtx-3090), or describe it"),
        ("b200", "(Blackwell, compute capability 10.0) is not described, nor is another of that"),
        ("GTX 1660", "7.5) is not described, and it lacks the tensor cores of others of that"),
        ("T400 4GB", "7.5) is not described, and it lacks the tensor cores"),
        ("v100", "7.0) is not described: its tensor cores take FP16 and no INT8, so Q/DQ pairs"),
        ("p100", "it has no INT8, so TensorRT builds nothing that has Q/DQ pairs for it; name"),
        ("Jetson Nano", "(Maxwell, compute capability 5.3) is not described: it has no INT8, so"),
        ("tx2", "6.2) is not described: it has no INT8, so TensorRT builds nothing"),
        ("sm61", "it has no tensor cores, and TensorRT from 10 on does not build for it"),
    ],
)
def test_a_gpu_without_a_description_is_told_by_its_generation(name: str, told: str):
    with pytest.raises(InputError) as caught:
        load_gpu(name)
    assert str(caught.value).startswith(f"GPU '{name}' (")
    assert told in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_the_generation_is_known_by_every_name_of_a_gpu(name: str):
    gpu = load_gpu(name)
    named = [generation_of(called) for called in (gpu.name, *gpu.aliases)]
    assert {one and one.compute_capability for one in named} == {gpu.compute_capability}


@pytest.mark.parametrize(
    ("capability", "names"),
    [
        ("5.2", ("NVIDIA GeForce GTX TITAN X", "GTX 980 Ti", "Quadro M2000", "Quadro M6000 24GB")),
        ("6.1", ("NVIDIA TITAN X (Pascal)", "NVIDIA TITAN X", "TITAN Xp", "Quadro P6000")),
        ("7.5", ("T1000", "Quadro T2000 with Max-Q Design", "GeForce GTX 1660 Ti", "GTX 1650")),
        ("8.0", ("NVIDIA A800 40GB Active",)),
        ("8.6", ("RTX A1000", "NVIDIA RTX A400", "RTX A500 Laptop GPU", "RTX A2000 12GB")),
        ("8.9", ("RTX 500 Ada", "RTX 4000 SFF Ada Generation", "RTX 5880 Ada Generation")),
        ("9.0", ("NVIDIA GH200 144G HBM3e", "NVIDIA GH200 480GB")),
        ("11.0", ("T4000", "T5000")),
        (
            "12.0",
            (
                "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
                "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
                "NVIDIA RTX PRO 6000 Blackwell Server Edition",
                "NVIDIA RTX PRO 4000 Blackwell SFF Edition",
                "NVIDIA RTX PRO 500 Blackwell Generation Laptop GPU",
                "RTX PRO 4500 Blackwell",
                "GeForce RTX 5090 D v2",
            ),
        ),
    ],
)
def test_the_generation_of_gpus_that_are_not_described(capability: str, names: tuple[str, ...]):
    found = {name: generation_of(name) for name in names}
    assert {name: one and one.compute_capability for name, one in found.items()} == dict.fromkeys(
        names, capability
    )


def test_a_compute_capability_stands_for_the_gpus_with_tensor_cores():
    found = [generation_of(name) for name in ("sm75", "T4", "T1000")]
    assert [one and one.has_tensor_cores for one in found] == [True, True, False]


@pytest.mark.parametrize("name", ["RTX 4000 SFF", "RTX A700", "RTX PRO", "GTX 1690", "B42"])
def test_the_generation_of_other_names_is_unknown(name: str):
    assert generation_of(name) is None


@pytest.mark.parametrize("name", NAMES)
def test_peaks_follow_from_sms_clock_and_rate_per_sm(name: str):
    gpu = load_gpu(name)
    float16, int8 = FMA_PER_SM_AND_CLOCK[gpu.compute_capability]
    clocks = 2 * gpu.sms * gpu.boost_clock_mhz * 1e6
    assert gpu.peak_ops("float16") == pytest.approx(clocks * float16, rel=0.03)
    assert gpu.peak_ops("int8") == pytest.approx(clocks * int8, rel=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_peaks_of_one_gpu_are_in_the_ratios_of_its_tensor_cores(name: str):
    peak = load_gpu(name).peak
    assert peak.int8 / peak.float16 == pytest.approx(2, rel=0.03)
    if peak.bfloat16 is None or peak.tf32 is None:
        return
    # With FP32 accumulation GeForce has half the rate of FP16 accumulation.
    assert peak.float16 / peak.bfloat16 == pytest.approx(2 if name in GEFORCE else 1, rel=0.03)
    assert peak.bfloat16 / peak.tf32 == pytest.approx(2, rel=0.03)
    if peak.float8 is not None:
        assert peak.float8 / peak.bfloat16 == pytest.approx(2, rel=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_types_of_a_generation(name: str):
    """Turing has neither TF32 nor BF16; FP8 came with Ada (8.9)."""
    gpu = load_gpu(name)
    generation = tuple(int(part) for part in gpu.compute_capability.split("."))
    assert (gpu.peak.tf32 is not None) == (generation >= (8, 0))
    assert (gpu.peak.bfloat16 is not None) == (generation >= (8, 0))
    assert (gpu.peak.float8 is not None) == (generation >= (8, 9))


def test_l2_bandwidth_is_given_where_nvidia_publishes_it():
    """The A100's L2 reads 5120 bytes per clock (A100 whitepaper, A100 L2 cache)."""
    given = [load_gpu(name) for name in NAMES if load_gpu(name).l2_bandwidth_gb_s is not None]
    assert [gpu.name for gpu in given] == ["a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb"]
    for gpu in given:
        assert gpu.l2_bandwidth_gb_s == pytest.approx(5120 * gpu.boost_clock_mhz / 1e3, rel=1e-3)


def test_peak_ops_falls_back_to_the_next_best_type():
    a100, t4, l4 = load_gpu("a100"), load_gpu("t4"), load_gpu("l4")
    assert a100.peak_ops("float16") == 312e12
    assert a100.peak_ops("uint8") == a100.peak_ops("int8") == 624e12
    assert a100.peak_ops("float") == 156e12  # TF32
    assert a100.peak_ops("float8e4m3fn") == 312e12  # no FP8: multiplied as float16
    assert l4.peak_ops("float8e4m3fn") == 242.5e12
    assert t4.peak_ops("float") == 8.1e12  # no TF32
    assert t4.peak_ops("bfloat16") == 65e12
    assert a100.peak_ops("int64") == 19.5e12  # CUDA cores
    with pytest.raises(InputError, match="unknown element type 'fp16'; use ONNX's names"):
        a100.peak_ops("fp16")


def test_a_users_file(tmp_path: Path):
    gpu = load_gpu(user_file(tmp_path, GOOD))
    assert gpu == Gpu.model_validate(yaml.safe_load(GOOD))
    assert gpu.peak_ops("int8") == 20e12
    assert gpu.fingerprint == load_gpu(user_file(tmp_path, GOOD)).fingerprint
    other = load_gpu(user_file(tmp_path, GOOD.replace("sms: 10", "sms: 11")))
    assert other.fingerprint != gpu.fingerprint


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("sms: 10", "sms: many", "mine.yaml:4: field 'sms'"),
        ("sms: 10", "sms: 0", "mine.yaml:4: field 'sms': it must be greater than 0"),
        ("l2_mb: 2", "l2_mb: .inf", "mine.yaml:8: field 'l2_mb'"),
        ("int8: 20", "int4: 20", "mine.yaml:9: field 'peak.int4'"),
        ('"8.9"', "8.9", "mine.yaml:3: field 'compute_capability'"),
        ("[my-gpu]", "[My GPU]", "mine.yaml:2: field 'aliases.0'"),
        ("sms: 10", "sms: 10\ncores: 9", "mine.yaml:5: field 'cores'"),
        ("[sms, ", "[", "'sms' has no source; add it to an entry of 'sources'"),
        ("peak]", "peak.int8]", "'peak.float' has no source"),
        ("[sms, ", "[sms, tdp, ", "'sources' cites 'tdp', which is not a figure of this file"),
        ("name: mine", "name: [mine", "mine.yaml:2: not valid YAML"),
    ],
)
def test_one_sentence_names_file_line_and_field(tmp_path: Path, old: str, new: str, expected: str):
    with pytest.raises(InputError) as caught:
        load_gpu(user_file(tmp_path, GOOD.replace(old, new)))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path):
    with pytest.raises(InputError) as caught:
        load_gpu("rtx-4091")
    assert str(caught.value).startswith("unknown GPU 'rtx-4091'; use one of")
    assert "or the compute capability of another one, such as sm86, or a YAML file" in str(
        caught.value
    )
    assert all(name in str(caught.value) for name in NAMES)
    with pytest.raises(InputError, match="unknown GPU"):
        load_gpu(str(tmp_path))


def test_files_that_are_no_descriptions(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"name: \xff")
    with pytest.raises(InputError, match=r"mine\.yaml is not UTF-8 text"):
        load_gpu(str(path))
    path.write_bytes(b"#" * (257 * 1024))
    with pytest.raises(InputError, match=r"mine\.yaml holds 257 KiB, more than 256 KiB"):
        load_gpu(str(path))
