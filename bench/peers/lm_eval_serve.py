"""lm-evaluation-harness over `trimtab serve`, compared with its own `hf` backend in fp32, item by item.

    lm_eval_serve.py TRIMTAB MODEL FOLDER [--batch 8] [--texts 200] [--chat]

FOLDER has the tasks of lm_eval_tasks.py. The harness is used as it is installed: `local-completions` sends ids to
/v1/completions, with --chat `local-chat-completions` conversations of the tasks that generate. One JSON line a task; the
exit code is 1 where log p of a token differs by more than 1e-4, a sum by more than 1e-3, or an argmax, a text's score or
an accuracy differs at all."""
import argparse
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

parser = argparse.ArgumentParser()
for name in "trimtab", "model", "folder":
    parser.add_argument(name)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--texts", type=int, default=200, help="whose tokens are compared one by one")
parser.add_argument("--chat", action="store_true")
options = parser.parse_args()
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import lm_eval  # noqa: E402
import torch  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402


def serve():
    log = tempfile.NamedTemporaryFile("w+", suffix=".log")
    process = subprocess.Popen([options.trimtab, "serve", "--model_name_or_path", options.model, "--bf16", "false", "--port", "0",
                                "--context_length", "2048", "--served_model_name", "served"], stderr=log)
    while not (found := re.search(r"http://127.0.0.1:(\d+)/v1", open(log.name).read())):
        if process.poll() is not None:
            sys.exit("the server does not start: " + open(log.name).read())
        time.sleep(0.1)
    return process, int(found[1])


def evaluate(model, names, **arguments):
    began = time.monotonic()
    found = lm_eval.simple_evaluate(model=model, tasks=names, task_manager=TaskManager(include_path=options.folder), log_samples=True,
                                    bootstrap_iters=0, apply_chat_template=options.chat, batch_size=options.batch, **arguments)
    return found, time.monotonic() - began


def compare(name, served, local):
    """Of one task: greatest differences of sums and of metrics, and items whose argmax, text or score differs."""
    line = {"task": name, "items": len(local["samples"][name]), "sum": 0.0, "argmax": 0, "texts": 0, "scores": 0}
    for one, other in zip(*(sorted(found["samples"][name], key=lambda sample: sample["doc_id"]) for found in (served, local))):
        for said, wanted in zip(one["resps"], other["resps"]):
            if isinstance(wanted[0], str):
                line["texts"] += said[0] != wanted[0]
                continue
            line["sum"] = max(line["sum"], abs(float(said[0][0]) - float(wanted[0][0])))
            line["argmax"] += str(said[0][1]) != str(wanted[0][1])
        line["scores"] += any(one[metric] != other[metric] for metric in one["metrics"] if metric != "perplexity")
    results = served["results"][name], local["results"][name]
    line["metrics"] = {key: value for key, value in results[0].items() if isinstance(value, float)}
    line["accuracy"] = max(abs(results[0][key] - results[1][key]) for key in line["metrics"] if "perplexity" not in key)
    return line, line["sum"] < 1e-3 and line["argmax"] == line["texts"] == line["scores"] == 0 and line["accuracy"] == 0


def compare_tokens(port, model, names):
    """Log p of every token of the contexts with their targets, by the server and by transformers."""
    texts = []
    for name in names:
        for row in map(json.loads, open(os.path.join(options.folder, name + ".jsonl"))):
            texts += [row["context"] + " " + end for end in row.get("choices", [row.get("target")])]
    texts = texts[::max(1, len(texts) // options.texts)]
    worst, argmax, tokens = 0.0, 0, 0
    for begin in range(0, len(texts), 32):
        ids = [model.tokenizer(text, add_special_tokens=False).input_ids for text in texts[begin:begin + 32]]
        body = {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 0, "return_token_ids": True}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        for prompt, choice in zip(ids, json.load(urllib.request.urlopen(request))["choices"]):
            with torch.no_grad():
                wanted = torch.log_softmax(model.model(torch.tensor([prompt])).logits[0].double(), -1)
            said = choice["logprobs"]
            for i, token in enumerate(prompt[1:]):
                row, top = wanted[i], said["top_logprobs"][i + 1]
                worst = max(worst, abs(said["token_logprobs"][i + 1] - row[token].item()))
                greedy = said["token_logprobs"][i + 1] == max(top.values())
                argmax += greedy != (row.argmax().item() == token)
                tokens += 1
    return {"task": "tokens", "tokens": tokens, "log p": worst, "argmax": argmax}, worst < 1e-4 and argmax == 0


names = sorted(os.path.basename(path)[:-5] for path in glob.glob(os.path.join(options.folder, "*.yaml")))
likely = [name for name in names if "output_type: generate_until" not in open(os.path.join(options.folder, name + ".yaml")).read()]
if options.chat:
    names = [name for name in names if name not in likely]
process, port = serve()
try:
    local_model = HFLM(pretrained=options.model, dtype="float32", device="cpu", batch_size=options.batch)
    well = True
    if not options.chat:
        line, well = compare_tokens(port, local_model, likely)
        print(json.dumps(line), flush=True)
    path = "chat/completions" if options.chat else "completions"
    arguments = {"model": "served", "base_url": f"http://127.0.0.1:{port}/v1/{path}", "max_retries": 1}
    if not options.chat:
        arguments.update(tokenizer_backend="huggingface", tokenizer=options.model)
    served, seconds = evaluate("local-chat-completions" if options.chat else "local-completions", names, model_args=arguments)
    local, local_seconds = evaluate(local_model, names)
finally:
    process.terminate()
    process.wait()
for name in names:
    line, same = compare(name, served, local)
    well = well and same
    print(json.dumps(line))
print(json.dumps({"seconds": round(seconds, 1), "seconds of hf": round(local_seconds, 1), "lm_eval": lm_eval.__version__}))
sys.exit(0 if well else 1)
