#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the references of the families whose golden is a row of FAMILIES here and of tests/golden/dense.c.

For every family, what transformers + PEFT compute on the CPU, in fp32 and on one thread, with a tiny random model:

    NAME/model/                    the model, its weights in bf16
    NAME/adapter_init/             PEFT LoRA on all linears as PEFT begins it
    NAME/adapter_final/            the same after 50 steps of AdamW
    NAME/train_reference.json      loss, gradient norm before clipping and learning rate of each of these steps
    NAME/reference.safetensors     seq_lens, input_ids, logits and, with adapter_final, logits_adapter of each sequence
                                   run alone, fp32
    NAME/defaults.json             the family's configuration where only SIZES are given, without its special tokens
    gpt_oss/mxfp4/model            the model with experts in MXFP4, whose numbers those of gpt_oss/model are
    ministral/config_mistral.json  its config.json as a mistral one, of which AutoConfig makes the same class
    train.jsonl                    the rows of all families

How to run, in a virtual environment with torch, transformers, peft and safetensors:

    PYTHONHASHSEED=0 OMP_NUM_THREADS=1 python tests/golden/dense/make_dense.py [family ...]
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import make_models as models  # noqa: E402

LOSSES = models.losses
VOCAB, LENGTHS = 96, (1, 5, 13, 27)
models.TRAIN["max_steps"] = 50
models.TRAIN["warmup_steps"] = 2

SHAPE = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}
SIZES = {"vocab_size": 1000, "hidden_size": 4096, "intermediate_size": 64, "num_hidden_layers": 8,
         "num_attention_heads": 32}
THREE = {"num_hidden_layers": 3, "sliding_window": 6,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
RATES = {"gemma4_e": 3e-4, "qwen3_5_text": 1e-3, "qwen3_next": 1e-3, "qwen3_5_moe_text": 1e-3, "granitemoehybrid": 1e-3, "granite4_moe": 1e-3, "nemotron_h": 1e-3}  # at a higher rate rounding alone moves its losses
STATE = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")
LATENT = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")  # PEFT takes names of MLPs for experts
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
FUSED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "down_proj")


HALVES = ["linear_attention", "full_attention", "mlp", "mlp", "mlp", "mlp", "mlp", "mlp"]


def rope(theta=10000.0, kind="default", **more):
    return {"rope_type": kind, "rope_theta": theta} | more


def family(model_type, seed, linears=tuple(models.LINEARS), **changes):
    return models.Family(model_type, seed=seed, lengths=LENGTHS, config=SHAPE | changes, linears=linears)


