"""Makes items.jsonl and scores.jsonl: items of all kinds, and what lm-evaluation-harness's `hf` backend says of them with the
model of tests/golden/llama3 and the tokenizer of tests/support/tiny_tokenizer, in fp32.

    python make_task_items.py REPOSITORY

The answers of some items are what the model generates, so that not all matches fail."""
import json
import os
import random
import re
import shutil
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
import lm_eval  # noqa: E402
import torch  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

root = sys.argv[1]
here = os.path.join(root, "tests/golden/task_items")
random.seed(7)
ITEMS = 12
LETTERS = "abcdefgh "


def word(least=2, most=9):
    return "".join(random.choice(LETTERS) for _ in range(random.randint(least, most))).strip() or "a"


def choices(i):
    texts = [word() for _ in range(2 + i % 3)]
    texts[0] += "é" * (i % 2)
    texts = list(dict.fromkeys(texts))
    while len(texts) < 2:
        texts.append(texts[0] + "x")
    return {"context": word(10, 60) + ("  " if i % 4 == 1 else ""), "choices": texts, "answer": random.randrange(len(texts))}


def ends(i):
    """Of every other item the model finds the end: contexts are tried until it would say a letter."""
    while True:
        context = word(5, 40)
        ids = torch.tensor([model.tokenizer(context).input_ids])
        said = model.tokenizer.decode(model.model(ids).logits[0, -1].argmax())
        if i % 2 == 1:
            return {"context": context, "target": word(1, 2), "delimiter": ""}
        if re.fullmatch("[!-~]", said):
            return {"context": context, "target": said, "delimiter": ""}


def texts(i):
    return {"context": word(5, 40), "target": "", "until": ["\n", "zz"], "max_tokens": 6}


def found(i):
    return {"context": word(5, 40), "target": "", "until": ["\n"], "max_tokens": 10, "regex": "[^x](.)(.)?"}


METRICS = {"choices": "output_type: multiple_choice\ndoc_to_choice: '{{choices}}'\ndoc_to_target: answer\nmetric_list:\n  - metric: acc\n  - metric: acc_norm\n",
           "ends": "output_type: loglikelihood\ndoc_to_target: '{{target}}'\ntarget_delimiter: ''\nmetric_list:\n  - metric: acc\n  - metric: perplexity\n"}
SAID = ("output_type: generate_until\ndoc_to_target: '{{target}}'\ngeneration_kwargs:\n  until: %s\n  max_gen_toks: %d\n  do_sample: false\n"
        "metric_list:\n  - metric: exact_match\n    aggregation: mean\n    higher_is_better: true\n")
FILTER = "filter_list:\n  - name: first\n    filter:\n      - function: regex\n        regex_pattern: '%s'\n      - function: take_first\n"


def evaluate(model, items, folder):
    for name, rows in items.items():
        path = os.path.join(folder, name + ".jsonl")
        with open(path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        form = METRICS.get(name) or SAID % (json.dumps(rows[0]["until"]), rows[0]["max_tokens"])
        form += FILTER % rows[0]["regex"] if "regex" in rows[0] else ""
        with open(os.path.join(folder, name + ".yaml"), "w") as file:
            file.write(f"task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {path}\ntest_split: test\n"
                       f"doc_to_text: '{{{{context}}}}'\n{form}")
    return lm_eval.simple_evaluate(model=model, tasks=list(items), task_manager=TaskManager(include_path=folder), log_samples=True,
                                   bootstrap_iters=0, batch_size=1)


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model")
    shutil.copytree(os.path.join(root, "tests/golden/llama3/model"), path)
    for name in os.listdir(os.path.join(root, "tests/support/tiny_tokenizer")):
        shutil.copy(os.path.join(root, "tests/support/tiny_tokenizer", name), path)
    model = HFLM(pretrained=path, dtype="float32", device="cpu", batch_size=1)
    items = {make.__name__: [{"task": make.__name__, **make(i)} for i in range(ITEMS)] for make in (choices, ends, texts, found)}
    for turn in range(2):
        result = evaluate(model, items, folder)
        for name in ("texts", "found") if turn == 0 else ():
            for sample in result["samples"][name]:
                said = sample["filtered_resps"][0]
                if sample["doc_id"] % 2 == 0 and said != "[invalid]":
                    items[name][sample["doc_id"]]["target"] = said
with open(os.path.join(here, "items.jsonl"), "w") as file:
    for rows in items.values():
        file.writelines(json.dumps(row) + "\n" for row in rows)
with open(os.path.join(here, "scores.jsonl"), "w") as file:
    for name, rows in items.items():
        samples = {sample["doc_id"]: sample for sample in result["samples"][name]}
        for i in range(len(rows)):
            line = {"task": name, **{metric: samples[i][metric] for metric in samples[i]["metrics"] if metric != "perplexity"}}
            if name in METRICS:
                line["log_likelihoods"] = [float(said[0][0]) if isinstance(said[0], tuple | list) else float(said[0]) for said in samples[i]["resps"]]
                line["greedy"] = [str(said[0][1]) == "True" for said in samples[i]["resps"]]
            file.write(json.dumps(line) + "\n")
    totals = {name: {key.split(",")[0]: value for key, value in result["results"][name].items() if isinstance(value, float) and value == value}
              for name in items}
    file.write(json.dumps({"totals": totals}) + "\n")
