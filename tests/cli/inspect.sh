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
mkdir pickled pickled_adapter
cp "$golden/qwen3/model/config.json" pickled/
echo x >pickled/pytorch_model.bin
has "supported               no: 'pickled' has its weights in 'pytorch_model.bin': pickle files can run code" pickled
has "hint: convert them once, in Python: AutoModelForCausalLM" pickled
cp "$golden/llama2/adapter_init/adapter_config.json" pickled_adapter/
echo x >pickled_adapter/adapter_model.bin
has "the adapter 'pickled_adapter' has its weights in 'adapter_model.bin': pickle files can run code" pickled_adapter
has "convert it once, in Python: PeftModel" pickled_adapter
finish
