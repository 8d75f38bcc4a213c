"""Checks of whole runs over a base in FP8 (docs/fp8.md), of which tests/gpu/properties.py makes a list.

Rounding to FP8 makes small differences larger: an activation that another order of additions moves over the border between
two codes is 6 % away, and moves those that follow. So runs on two devices are further apart than their additions, in fp32
too. The bounds of products in FP8 are those of within_rounding(): what rounding to bf16 does to the same run on the CPU, with
the codes that it moves and the training steps behind them. FP8 that is only stored is the same numbers on every device, and
has the bound of fp32.
"""
import json
import random
import signal
import urllib.request

from suite import (GOLDEN, LEVELS, RANKS, ROOT, TOKENIZER, Failure, Run, folder_with_tokenizer, rounding_on_the_cpu, strategies,
                   wait_until, within, within_rounding)

# All sides of this model are multiples of 16, as tensor cores need it, and it is trained, so that rounding moves it little.
DEMO = {"model_name_or_path": ROOT / "examples/demo/model", "dataset_name": ROOT / "examples/demo/data/train.jsonl",
        "max_length": 256, "learning_rate": 0.0005, "base_dtype": "fp8"}
# Adam takes the size of gradients out of the losses, so their norms are compared too.
NUMBERS = {"loss": 0, "grad_norm": 0}
ROWS, BLOCKS = "products in fp8", "activations rounded to fp8 in groups of 128"  # what a run says about its base
FOUR_BITS = {"base_dtype": "auto", "load_in_4bit": "true"}
KINDS = [
    ("products all", ROWS, {}),
    ("products single", ROWS + " with one copy", {"fp8_products": "single"}),
    ("gate and up in e4m3", "gate and up kept in fp8", {"fp8_gate_up": "e4m3"}),
    ("over nf4, single", ROWS + " with one copy", {**FOUR_BITS, "fp8_products": "single"}),
    ("over nf4, forward", "forward products in fp8", {**FOUR_BITS, "fp8_products": "forward"}),
    ("lm_head", ROWS + ", lm_head too", {"model_name_or_path": "own head", "fp8_lm_head": "true"}),
]
FOLDERS = [
    ("channel", ROWS, {}),
    ("tensor", ROWS, {}),
    ("mistral", ROWS, {}),
    ("blocks", BLOCKS, {}),
    ("powers", BLOCKS, {}),
    ("blocks", ROWS, {"fp8_blocks": "rows"}),
]
PROMPTS, NEW_TOKENS = 8, 6
# Of a served base: the share of answers that are exactly those of the CPU in fp32. Activations of two devices differ by 1e-6
# of their size at most, and codes by 6 to 12 %: one in 1e5 that are rounded gets another code. An answer over a folder with
# blocks rounds 1.4e4, so one in seven has such a code, and five of eight hardly ever. None: products in FP8, whose sums have
# other widths.
DECODED = {"base_dtype": "fp8", "fp8_products": "none", "bf16": "false"}
SERVED = [
    ("decoded", "fp8 with a scale a row, computes in float32", 1, DECODED),
    ("decoded, ranks 2", "fp8 with a scale a row, computes in float32", 1, {**DECODED, "ranks": 2}),
    ("products all", ROWS, None, {"base_dtype": "fp8", "bf16": "true"}),
    ("folder blocks", BLOCKS, 0.5, {"bf16": "false"}),
    ("folder powers", BLOCKS, 0.5, {"bf16": "false"}),
]


def must_say(run, words):
    if words not in run.output():
        raise Failure(f"does not say '{words}' ({run.folder.name}): {run.output()[-300:]}")
    return run


def folder(suite, name):
    """Settings of a training over a folder of tests/golden/fp8, whose own three rows have too few tokens: the more there
    are, the less the rounding of single activations moves the mean."""

    def make_rows():
        path, draw = suite.out / "ids.jsonl", random.Random(1)
        rows = [[draw.randrange(64) for _ in range(96)] for _ in range(24)]
        path.write_text("".join(json.dumps({"input_ids": row, "labels": row}) + "\n" for row in rows))
        return path

    return {"model_name_or_path": GOLDEN / "fp8" / name, "dataset_name": suite.once("ids", make_rows)}


