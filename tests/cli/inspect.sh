#!/bin/bash
# inspect describes the reference models, as text and as JSON.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
golden=$root/tests/golden
has() {
    local text=$1
    shift
    "$trimtab" inspect "$@" 2>&1 | grep -qF -- "$text" || {
        echo "FAILED: trimtab inspect $*: no '$text' in:"
        "$trimtab" inspect "$@" 2>&1 | head -20
        failures=$((failures + 1))
    }
}
has "model folder" "$golden/llama2/model"
has "model_type              qwen3" "$golden/qwen3/model"
has "supported               yes" "$golden/qwen2/model"
has "26 tensors, 83648 parameters, 327 KiB" "$golden/qwen2/model"
has "model.embed_tokens.weight [290, 64]" "$golden/qwen2/model" --tensors
has "model folder" "$golden/llama_sharded/model"
has "PEFT adapter" "$golden/llama2/adapter_init"
has "lora_alpha" "$golden/llama2/adapter_init"
has "safetensors file" "$golden/llama2/adapter_init/adapter_model.safetensors"
has '"kind": "model folder"' "$golden/mistral/model" --json
has '"parameters": 83648' --json "$golden/qwen2/model"
has '"shape": [' --json --tensors "$golden/qwen2/model"
has "model folder" --model_name_or_path "$golden/llama2/model"
has "PEFT adapter" --adapter_name_or_path "$golden/llama2/adapter_init"
has "configuration of a model" "$golden/qwen3/model/config.json"
has "model_type              qwen3" "$golden/qwen3/model/config.json"
has "supported               yes" "$golden/qwen3/model/config.json"
has "configuration of a PEFT adapter" "$golden/llama2/adapter_init/adapter_config.json"
has "lora_alpha" "$golden/llama2/adapter_init/adapter_config.json"
# Files of torch.save
has "weights of torch.save" "$golden/pth/checkpoint.pth"
has "channels_last [4, 3, 2, 5]" "$golden/pth/stream.pth" --tensors
has '"kind": "weights of torch.save"' --json "$golden/pth/archive.pth"
has "holds an object of the class 'torch.nn.modules.linear.Linear', not tensors by name" "$golden/pth/whole.pth"
has "hint: nothing of a file is executed: save model.state_dict() instead" "$golden/pth/whole.pth"
has "1 tensors, 2 parameters" "$golden/pth/attack.pth"
[ -e executed ] && { echo "FAILED: a pickle was executed"; failures=$((failures + 1)); }
cp -r "$golden/pth/sharded" bins && chmod -R u+w bins && cp "$golden/llama_sharded/model/config.json" bins/
has "supported               yes" bins
cp -r "$golden/pth/adapter" . && cp "$golden/qwen2/adapter_random/adapter_config.json" adapter/
has "PEFT adapter" adapter
mkdir damaged && cp "$golden/qwen3/model/config.json" damaged/ && echo x >damaged/pytorch_model.bin
has "'damaged/pytorch_model.bin' is not a file of torch.save" damaged
# The nearest part that is missing, by name; served ones, and by which part, in JSON too.
has '"supported": true' --json "$golden/qwen2/model"
has '"text_part": "model.language_model"' --json "$golden/vision/qwen3_vl/model"
echo '{"model_type": "lara_mini", "num_experts": 128, "linear_num_value_heads": 4}' >experts.json
has "models of model_type 'lara_mini' are not supported: needs routed experts (num_experts), a gated delta rule" experts.json
has "docs/models.md lists all that are supported" experts.json
has '"supported": false' --json experts.json
has '"reason": "experts.json: models of model_type' --json experts.json
# Parameters that a token reads: 2 of 6 experts in both layers, whose matrices have 1152 numbers each.
has "active parameters       " "$golden/dense/qwen3_moe/model"
active=$("$trimtab" inspect "$golden/dense/qwen3_moe/model" | sed -n 's/.*active parameters *\([0-9]*\) of \([0-9]*\), for each token/\1 \2/p')
read -r read all <<<"$active"
[ $((all - read)) -eq $((2 * 4 * 1152)) ] || fail "active parameters: $active"
has "$all parameters" "$golden/dense/qwen3_moe/model"
has "\"active_parameters\": $read" --json "$golden/dense/qwen3_moe/model"
has "supported               the text part" "$golden/vision/mistral4/model"
has "active parameters       " "$golden/vision/mistral4/model"
"$trimtab" inspect "$golden/qwen3/model" | grep -q active && fail "a model without experts has active parameters"
# Kimi K2 is the class of DeepSeek V3 under a type of its own.
cat >kimi.json <<'END'
{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "attention_bias": false, "aux_loss_alpha": 0.001, "ep_size": 1,
 "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
 "max_position_embeddings": 131072, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 384,
 "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 64, "num_experts_per_tok": 8, "num_hidden_layers": 61,
 "num_key_value_heads": 64, "num_nextn_predict_layers": 0, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
 "rms_norm_eps": 1e-06, "rope_theta": 50000.0, "routed_scaling_factor": 2.827, "scoring_func": "sigmoid", "seq_aux": true,
 "rope_scaling": {"beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
  "original_max_position_embeddings": 4096, "type": "yarn"}, "tie_word_embeddings": false, "topk_group": 1,
 "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 163840}
END
has "supported               yes" kimi.json
has "active parameters       32" kimi.json
has "1026408232448, for each token" kimi.json
echo '{"model_type": "helium"}' >helium.json
has "'helium' are not supported: needs a family of its own; its keys name no part that is missing" helium.json
echo '{"model_type": "llava", "text_config": {"model_type": "llama"}}' >llava.json
has "'llava' are not supported: its text model 'llama' is, but a folder of this class is not" llava.json
sed 's/"model_type": "gemma3_text"/"model_type": "phimoe", "num_local_experts": 8/' \
    "$golden/vision/gemma3/model/config.json" >inner.json
has "'phimoe' are not supported as a text part: needs routed experts (num_local_experts)" inner.json
# A head with scores is recognised by the class, or by its weights where config.json names none.
has "'LlamaForSequenceClassification' gives each sequence scores of 3 labels" "$golden/score/labels/model"
has 'id2label                {"0": "bad"' "$golden/score/labels/model"
has "docs/models.md" "$golden/score/labels/model"
mkdir unnamed
cp "$golden/score/plain/model/model.safetensors" unnamed
tr -d '\n' <"$golden/score/plain/model/config.json" | sed 's/"architectures": [[][^]]*],//' >unnamed/config.json
has "supported               no: unnamed: 'score.weight' gives each sequence scores of 2 labels" unnamed
has "supported               yes" unnamed/config.json
echo '{"input_ids": [1, 2, 3, 4]}' >ids.jsonl
refused="'score.weight' gives each sequence scores of 2 labels"
expect 2 "$refused" eval --model_name_or_path unnamed --dataset_name ids.jsonl
expect 2 "$refused" quantize --model_name_or_path unnamed --output_dir quantized
expect 2 "$refused" export gguf --model_name_or_path unnamed --output_file model.gguf
finish
