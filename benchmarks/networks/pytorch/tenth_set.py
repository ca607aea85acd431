"""Networks of kinds that no earlier set has, drawn at random, of which only figures were read.

Two to four of each of seven lists (timm, torchvision, texts, images and sounds of transformers,
diffusers, ultralytics), in the order drawn, without those whose family another set has, those
of more than a thousand layers, those with an LSTM (EnCodec) and those that no exporter of PyTorch
writes. Random weights.

python -m benchmarks.networks.write tenth_set --folder networks
python -m benchmarks.plans.tensorrt_rtx --placements 0 --networks tenth_set --folder networks
"""

from __future__ import annotations

from collections.abc import Mapping

import diffusers
import torch
import transformers
from torch import Tensor, nn
from ultralytics.nn.tasks import DetectionModel, OBBModel

from benchmarks.networks.pytorch.deployed import hidden, torchvision_network, words, yolo
from benchmarks.networks.pytorch.export import Network, timm_network

_TOKENS = torch.zeros(1, 24, dtype=torch.int64) + 3
_IMAGE = (torch.zeros(1, 3, 64, 64),)
_STEP = torch.tensor([7.0])


class _Pegasus(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = transformers.PegasusConfig(
            vocab_size=100, d_model=64, encoder_layers=1, decoder_layers=1,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
            decoder_ffn_dim=128, max_position_embeddings=64, attn_implementation="eager",
        )  # fmt: skip
        self.whole = transformers.PegasusModel(config)

    def forward(self, tokens: Tensor, written: Tensor) -> Tensor:
        """The last hidden state of the decoder."""
        return self.whole(tokens, decoder_input_ids=written, use_cache=False).last_hidden_state


class _SegGpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = transformers.SegGptConfig(
            hidden_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=[64, 32],
            patch_size=8, mlp_dim=128, decoder_hidden_size=16, merge_index=0,
            intermediate_hidden_state_indices=[0, 1], pretrain_image_size=64,
        )  # fmt: skip
        self.whole = transformers.SegGptForImageSegmentation(config)

    def forward(self, image: Tensor, prompt: Tensor, mask: Tensor) -> Tensor:
        """The mask of the image."""
        return self.whole(image, prompt, mask, embedding_type="semantic").pred_masks


class _Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = transformers.PatchTSMixerConfig(
            context_length=64, patch_length=8, patch_stride=8, num_input_channels=3, d_model=32,
            num_layers=2, prediction_length=16, mode="mix_channel",
        )  # fmt: skip
        self.whole = transformers.PatchTSMixerForPrediction(config)

    def forward(self, series: Tensor) -> Tensor:
        """What is expected next."""
        return self.whole(series).prediction_outputs


class _CogVideo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.CogVideoXTransformer3DModel(
            num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=4,
            time_embed_dim=32, text_embed_dim=48, num_layers=2, sample_width=8, sample_height=8,
            sample_frames=5, patch_size=2, max_text_seq_length=8,
        )  # fmt: skip

    def forward(self, latent: Tensor, words: Tensor, step: Tensor) -> Tensor:
        """The noise of all frames."""
        return self.whole(latent, words, step, return_dict=False)[0]


class _Mochi(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.MochiTransformer3DModel(
            patch_size=2, num_attention_heads=4, attention_head_dim=16, num_layers=2,
            pooled_projection_dim=32, in_channels=4, text_embed_dim=48, time_embed_dim=32,
            max_sequence_length=8,
        )  # fmt: skip

    def forward(self, latent: Tensor, words: Tensor, step: Tensor) -> Tensor:
        """The flow of all frames."""
        mask = torch.ones(1, 8, dtype=torch.bool)
        return self.whole(latent, words, step, mask, return_dict=False)[0]


class _Latte(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = diffusers.LatteTransformer3DModel(
            num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=8,
            num_layers=1, cross_attention_dim=64, attention_bias=True, sample_size=8, patch_size=2,
            activation_fn="gelu-approximate", norm_type="ada_norm_single", caption_channels=48,
            norm_elementwise_affine=False, video_length=4,
        )  # fmt: skip

    def forward(self, latent: Tensor, step: Tensor, words: Tensor) -> Tensor:
        """The noise of all frames."""
        return self.whole(
            latent, step, words, enable_temporal_attentions=True, return_dict=False
        )[0]  # fmt: skip


def _video_decoder() -> nn.Module:
    whole = diffusers.AutoencoderKLCogVideoX(
        block_out_channels=(32, 32, 64, 64), layers_per_block=1, norm_num_groups=8,
        latent_channels=4,
    )  # fmt: skip
    whole.forward = lambda latent: whole.decode(latent).sample
    return whole


ASIDE: Mapping[str, Network] = {
    "PNASNet": timm_network("pnasnet5large", 96, dynamo=False),
    "DM-NFNet": timm_network("dm_nfnet_f0", 64, dynamo=True),
    "ResNeXt": timm_network("resnext50_32x4d", 64, dynamo=False),
    "R(2+1)D": torchvision_network("r2plus1d_18", 4, 48, 48, dynamo=True),
    "AlexNet": torchvision_network("alexnet", 224, 224, dynamo=False),
    "Megatron-BERT": words("MegatronBert:Model", "last_hidden_state", False),
    "Pegasus": Network.of(_Pegasus, _TOKENS, _TOKENS[:, :8], dynamo=True),
    "GPT": words("OpenAIGPT:LMHeadModel", "logits", False, n_positions=64, n_embd=64, n_layer=2,
                 n_head=4),
    "StarCoder 2": words("Starcoder2:ForCausalLM", "logits", True, num_key_value_heads=2),
    "Swin (transformers)": hidden(
        "Swin:Model", _IMAGE, False, image_size=64, patch_size=4, embed_dim=32, depths=[2, 2],
        num_heads=[2, 4], window_size=4,
    ),
    "SegGPT": Network.of(_SegGpt, torch.zeros(1, 3, 32, 32), torch.zeros(1, 3, 32, 32),
                  torch.zeros(1, 3, 32, 32)),
    "ALIGN (images)": hidden(
        "AlignVision:Model", _IMAGE, False, image_size=64, width_coefficient=0.5,
        depth_coefficient=0.5, hidden_dim=640,
    ),
    "Wav2Vec2-BERT": hidden(
        "Wav2Vec2Bert:Model", (torch.zeros(1, 32, 40),), False, hidden_size=64,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        feature_projection_input_dim=40, conv_depthwise_kernel_size=7,
    ),
    "PatchTSMixer": Network.of(_Mixer, torch.zeros(1, 64, 3), dynamo=True),
    "CogVideoX (decoder)": Network.of(_video_decoder, torch.zeros(1, 4, 2, 4, 4)),
    "CogVideoX": Network.of(
        _CogVideo, torch.zeros(1, 2, 4, 8, 8), torch.zeros(1, 8, 48), _STEP, dynamo=True
    ),
    "Mochi": Network.of(_Mochi, torch.zeros(1, 4, 2, 8, 8), torch.zeros(1, 8, 48), _STEP),
    "Latte": Network.of(
        _Latte, torch.zeros(1, 4, 4, 8, 8), _STEP, torch.zeros(1, 8, 48), dynamo=True
    ),
    "YOLOv8 (ghost)": yolo(DetectionModel, "yolov8n-ghost.yaml", 128, dynamo=True),
    "YOLO11 (turned boxes)": yolo(OBBModel, "yolo11n-obb.yaml", 128, dynamo=False),
}  # fmt: skip
SETS = {"aside": ASIDE}
