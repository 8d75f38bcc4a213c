"""Adapters that are loaded and unloaded while `trimtab serve` runs, with vLLM's members, answers and errors: serve_adapters.py
TRIMTAB MODEL -- flags. The folders small, wide, large, dora, tokens, saved, renamed, infinite and huge are adapters of the
model, of which only the first two have a place; alone-NAME.json is what each of these, and the base as None, says alone to
PROMPTS. Prints what fails; exit code 1."""
import json
import os
import sys
import threading

from served import JSON, TEXT, Server, check, failures, model

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
PROMPTS = ["a b c", "12 + 1 =", "xyz"]
alone = {name: json.load(open(f"alone-{name}.json")) for name in ("small", "wide", "None")}
BASE = os.path.basename(model)
served = ("--model_name_or_path", model, "--bf16", "false")
flags = ("--max_loras", "2", "--max_lora_rank", "12", "--context_length", "200", *sys.argv[4:])


def load(server, name, path, headers=JSON):
    return server.ask(LOAD, {"lora_name": name, "lora_path": path}, headers=headers)


def unload(server, name):
    return server.ask(UNLOAD, {"lora_name": name})


def names_of(server):
    cards = json.loads(server.ask("/v1/models")[1])["data"]
    check(all(card.get("parent") == (None if card["id"] == BASE else BASE) for card in cards), "parents", cards)
    return [card["id"] for card in cards]


def says(server, name, wanted):
    for prompt, answer in zip(PROMPTS, alone[wanted]):
        status, text = server.ask(TEXT, {"model": name, "prompt": prompt, "max_tokens": 10})
        check(status == 200 and json.loads(text)["choices"][0]["text"] == answer, name, "says", text, "and not", answer)


def refused(answer, code, kind, words):
    status, text = answer
    error = json.loads(text)["error"] if status != 200 else {}
    check(status == code and error["type"] == kind and words in error["message"], "expected", code, kind, words, "and got", status, text)


