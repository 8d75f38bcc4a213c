"""Checks of a server's adapters that come and go (docs/chat.md), of which tests/gpu/properties.py makes a list."""
import concurrent.futures
import json
import signal
import urllib.request

from suite import GOLDEN, TOKENIZER, Failure, Run, folder_with_tokenizer, wait_until

NEW_TOKENS, PROMPTS = 6, 6
ADAPTERS = ["adapter_random", "adapter_final"]


def post(address, path, body):
    request = urllib.request.Request(f"{address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        text = reply.read()
    return json.loads(text) if text.startswith(b"{") else text


def answer(address, model, prompt):
    body = {"model": model, "prompt": prompt, "max_tokens": NEW_TOKENS, "logprobs": 1, "return_token_ids": True}
    choice = post(address, "/completions", body)["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def asked():
    return [[(7 * i + 3 * k) % 61 + 3 for i in range(9 + k)] for k in range(PROMPTS)]


def all_answers(suite, place):
    """Of the base and two adapters, mixed in one pass; of one when the other is gone; of both when it is back."""
    model = folder_with_tokenizer(suite, GOLDEN / "llama3/model", TOKENIZER)
    with suite.slots:
        run = Run(suite, ["serve"], {"model_name_or_path": model, "threads": 1, "port": 0, "ranks": 1, "bf16": "false",
                                     "max_loras": 2, "max_lora_rank": 16, "served_model_name": "base", **place})
        try:
            if not wait_until(run, lambda: "/v1\n" in run.output()):
                raise Failure(f"ended by itself ({run.folder.name}): {run.output()[-300:]}")
            address, found = run.output().split(" at ")[-1].split()[0], []
            for name in ADAPTERS:
                post(address, "/load_lora_adapter", {"lora_name": name, "lora_path": str(GOLDEN / "llama3" / name)})
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                def mixed(names):
                    jobs = [(name, prompt) for prompt in asked() for name in names]
                    return list(pool.map(lambda job: answer(address, *job), jobs))
                found += mixed(["base", *ADAPTERS])
                post(address, "/unload_lora_adapter", {"lora_name": ADAPTERS[0]})
                found += mixed(["base", ADAPTERS[1]])
                post(address, "/load_lora_adapter", {"lora_name": ADAPTERS[0], "lora_path": str(GOLDEN / "llama3" / ADAPTERS[0])})
                found += mixed(["base", *ADAPTERS])
            run.process.send_signal(signal.SIGTERM)
            run.must()
        finally:
            run.end()
    return found


def adapters_come_and_go(suite):
    ours, cpu = suite.together(lambda place: all_answers(suite, place), [{"device": suite.device}, {"device": "cpu"}])
    if len({str(ids) for ids, _ in ours[:3 * PROMPTS]}) <= PROMPTS:
        raise Failure("the adapters answer as the base does, which proves nothing")
    if [ids for ids, _ in ours] != [ids for ids, _ in cpu]:
        raise Failure("other tokens than on the CPU")
    distance = max(abs(a - b) for (_, one), (_, other) in zip(ours, cpu) for a, b in zip(one, other))
    if distance > 1e-4:
        raise Failure(f"log p differ by {distance:.1e}")
    return f"{len(ours)} answers, log p within {distance:.1e}"


def add_checks(suite):
    suite.check("serve adapters that come and go", adapters_come_and_go, when=0)
