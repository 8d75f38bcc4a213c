#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny vision folders of tests/golden/vision/: what transformers + PEFT compute with their text part.

For every class of folders, with a tower and a projector beside the text model:

    model/                    the folder as transformers' save_pretrained writes it
    reference.safetensors     seq_lens, input_ids, and per token the logits of each sequence run alone: logits,
                              logits_adapter (with adapter_random)
    adapter_random/           PEFT LoRA on all linears of the text model, A and B random; keys of the folder's class
    defaults.json             some classes: the configuration of a text model where only SIZES are given
    adapter_text/             some classes: adapter_random with the keys and targets of the text model's own class
    train.jsonl               24 rows {"input_ids", "labels"}
    train_reference.json      50 steps of LoRA from adapter_random, fp32
    adapter_final/            the adapter after these steps

How to run, in a virtual environment with torch, transformers, peft and safetensors:

    PYTHONHASHSEED=0 OMP_NUM_THREADS=1 python tests/golden/vision/make_vision.py [class ...]

The formulas of the steps and rows are those of ../make_models.py.
"""

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path

import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

VISION = Path(__file__).resolve().parent
sys.path.insert(0, str(VISION.parent))
import make_models  # noqa: E402

TEXT = {
    "vocab_size": 67, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
SIZES = {"vocab_size": 1000, "hidden_size": 4096, "intermediate_size": 64, "num_hidden_layers": 8,
         "num_attention_heads": 32}
SIGLIP = {
    "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8,
    "patch_size": 4,
}


@dataclasses.dataclass
class Folder:
    model_type: str
    seed: int
    text: dict
    vision: dict
    more: dict
    path: str = "language_model"
    rows: int = 64  # ids below that of an image
    rate: float = 1e-2  # of the training
    defaults: bool = False  # defaults.json is kept: the text model's configuration where only SIZES are given
    alone: bool = False  # the text model has a class of its own with a head, and an adapter made over it is kept


FOLDERS = {
    "gemma3": Folder(
        "gemma3", 201,
        {**TEXT, "head_dim": 12, "query_pre_attn_scalar": 20, "sliding_window": 4, "model_type": "gemma3_text",
         "layer_types": ["sliding_attention", "full_attention"],
         "rope_parameters": {
             "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
             "sliding_attention": PLAIN}},
        {**SIGLIP, "vision_use_head": False, "model_type": "siglip_vision_model"},
        {"mm_tokens_per_image": 1, "image_token_index": 66, "boi_token_index": 65, "eoi_token_index": 64},
        rate=1e-3,  # its gradients are large: at a higher rate rounding alone moves the losses by 1e-5
        alone=True,
    ),
    "gemma4": Folder(
        "gemma4", 208,
        {**TEXT, "pad_token_id": 0, "head_dim": 8, "global_head_dim": 16, "num_global_key_value_heads": 1,
         "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "sliding_window": 4, "final_logit_softcapping": 5.0,
         "layer_types": ["sliding_attention", "full_attention"]},
        {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
         "num_key_value_heads": 2, "head_dim": 4, "patch_size": 4, "position_embedding_size": 4},
        {"image_token_id": 66, "video_token_id": 65, "boi_token_id": 64, "eoi_token_id": 64, "audio_config": None,
         "audio_token_id": 64, "boa_token_id": 64, "eoa_token_index": 64},
        rate=1e-3, alone=True,
    ),
    "mistral3": Folder(
        "mistral3", 202,
        {**TEXT, "head_dim": 12, "rms_norm_eps": 1e-5, "sliding_window": None, "model_type": "mistral",
         "rope_parameters": PLAIN},
        {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16,
         "patch_size": 4, "head_dim": 4, "model_type": "pixtral"},
        {"image_token_index": 66, "tie_word_embeddings": False},
        alone=True,
    ),
    # The same class with the text model of Ministral 3: YaRN, and queries that grow with the position.
    "ministral3": Folder(
        "mistral3", 206,
        {**TEXT, "head_dim": 12, "rms_norm_eps": 1e-5, "model_type": "ministral3",
         "rope_parameters": {
             "rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0, "original_max_position_embeddings": 8,
             "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}},
        {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16,
         "patch_size": 4, "head_dim": 4, "model_type": "pixtral"},
        {"image_token_index": 66, "tie_word_embeddings": False},
        alone=True,
    ),
    # The same class with the text model of Mistral 4: latent attention, experts.
    "mistral4": Folder(
        "mistral3", 211,
        {**TEXT, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "model_type": "mistral4",
         "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "q_lora_rank": 14,
         "kv_lora_rank": 10, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12,
         "rope_parameters": {
             "rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0, "original_max_position_embeddings": 8,
             "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}},
        {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 16,
         "patch_size": 4, "head_dim": 4, "model_type": "pixtral"},
        {"image_token_index": 66, "tie_word_embeddings": False},
        defaults=True,
    ),
    "qwen2_5_vl": Folder(
        "qwen2_5_vl", 203,
        {**TEXT, "rms_norm_eps": 1e-6, "rope_parameters": {**PLAIN, "mrope_section": [2, 2, 2]}},
        {"hidden_size": 8, "intermediate_size": 12, "depth": 1, "num_heads": 2, "patch_size": 4, "out_hidden_size": 24,
         "fullatt_block_indexes": [0]},
        {"image_token_id": 66, "video_token_id": 65, "vision_start_token_id": 64, "vision_end_token_id": 64,
         "tie_word_embeddings": False},
    ),
    "qwen3_vl": Folder(
        "qwen3_vl", 204,
        {**TEXT, "head_dim": 12, "rope_parameters": {**PLAIN, "mrope_section": [2, 2, 2], "mrope_interleaved": True}},
        {"hidden_size": 8, "intermediate_size": 12, "depth": 1, "num_heads": 2, "patch_size": 4, "out_hidden_size": 24,
         "num_position_embeddings": 4, "deepstack_visual_indexes": [0]},
        {"image_token_id": 66, "video_token_id": 65, "vision_start_token_id": 64, "vision_end_token_id": 64,
         "tie_word_embeddings": True},
    ),
    "qwen3_5": Folder(
        "qwen3_5", 209,
        {**TEXT, "head_dim": 8, "linear_key_head_dim": 6, "linear_value_head_dim": 6, "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "layer_types": ["linear_attention", "full_attention"],
         "model_type": "qwen3_5_text",
         "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0],
                             "mrope_interleaved": True}},
        {"hidden_size": 8, "intermediate_size": 12, "depth": 1, "num_heads": 2, "patch_size": 4, "out_hidden_size": 24,
         "num_position_embeddings": 16, "model_type": "qwen3_5_vision"},
        {"image_token_id": 66, "video_token_id": 65, "vision_start_token_id": 64, "vision_end_token_id": 64,
         "tie_word_embeddings": False},
        rate=1e-3, alone=True,
    ),
    "qwen3_5_moe": Folder(
        "qwen3_5_moe", 212,
        {**TEXT, "head_dim": 8, "linear_key_head_dim": 6, "linear_value_head_dim": 6, "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "layer_types": ["linear_attention", "full_attention"], "num_experts": 4,
         "num_experts_per_tok": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 10,
         "router_aux_loss_coef": 0.0, "model_type": "qwen3_5_moe_text",
         "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0],
                             "mrope_interleaved": True}},
        {"hidden_size": 8, "intermediate_size": 12, "depth": 1, "num_heads": 2, "patch_size": 4, "out_hidden_size": 24,
         "num_position_embeddings": 16, "model_type": "qwen3_5_moe_vision"},
        {"image_token_id": 66, "video_token_id": 65, "vision_start_token_id": 64, "vision_end_token_id": 64,
         "tie_word_embeddings": False},
        rate=1e-3, alone=True,
    ),
    "lfm2_vl": Folder(
        "lfm2_vl", 210,
        {**TEXT, "norm_eps": 1e-5, "block_multiple_of": 8, "layer_types": ["conv", "full_attention"],
         "model_type": "lfm2", "rope_parameters": PLAIN},
        {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 4,
         "num_patches": 16, "vision_use_head": False, "model_type": "siglip2_vision_model"},
        {"image_token_id": 66, "projector_hidden_size": 8, "tie_word_embeddings": True},
        alone=True,
    ),
    "smolvlm": Folder(
        "smolvlm", 205,
        {**TEXT, "head_dim": 12, "rms_norm_eps": 1e-5, "model_type": "llama", "rope_parameters": PLAIN},
        SIGLIP,
        {"image_token_id": 66, "scale_factor": 2, "tie_word_embeddings": False},
        path="text_model", alone=True,
    ),
    "muse_glimmer": Folder(
        "muse_glimmer", 207,
        {**TEXT, "head_dim": 12, "attention_bias": True, "sliding_window": 4,
         "layer_types": ["sliding_attention", "full_attention"],
         "layer_rope_theta": [500.0, 0], "rope_parameters": PLAIN, "post_norm_eps": 1e-4,
         "qk_scale_factor": 2.5, "output_multiplier": 0.4, "final_logit_softcapping": 7.0},
        {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 4,
         "pos_emb_height": 2, "pos_emb_width": 2},
        {"image_token_id": 66, "video_token_id": 65, "out_hidden_size": 32, "projector_hidden_size": 8},
        defaults=True,
    ),
}


def load_model(folder="model", **kwargs):
    return AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager", **kwargs)


def nll_sum(model, rows):
    """As in make_models; Gemma 3 asks in training which tokens are an image's."""
    ids, labels, mask = make_models.collate(rows)
    types = {"token_type_ids": torch.zeros_like(ids)} if model.config.model_type == "gemma3" else {}
    logits = model(input_ids=ids, attention_mask=mask, **types).logits
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=make_models.IGNORED, reduction="sum")