def own_head(suite):
    """The demo's model with a head that is not the table of its embeddings: an adapter with a copy of the head, merged."""

    def make():
        adapter, merged = suite.out / "head", suite.out / "own_head"
        data = {name: DEMO[name] for name in ("model_name_or_path", "dataset_name", "max_length")}
        with suite.slots:
            Run(suite, ["train"], {**data, "device": "cpu", "max_steps": 1, "learning_rate": 1e-9,
                                   "lora_modules_to_save": "lm_head"}, result=adapter).must()
            Run(suite, ["merge"], {"model_name_or_path": DEMO["model_name_or_path"], "adapter_name_or_path": adapter,
                                   "output_dir": merged, "save_dtype": "bfloat16"}).must()
        return merged

    return suite.once("own head", make)


def one_curve(suite, ranks, k):
    """Every strategy, level of recompute and offload_params, each with one kind at least."""
    suite.needs_gpus(ranks)
    name, words, more = KINDS[k]
    settings = {**DEMO, **more}
    if settings["model_name_or_path"] == "own head":
        settings["model_name_or_path"] = own_head(suite)
    cpu = rounding_on_the_cpu(suite, name, "llama3", NUMBERS, **settings)
    runs, names = [], []
    for s, strategy in enumerate(strategies(ranks)):
        level, offload = LEVELS[(s + k) % len(LEVELS)], "true" if (s + k) % 3 == 2 else "false"
        if ranks == 1 or s % 2 == k % 2 or k == 0:
            runs.append(suite.split("llama3", ranks, bf16="true", sharding_strategy=strategy, recompute=level,
                                    offload_params=offload, **settings))
            names.append(f"{strategy} {level}{' offloaded' if offload == 'true' else ''}")
    found = suite.together(lambda settings: must_say(suite.train(settings), words), runs)
    return within_rounding(found, names, cpu)


def folder_trains(suite, ranks, name, words, more):
    """Its numbers in fp32, and what it is trained with by default."""
    suite.needs_gpus(ranks)
    settings = {**folder(suite, name), **more}
    cpu = rounding_on_the_cpu(suite, f"{name} {more}", "llama3", NUMBERS, **settings)
    decoded = {**settings, "bf16": "false", "fp8_products": "none"}
    exact = suite.once(("decoded", name, str(more)),
                       lambda: suite.train({**suite.split("llama3", recompute="none", **decoded), "device": "cpu"}).curve())
    memory = {"recompute": "block", "offload_params": "true"} if ranks > 1 else {"recompute": "none"}
    ours, products = suite.together(suite.train, [suite.split("llama3", ranks, **one, **memory) for one in
                                                  (decoded, {**settings, "bf16": "true"})])
    must_say(products, words)
    return f"decoded: {within([ours.curve()], ['loss'], exact, 1e-4)}; {within_rounding([products], ['products'], cpu)}"


def experts(suite, ranks):
    """Experts whose sides tensor cores take, with adapters and biases."""
    suite.needs_gpus(ranks)
    settings = {"base_dtype": "fp8", "quantize_moe_experts": "true",
                "lora_target_parameters": "mlp.experts.gate_up_proj,mlp.experts.down_proj"}
    cpu = rounding_on_the_cpu(suite, "experts", "dense/gpt_oss", NUMBERS, **settings)
    runs = [suite.split("dense/gpt_oss", ranks, bf16="true", recompute=level, **settings) for level in ("none", "block")]
    return within_rounding(suite.together(suite.train, runs), ["none", "block"], cpu)


def saved(suite):
    """Kinds of runs that resume bit for bit, as SAVED of properties.py."""
    return [("folder with blocks", "llama3", folder(suite, "blocks")),
            ("gate and up in e4m3", "llama3", {**DEMO, "fp8_gate_up": "e4m3"})]


def generates(suite):
    texts = []
    for device in (suite.device, "cpu"):
        run = Run(suite, ["generate"], {"model_name_or_path": DEMO["model_name_or_path"], "device": device, **DECODED,
                                        "prompt": prompts()[0], "max_new_tokens": 40, "ignore_eos": "true",
                                        "json": "true"}).must()
        texts.append(json.loads([line for line in run.output().splitlines() if line.startswith("{")][0])["completion"])
    if texts[0] != texts[1] or not texts[0]:
        raise Failure(f"here and on the CPU: {texts[0]!r} and {texts[1]!r}")
    return f"{len(texts[0])} characters as on the CPU"


