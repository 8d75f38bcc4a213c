#!/bin/bash
# The output of --print_config is a configuration: it resolves to the same values; flags override files, and files
# override accelerate's.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
unset LOCAL_RANK SLURM_STEP_ID OMPI_COMM_WORLD_SIZE PMI_SIZE PMIX_RANK
cat >sft.yaml <<'END'
# in the spellings of real files
model_name_or_path: models/llama
dataset_name: "data/train set.jsonl"
max_seq_length: 2048
learning_rate: 2e-4
lora_target_modules:
  - q_proj
  - v_proj
rank_pattern: {q_proj: 32}
evaluation_strategy: no
warmup_ratio: .03
dataloader_num_workers: 4
report_to: [tensorboard]
prompt_template: "Frage: {question}\nAntwort: "
END
cat >fsdp.yaml <<'END'
distributed_type: FSDP
num_processes: 2
mixed_precision: bf16
fsdp_config:
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_use_orig_params: true
END
"$trimtab" train --config_file fsdp.yaml --lr 3e-4 --config sft.yaml --print_config >first.yaml 2>said || fail "exit $?: $(cat said)"
value() {
    grep -qE "^$1: $2( +#|\$)" first.yaml || fail "$1 is not $2: $(grep "^$1:" first.yaml)"
}
value learning_rate 0.0003
value max_length 2048
value lora_target_modules '\["q_proj", "v_proj"\]'
value rank_pattern '\{"q_proj": 32\}'
value eval_strategy '"no"'
value warmup_ratio 0.03
value report_to tensorboard
value sharding_strategy SHARD_GRAD_OP
value ranks 2
value lora_r 16
grep -q '^learning_rate: .*# --lr$' first.yaml || fail "the origin of a flag is not said"
grep -q '^max_length: .*# sft.yaml line 4$' first.yaml || fail "the origin of a key is not said"
grep -q '^sharding_strategy: .*# fsdp.yaml line 5$' first.yaml || fail "the origin in accelerate's file is not said"
grep -q 'dataloader_num_workers is accepted without effect' said || fail "an unneeded key is not said"
grep -q 'fsdp_use_orig_params is accepted without effect' said || fail "an unneeded key of accelerate is not said"
"$trimtab" train --config first.yaml --print_config >second.yaml 2>said || fail "reading it again: $(cat said)"
diff <(sed 's/  # .*//' first.yaml) <(sed 's/  # .*//' second.yaml) || fail "it does not read back the same"
"$trimtab" train --config second.yaml --dry_run >third.yaml 2>said || fail "reading it thrice: $(cat said)"
cmp -s <(sed 's/second.yaml/first.yaml/' third.yaml) second.yaml || fail "it is not stable"
# Knobs of computing come from the environment too, and are part of the configuration.
run=(train --model_name_or_path m --dataset_name d --print_config)
TRIMTAB_CPU_ISA=portable TRIMTAB_DETERMINISTIC=1 "$trimtab" "${run[@]}" >knobs.yaml 2>said || fail "knobs: $(cat said)"
grep -q '^cpu_isa: portable  # TRIMTAB_CPU_ISA$' knobs.yaml || fail "TRIMTAB_CPU_ISA is not in the configuration"
grep -q '^deterministic: true  # TRIMTAB_DETERMINISTIC$' knobs.yaml || fail "TRIMTAB_DETERMINISTIC is not in the configuration"
TRIMTAB_CPU_ISA=portable "$trimtab" "${run[@]}" --cpu_isa auto | grep -q '^cpu_isa: auto  # --cpu_isa$' || fail "a flag wins"
TRIMTAB_CPU_ISA=quantum expect 2 "TRIMTAB_CPU_ISA: 'cpu_isa' takes one of: auto portable" "${run[@]}"
TRIMTAB_JOB_SECRET=very-secret-words "$trimtab" "${run[@]}" | grep -q very-secret && fail "a secret is printed"
finish