def make_model(folder):
    config = AutoConfig.for_model(
        folder.model_type, dtype="float32", text_config=folder.text, vision_config=folder.vision, **folder.more)
    model = AutoModelForImageTextToText.from_config(config)
    make_models.randomise(model, torch.Generator().manual_seed(folder.seed))
    model.save_pretrained("model")
    Path("model/generation_config.json").unlink(missing_ok=True)


def make_reference(folder):
    generator = torch.Generator().manual_seed(folder.seed + 1000)
    lengths = (1, 5, 17)
    input_ids = torch.randint(0, folder.rows, (sum(lengths),), generator=generator)
    base = load_model().eval()
    tensors = {
        "seq_lens": torch.tensor(lengths, dtype=torch.int64), "input_ids": input_ids,
        "logits": make_models.all_logits(base, input_ids, lengths),
    }
    adapted = PeftModel.from_pretrained(base, "adapter_random").eval()
    tensors["logits_adapter"] = make_models.all_logits(adapted, input_ids, lengths)
    save_file(tensors, "reference.safetensors", {"format": "pt"})


def make_alone(folder):
    """The adapter as PEFT names it over the text model alone."""
    os.mkdir("adapter_text")
    weights = load_file("adapter_random/adapter_model.safetensors")
    save_file({name.replace(f".{folder.path}.", "."): value for name, value in weights.items()},
              "adapter_text/adapter_model.safetensors", {"format": "pt"})
    config = json.loads(Path("adapter_random/adapter_config.json").read_text())
    config["target_modules"] = r"model\.layers\.\d+\..*_proj"
    Path("adapter_text/adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make_defaults(model_type):
    config = AutoConfig.for_model(model_type, **SIZES).to_dict()
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "dtype", "architectures"):
        config.pop(key, None)
    Path("defaults.json").write_text(json.dumps(config, sort_keys=True) + "\n")