FAMILIES = {
    "seed_oss": family("seed_oss", 301, head_dim=16, rope_parameters=rope(1e7), attention_out_bias=True, mlp_bias=True,
                       attention_dropout=0.0, residual_dropout=0.0),
    "qwen3_moe": family(
        "qwen3_moe", 317, ATTENTION, head_dim=8, moe_intermediate_size=12, num_experts=6, num_experts_per_tok=2,
        norm_topk_prob=True, router_aux_loss_coef=0.05, rope_parameters=rope(1e4)),
    "mixtral": family("mixtral", 318, ATTENTION, intermediate_size=12, num_local_experts=5, num_experts_per_tok=2,
                      router_aux_loss_coef=0.05, sliding_window=6, rope_parameters=rope(1e4)),
    "olmoe": family("olmoe", 319, ATTENTION, intermediate_size=12, num_experts=6, num_experts_per_tok=3,
                    attention_bias=True, router_aux_loss_coef=0.05, rope_parameters=rope(1e4)),
    "qwen2_moe": family(
        "qwen2_moe", 320, (*ATTENTION, "shared_expert.gate_proj", "shared_expert.up_proj", "shared_expert.down_proj"),
        moe_intermediate_size=12, shared_expert_intermediate_size=12, num_experts=5, num_experts_per_tok=2,
        router_aux_loss_coef=0.05, rope_parameters=rope(1e4)),
    "qwen3_5_moe_text": family(
        "qwen3_5_moe_text", 331,
        (*ATTENTION, *STATE, "shared_expert.gate_proj", "shared_expert.up_proj", "shared_expert.down_proj"),
        head_dim=16, linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=2, linear_num_value_heads=4,
        full_attention_interval=2, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12,
        shared_expert_intermediate_size=12, router_aux_loss_coef=0.05,
        rope_parameters=rope(1e4, partial_rotary_factor=0.25, mrope_section=[1, 1, 0], mrope_interleaved=True)),
    "glm4_moe": family(
        "glm4_moe", 322, ATTENTION, head_dim=12, first_k_dense_replace=1, n_routed_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=12, routed_scaling_factor=1.6, attention_bias=True, use_qk_norm=True,
        rope_parameters=rope(1e4, partial_rotary_factor=0.5)),
    "minimax_m2": family(
        "minimax_m2", 323, ATTENTION, head_dim=12, intermediate_size=12, num_local_experts=5, num_experts_per_tok=2,
        router_aux_loss_coef=0.05, rope_parameters=rope(1e4, partial_rotary_factor=0.5)),
    "gpt_oss": family(
        "gpt_oss", 325, ATTENTION, num_hidden_layers=2, head_dim=8, intermediate_size=32, num_local_experts=3,
        num_experts_per_tok=2, router_aux_loss_coef=0.05, sliding_window=6, tie_word_embeddings=True,
        rope_parameters=rope(150000.0, "yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                             original_max_position_embeddings=16)),
    "ernie4_5": family("ernie4_5", 302, head_dim=16, rope_parameters=rope(500000.0), use_bias=True,
                       tie_word_embeddings=True),
    "granite": family("granite", 303, rope_parameters=rope(), attention_bias=True, mlp_bias=True,
                      embedding_multiplier=3.0, logits_scaling=1.7, residual_multiplier=0.6, attention_multiplier=0.21),
    "glm4": family("glm4", 304, head_dim=16, linears=FUSED, rope_parameters=rope(partial_rotary_factor=0.5)),
    "olmo2": family("olmo2", 305, rope_parameters=rope(500000.0), attention_bias=True),
    "olmo3": family("olmo3", 306, **THREE, rope_parameters={
        "sliding_attention": rope(500000.0),
        "full_attention": rope(500000.0, "yarn", factor=4.0, original_max_position_embeddings=16,
                               attention_factor=1.2)}),
    "exaone4": family("exaone4", 307, **THREE, rope_parameters=rope(1e6)),
    "hunyuan_v1_dense": family("hunyuan_v1_dense", 308, head_dim=16, attention_bias=True,
                               rope_parameters=rope(kind="dynamic", alpha=50.0, factor=1.0)),
    "ministral3": family("ministral3", 309, head_dim=16, rope_parameters=rope(
        1e6, "yarn", factor=16.0, original_max_position_embeddings=8, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.1)),
    "ministral": family("ministral", 313, **THREE, head_dim=12, rope_parameters=rope(1e5)),
    "gemma4_text": family(
        "gemma4_text", 311, num_hidden_layers=3, head_dim=8, global_head_dim=16, num_global_key_value_heads=1,
        attention_k_eq_v=True, attention_bias=True, sliding_window=6, final_logit_softcapping=4.0,
        hidden_size_per_layer_input=0, tie_word_embeddings=True,
        layer_types=["sliding_attention", "full_attention", "full_attention"]),
    "gemma4_e": family(
        "gemma4_text", 312,
        (*models.LINEARS, "per_layer_input_gate", "per_layer_projection", "per_layer_model_projection"),
        hidden_size=16, intermediate_size=16, num_hidden_layers=5, head_dim=8, global_head_dim=16, sliding_window=6,
        final_logit_softcapping=4.0, hidden_size_per_layer_input=4, vocab_size_per_layer_input=VOCAB,
        num_kv_shared_layers=3, use_double_wide_mlp=True, tie_word_embeddings=True,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                     "full_attention"]),
    "gemma4_moe": family(
        "gemma4_text", 332, (*models.LINEARS, "router.proj"), head_dim=8, global_head_dim=16, sliding_window=6,
        final_logit_softcapping=4.0, hidden_size_per_layer_input=0, tie_word_embeddings=True,
        layer_types=["sliding_attention", "full_attention"], enable_moe_block=True, num_experts=5, top_k_experts=2,
        moe_intermediate_size=12),
    "qwen3_5_text": family(
        "qwen3_5_text", 314, (*models.LINEARS, *STATE), num_hidden_layers=2, head_dim=16, linear_key_head_dim=8,
        linear_value_head_dim=12, linear_num_key_heads=2, linear_num_value_heads=4, full_attention_interval=2,
        rope_parameters=rope(1e4, partial_rotary_factor=0.25, mrope_section=[1, 1, 0], mrope_interleaved=True)),
    "qwen3_next": family(
        "qwen3_next", 317, ("q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkvz", "in_proj_ba", "out_proj"), num_hidden_layers=2,
        head_dim=16, linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=2, linear_num_value_heads=4,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=12,
        mlp_only_layers=[1], router_aux_loss_coef=0.05,
        layer_types=["linear_attention", "full_attention"],
        rope_parameters=rope(1e4, partial_rotary_factor=0.25)),
    "nemotron_h": family(
        "nemotron_h", 318, ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "in_proj"),
        num_hidden_layers=4, head_dim=8, layers_block_type=["linear_attention", "full_attention", "mlp", "moe"],
        n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=12, moe_shared_expert_intermediate_size=10,
        n_group=3, topk_group=2, routed_scaling_factor=1.5,
        layer_norm_epsilon=1e-4, mamba_num_heads=8, mamba_head_dim=8, n_groups=2, ssm_state_size=6, use_bias=True,
        mlp_bias=True, time_step_min=1e-12),
    "lfm2": family(
        "lfm2", 316, ("q_proj", "k_proj", "v_proj", "out_proj", "w1", "w2", "w3", "in_proj"),
        norm_eps=1e-5, block_multiple_of=8, conv_bias=True, conv_L_cache=3, rope_parameters=rope(1e4),
        tie_word_embeddings=True, layer_types=["conv", "full_attention"]),
    "granitemoehybrid": family(
        "granitemoehybrid", 315, ("q_proj", "k_proj", "v_proj", "o_proj", "input_linear", "output_linear", "in_proj",
                                  "out_proj"),
        num_local_experts=0, shared_intermediate_size=40, mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=6,
        mamba_proj_bias=True, time_step_limit=(0.02, 4.0), attention_bias=True, embedding_multiplier=3.0,
        logits_scaling=1.7, residual_multiplier=0.6, attention_multiplier=0.21, position_embedding_type="rope",
        rope_parameters=rope(), layer_types=["linear_attention", "full_attention"]),
    "granite4_moe": family(
        "granitemoehybrid", 324, (*ATTENTION, "input_linear", "output_linear", "in_proj", "out_proj"),
        intermediate_size=12, num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=24,
        router_aux_loss_coef=0.05, mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=6, embedding_multiplier=3.0,
        logits_scaling=1.7, residual_multiplier=0.6, attention_multiplier=0.21,
        layer_types=["linear_attention", "full_attention"]),
    "deepseek_v3": family(
        "deepseek_v3", 317, LATENT, num_key_value_heads=4, first_k_dense_replace=1, n_routed_experts=6, n_group=3,
        topk_group=2, num_experts_per_tok=2, moe_intermediate_size=8, n_shared_experts=2, attention_bias=True, q_lora_rank=12,
        kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8,
        rope_parameters=rope(1e4, "yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=32.0,
                             beta_slow=1.0, mscale=1.0, mscale_all_dim=0.7)),
    "glm4_moe_lite": family(
        "glm4_moe_lite", 318, ("q_proj", *LATENT[2:]), num_key_value_heads=4, mlp_layer_types=["dense", "sparse"],
        n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, q_lora_rank=None, kv_lora_rank=12,
        qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=12, rope_interleave=False, rope_parameters=rope(1e6)),
    "youtu": family(
        "youtu", 319, (*LATENT, "gate_proj", "up_proj", "down_proj"), num_key_value_heads=4, q_lora_rank=14,
        kv_lora_rank=12, qk_nope_head_dim=4, qk_rope_head_dim=6, v_head_dim=10, rope_parameters=rope(1e6),
        tie_word_embeddings=True, pad_token_id=None),  # transformers 5.24 loads its row as zeros
    "cohere2": family("cohere2", 310, **THREE, rope_parameters=rope(50000.0), layer_norm_eps=1e-5, logit_scale=0.35,
                      attention_bias=True, tie_word_embeddings=True),
}


