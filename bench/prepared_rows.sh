#!/usr/bin/env bash
# 1 GB of conversations: what it takes to tokenize them once (dataset_prepared_path), and how soon a run from there has
# made its first step. Prints a JSON line for each.
#
#     bench/prepared_rows.sh BUILD FOLDER [BYTES]      FOLDER: tokenizer and chat template
#
# The model is small and random, so that its weights and its step take no time. "seconds" is that of the whole command,
# from its start to its end; first_step_seconds ends with the first log row. "anonymous_MB" is the most memory that is
# not a mapped file. The last run may have less memory (RLIMIT_DATA) than the rows take.
set -euo pipefail
build=$(cd "$1" && pwd)
tokenizer=$(cd "$2" && pwd)
bytes=${3:-1000000000}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/prepared.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/model"
for file in tokenizer.json tokenizer_config.json chat_template.jinja generation_config.json; do
    [ -e "$tokenizer/$file" ] && cp "$tokenizer/$file" "$work/model/"
done
cat >"$work/model/config.json" <<'END'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 49152,
 "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
 "hidden_act": "silu", "torch_dtype": "float32"}
END
python3 "$here/make_conversations.py" "$work/rows.jsonl" "$bytes" >&2
python3 - "$build/trimtab" "$work" <<'END'
import json, os, resource, subprocess, sys, threading, time

trimtab, work = sys.argv[1:3]
words = [trimtab, "train", "--model_name_or_path", work + "/model", "--init", "random", "--dataset_name", work + "/rows.jsonl",
         "--assistant_only_loss", "--max_length", "8192", "--max_steps", "1", "--logging_steps", "1", "--save_strategy",
         "no", "--per_device_train_batch_size", "1", "--report_to", "none", "--overwrite_output_dir", "--output_dir",
         work + "/out", "--dataset_prepared_path", work + "/prepared"]


def run(name, limit):
    def limited():
        if limit:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    start, first, most = time.perf_counter(), None, 0
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=limited)

    def watch():
        nonlocal most
        while process.poll() is None:
            try:
                with open(f"/proc/{process.pid}/status") as status:
                    for line in status:
                        if line.startswith("RssAnon:"):
                            most = max(most, int(line.split()[1]))
            except OSError:
                pass
            time.sleep(0.01)
    watcher = threading.Thread(target=watch)
    watcher.start()
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("step 1/1") and first is None:
            first = time.perf_counter() - start
    code = process.wait()
    seconds = time.perf_counter() - start
    watcher.join()
    if code != 0:
        sys.exit("".join(lines))
    size = sum(os.path.getsize(work + "/prepared/" + f) for f in os.listdir(work + "/prepared"))
    print(json.dumps({"run": name, "from_prepared_rows": any("tokenized rows from" in line for line in lines),
                      "first_step_seconds": round(first, 3), "seconds": round(seconds, 3),
                      "anonymous_MB": round(most / 1024), "limit_MB": limit // 1000000 if limit else None,
                      "prepared_MB": size // 1000000}), flush=True)


run("tokenizes", None)
for _ in range(5):
    run("first step", None)
run("first step, limited", 500000000)
END