def make_folder(name):
    print(name)
    folder = FOLDERS[name]
    shutil.rmtree(VISION / name, ignore_errors=True)
    (VISION / name).mkdir(parents=True)
    os.chdir(VISION / name)
    make_model(folder)
    linears = ".*_proj(_with_mqa)?" if "kv_lora_rank" in folder.text else ".*_proj"
    lora = {"r": 2, "lora_alpha": 4, "lora_dropout": 0.0, "task_type": "CAUSAL_LM",
            "target_modules": rf"model\.{folder.path}\.layers\.\d+\.{linears}"}
    make_models.make_adapter("adapter_random", lora, seed=folder.seed + 1, random_b=True)
    make_reference(folder)
    family = make_models.Family(folder.model_type, folder.seed, {"vocab_size": folder.rows}, ())
    rows = make_models.make_rows(family)

    def adapted():
        return PeftModel.from_pretrained(load_model(), "adapter_random", is_trainable=True)

    model = make_models.reference_curve(adapted, rows, folder.rate, "train_reference.json")
    make_models.save_adapter(model, "adapter_final")
    if folder.defaults:
        make_defaults(folder.text.get("model_type", f"{folder.model_type}_text"))
    if folder.alone:
        make_alone(folder)


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    make_models.load_model, make_models.nll_sum = load_model, nll_sum
    make_models.TRAIN["max_steps"] = 50
    for name in sys.argv[1:] or list(FOLDERS):
        make_folder(name)


if __name__ == "__main__":
    main()