def test_load():
    server = Server(*flags, served=served)
    check(names_of(server) == [BASE], "before", names_of(server))
    says(server, BASE, "None")
    status, text = load(server, "a", "small")
    check(status == 200 and text == b"Success: LoRA adapter 'a' added successfully.", status, text)
    check(names_of(server) == [BASE, "a"], "one", names_of(server))
    check(json.loads(server.ask("/v1/models/a")[1])["id"] == "a", "/v1/models/a")
    says(server, "a", "small")
    check(load(server, "b", "./wide")[0] == 200, "the second")
    threads = [threading.Thread(target=says, args=(server, *names)) for names in (("a", "small"), ("b", "wide"), (BASE, "None")) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused(load(server, "c", "small"), 400, "BadRequestError", "there is no place for 'c'")
    refused(load(server, "b", "small"), 400, "InvalidUserInput", "'b' has already been loaded")
    refused(load(server, BASE, "small"), 400, "InvalidUserInput", "has already been loaded")
    refused(unload(server, "c"), 404, "NotFoundError", "'c' cannot be found")
    refused(server.ask(LOAD, {"lora_name": "c"}), 400, "InvalidUserInput", "must be provided")
    refused(server.ask(LOAD, {"lora_path": "small"}), 400, "InvalidUserInput", "must be provided")
    refused(server.ask(UNLOAD, {"lora_name": ""}), 400, "InvalidUserInput", "needs to be provided")
    check(server.ask(LOAD, {"lora_name": "c", "lora_path": 5})[0] == 400, "a path that is a number")
    for member in "load_inplace", "is_3d_lora_weight":
        status, text = server.ask(LOAD, {"lora_name": "c", "lora_path": "small", member: True})
        check(status == 400 and json.loads(text)["error"]["param"] == member, member, status, text)
    status, text = server.ask(UNLOAD, {"lora_name": "b"})
    check(status == 200 and text == b"Success: LoRA adapter 'b' removed successfully.", status, text)
    check(names_of(server) == [BASE, "a"], "after", names_of(server))
    status, text = server.ask(TEXT, {"model": "b", "prompt": "a", "max_tokens": 1})
    check(status == 404 and json.loads(text)["error"]["code"] == "model_not_found", "an unloaded one", status, text)
    check(load(server, "c", "small")[0] == 200, "in the place of another")
    says(server, "c", "small")
    says(server, "a", "small")
    server.stop()


def test_under_load():
    """A request goes on with its adapter after that has lost its name, and has its place until it ends."""
    server = Server(*flags, served=served)
    check(load(server, "a", "small")[0] == 200 and load(server, "b", "wide")[0] == 200, "both")
    long = {"model": "a", "prompt": PROMPTS[0], "max_tokens": 150, "ignore_eos": True}
    whole = json.loads(server.ask(TEXT, long)[1])["choices"][0]["text"]
    answers = []
    asking = threading.Thread(target=lambda: answers.append(server.ask(TEXT, {**long, "stream": True, "n": 16, "seed": 1})))
    asking.start()
    while b"trimtab_serve_answers_running 0\n" in server.ask("/metrics")[1] and asking.is_alive():
        pass
    running = asking.is_alive()
    check(unload(server, "a")[0] == 200, "unload under load")
    check(server.ask(TEXT, {"model": "a", "prompt": "a", "max_tokens": 1})[0] == 404, "a name that was taken away")
    status, text = load(server, "c", "wide")
    check(status == 200 or json.loads(text)["error"]["type"] == "BadRequestError", "load under load", status, text)
    if status == 200:
        says(server, "c", "wide")
    asking.join()
    check(running, "no request ran, which proves nothing")
    for status, text in answers:
        parts = [json.loads(line[6:]) for line in text.decode().split("\n\n") if line.startswith("data: {")]
        for index in range(16):
            said = "".join(part["choices"][0]["text"] for part in parts if part["choices"] and part["choices"][0]["index"] == index)
            check(said == whole, "another answer after its adapter was unloaded:", said[:80], whole[:80])
    check("c" in names_of(server) or load(server, "c", "wide")[0] == 200, "the place behind the end of its last answer")
    says(server, "c", "wide")
    says(server, "b", "wide")
    server.stop()


def test_strangers():
    """What is no adapter, or has no place here, is refused, and the server goes on."""
    server = Server(*flags, served=served)
    for path in ("nowhere", "/etc", "/etc/passwd", "../../../../etc", model, "https://example.com/adapter", "s3://bucket/adapter",
                 "somebody/adapter", "small/adapter_config.json", "/dev/zero", "x" * 5000):
        status, text = load(server, "a", path)
        refused((status, text), 404, "NotFoundError", "No adapter found")
        check(b"root:" not in text, "the answer shows a file:", text)
    check(load(server, "a", "small\0")[0] == 400, "a path with a 0 byte")
    for path, words in (("large", "rank 13"), ("dora", "use_dora"), ("saved", "modules_to_save"),
                        ("tokens", "trainable_token_indices"), ("renamed", ""), ("infinite", "no finite number"),
                        ("huge", "no finite number"), ("garbage", ""), ("other", "")):
        refused(load(server, "a", path), 400, "BadRequestError", words)
    check(names_of(server) == [BASE], "a refused one is listed", names_of(server))
    check(server.ask(LOAD, {"lora_name": "x" * 300, "lora_path": "small"})[0] == 400, "a long name")
    check(load(server, "a", "small")[0] == 200, "after refusals")
    says(server, "a", "small")
    says(server, BASE, "None")
    server.stop()


def test_keys():
    with open("keys", "w") as file:
        file.write("ann sk-1\n")
    server = Server(*flags, "--api_key_file", "keys", served=served)
    check(load(server, "a", "small")[0] == 401, "without a key")
    check(server.ask(UNLOAD, {"lora_name": "a"})[0] == 401, "without a key")
    check(load(server, "a", "small", {**JSON, "Authorization": "Bearer sk-1"})[0] == 200, "with a key")
    server.stop()


def test_start():
    """Adapters of the start have places like others; without places the addresses do nothing."""
    server = Server(*flags, served=(*served, "--adapter_name_or_path", "small"))
    check(names_of(server) == [BASE, "small"], names_of(server))
    check(load(server, "b", "wide")[0] == 200, "beside one of the start")
    says(server, "small", "small")
    says(server, "b", "wide")
    check(unload(server, "small")[0] == 200 and names_of(server) == [BASE, "b"], names_of(server))
    says(server, "b", "wide")
    check(json.loads(server.ask(TEXT, {"prompt": "a", "max_tokens": 1})[1])["model"] == "b", "without a name the first one answers")
    server.stop()
    server = Server("--context_length", "200", *sys.argv[4:], served=served)
    refused(load(server, "a", "small"), 404, "NotFoundError", "--max_loras")
    refused(unload(server, "a"), 404, "NotFoundError", "--max_loras")
    server.stop()


test_load()
test_under_load()
if "--ranks" not in sys.argv:
    test_strangers()
    test_keys()
    test_start()
sys.exit(1 if failures else 0)