def prompts():
    with open(ROOT / "examples/demo/data/test.jsonl") as stream:
        return [json.loads(next(stream))["prompt"] for _ in range(PROMPTS)]


def answers(suite, settings, asked, words):
    """The answers of a server to a request for log p, each as a list of (text of the token, {text: log p})."""
    with suite.slots:
        run = Run(suite, ["serve"], {"threads": 1, "port": 0, "ranks": 1, **settings})
        try:
            if not wait_until(run, lambda: "/v1\n" in run.output()):
                raise Failure(f"ended by itself ({run.folder.name}): {run.output()[-300:]}")
            address = run.output().split(" at ")[-1].split()[0]
            body = json.dumps({"prompt": asked, "max_tokens": NEW_TOKENS, "logprobs": 5}).encode()
            request = urllib.request.Request(f"{address}/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as reply:
                choices = json.load(reply)["choices"]
            run.process.send_signal(signal.SIGTERM)
            must_say(run.must(), words)
        finally:
            run.end()
    found = [choice["logprobs"] for choice in sorted(choices, key=lambda choice: choice["index"])]
    return [list(zip(each["tokens"], each["top_logprobs"])) for each in found]


def distances(ours, other):
    """Distances of log p behind the same text, in two answers to one prompt. Parts of characters have the same text, and are
    left out."""
    found = []
    for (token, top), (other_token, other_top) in zip(ours, other):
        found += [abs(top[text] - other_top[text]) for text in top.keys() & other_top.keys() - {"\ufffd"}]
        if token != other_token:
            break
    return found


def mean_distance(ours, other):
    found = sum((distances(*pair) for pair in zip(ours, other)), [])
    return sum(found) / len(found)


def same_answer(ours, other):
    return [token for token, _ in ours] == [token for token, _ in other] and max(distances(ours, other)) <= 1e-4


def serves(suite, kind, words, share, more):
    """Log p as on the CPU in fp32; with products in FP8 their mean distance is within twice that which rounding to bf16 makes
    there, as in within_rounding()."""
    suite.needs_gpus(more.get("ranks", 1))
    model, asked = DEMO["model_name_or_path"], prompts()
    if kind.startswith("folder"):
        draw = random.Random(2)
        model = folder_with_tokenizer(suite, GOLDEN / "fp8" / kind.split()[1], TOKENIZER)
        asked = [[draw.randrange(3, 64) for _ in range(24)] for _ in range(PROMPTS)]
    places = [{"device": suite.device}, {"device": "cpu", "bf16": "false"}, {"device": "cpu", "bf16": "true"}]
    ours, exact, *rounded = suite.together(
        lambda place: answers(suite, {"model_name_or_path": model, **more, **place}, asked, words), places[:2 if share else 3])
    if [len(answer) for answer in ours] != [NEW_TOKENS] * PROMPTS:
        raise Failure(f"answers of {[len(answer) for answer in ours]} tokens")
    distance = mean_distance(ours, exact)
    if share:
        same = sum(map(same_answer, ours, exact))
        text = f"{same} of {PROMPTS} answers as on the CPU, mean distance of log p {distance:.2e}"
        holds = same >= share * PROMPTS
    else:
        bound = 2 * mean_distance(rounded[0], exact)
        text, holds = f"mean distance of log p {distance:.2e}, bound {bound:.2e}", distance <= bound
    if not holds:
        raise Failure(text)
    return text


def add_checks(suite):
    for ranks in RANKS:
        for k, kind in enumerate(KINDS):
            suite.check(f"one curve, fp8 {kind[0]}, ranks {ranks}", one_curve, ranks, k)
        suite.check(f"one curve, experts in fp8, ranks {ranks}", experts, ranks)
        for name, words, more in FOLDERS:
            suite.check(f"one curve, fp8 folder {' '.join([name, *more.values()])}, ranks {ranks}", folder_trains, ranks, name,
                        words, more)
    suite.check("generate over fp8", generates, when=0)
    for kind, words, share, more in SERVED:
        suite.check(f"serve log probabilities over fp8, {kind}", serves, kind, words, share, more, when=0)