BALANCES = []  # of each step, of both trainings one after the other


def add_balances(out):
    """aux_loss of each step, as TRL logs it."""
    reference = json.loads(Path(out).read_text())
    for step, balance in zip(reference["steps"], BALANCES):
        step["aux_loss"] = balance
    BALANCES.clear()
    models.write_json(out, reference)


def balanced_losses(model, rows, tokens, rows_per_forward):
    """With the loss that balances experts, over all tokens of a step as one micro batch (SFTTrainer.compute_loss of TRL
    1.16)."""
    nll, routed = 0.0, []
    for start in range(0, len(rows), rows_per_forward):
        ids, labels, mask = models.collate(rows[start : start + rows_per_forward])
        out = model(input_ids=ids, attention_mask=mask, output_router_logits=True)
        nll = nll + models.nll_of(out.logits, labels)
        routed.append([layer[mask.flatten().bool()] for layer in out.router_logits])
    layers = tuple(torch.cat(parts) for parts in zip(*routed))
    balance = load_balancing_loss_func(layers, layers[0].shape[-1], model.config.num_experts_per_tok)
    BALANCES.append(balance.item())
    yield nll / tokens + model.config.router_aux_loss_coef * balance


def make_mxfp4(model, seed):
    """Experts whose numbers MXFP4 has, and the folder in which they are so; some gates and ups are beyond the clamp."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: value.to(torch.bfloat16).contiguous() for name, value in model.state_dict().items()
               if name != "lm_head.weight"}  # it is the table
    for name, param in model.named_parameters():
        if not name.endswith(("gate_up_proj", "down_proj")):
            continue
        experts, columns, rows = param.shape
        blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8, generator=generator)
        low = 125 if "gate_up" in name else 121
        scales = torch.randint(low, low + 2, (experts, rows, columns // 32), dtype=torch.uint8, generator=generator)
        with torch.no_grad():
            param.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
        del tensors[name]
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
    Path("mxfp4/model").mkdir(parents=True)
    models.save_file(tensors, "mxfp4/model/model.safetensors", {"format": "pt"})


def write_mxfp4_config():
    config = json.loads(Path("model/config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    Path("mxfp4/model/config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make_model(family):
    """Weights that bf16 holds, in a folder of half the size; everything is computed with them in fp32."""
    config = transformers.AutoConfig.for_model(family.model_type, dtype="float32", **family.config)
    model = transformers.AutoModelForCausalLM.from_config(config)
    models.randomise(model, torch.Generator().manual_seed(family.seed))
    for name, factor in model.named_buffers():
        if name.endswith("layer_scalar"):
            factor.fill_(0.75 if ".0." in name else 1.25)
        if name.endswith("e_score_correction_bias"):  # smaller than distances of scores, so that both choose
            factor.copy_(0.05 * torch.randn(factor.shape, generator=torch.Generator().manual_seed(family.seed)))
    if family.model_type == "gpt_oss":
        make_mxfp4(model, family.seed)
    model.to(torch.bfloat16).save_pretrained("model")
    if family.model_type == "gpt_oss":
        write_mxfp4_config()
    Path("model/generation_config.json").unlink(missing_ok=True)


def load_model(folder="model"):
    return models.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)


def make_rows():
    os.chdir(HERE)
    rows = models.make_rows(models.Family("", seed=300, lengths=(), config={"vocab_size": VOCAB}))
    assert max(len(row["input_ids"]) for row in rows) <= 40
    return rows


def make_reference(family):
    generator = torch.Generator().manual_seed(family.seed + 1000)
    input_ids = torch.randint(0, VOCAB, (sum(LENGTHS),), generator=generator)
    base = load_model().eval()
    tensors = {"seq_lens": torch.tensor(LENGTHS), "input_ids": input_ids,
               "logits": models.all_logits(base, input_ids, LENGTHS)}
    adapted = models.PeftModel.from_pretrained(base, "adapter_final").eval()
    tensors["logits_adapter"] = models.all_logits(adapted, input_ids, LENGTHS)
    models.save_file(tensors, "reference.safetensors", {"format": "pt"})


def make_defaults(model_type):
    more = {"gemma4_text": {"hidden_size_per_layer_input": 0}, "granitemoehybrid": {"num_local_experts": 0},
            "deepseek_v3": {"num_key_value_heads": 32},
            "youtu": {"num_key_value_heads": 32},
            "glm4_moe_lite": {"num_key_value_heads": 32}, "nemotron_h": {"layers_block_type": HALVES}}.get(model_type, {})
    config = transformers.AutoConfig.for_model(model_type, **SIZES, **more).to_dict()
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "eod_token_id", "dtype", "architectures"):
        config.pop(key, None)
    Path("defaults.json").write_text(json.dumps(config, sort_keys=True) + "\n")


def make_mistral_config():
    text = Path("model/config.json").read_text().replace('"ministral"', '"mistral"').replace("Ministral", "Mistral")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(text)
        read, made = (transformers.AutoConfig.from_pretrained(path) for path in (folder, "model"))
    assert type(read) is type(made) and read.layer_types == made.layer_types
    Path("config_mistral.json").write_text(text)


def make_family(name, rows):
    print(name)
    family = FAMILIES[name]
    shutil.rmtree(HERE / name, ignore_errors=True)
    (HERE / name).mkdir()
    os.chdir(HERE / name)
    make_model(family)
    models.make_adapter("adapter_init", models.LORA | {"r": 2, "lora_alpha": 4, "target_modules": list(family.linears)},
                        seed=family.seed + 2, random_b=False)

    def lora():
        return models.PeftModel.from_pretrained(load_model(), "adapter_init", is_trainable=True)

    models.losses = balanced_losses if "router_aux_loss_coef" in family.config else LOSSES
    models.save_adapter(models.reference_curve(lora, rows, RATES.get(name, 1e-2), "train_reference.json"), "adapter_final")
    if BALANCES:
        add_balances("train_reference.json")
    make_reference(family)
    if name == family.model_type:
        make_defaults(name)
    if name == "ministral":
        make_mistral_config()


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    models.load_model = load_model
    rows = make_rows()
    for name in sys.argv[1:] or FAMILIES:
        make_family(name, rows)


if __name__ == "__main__":
    main()
