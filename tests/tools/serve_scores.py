"""What evaluation harnesses ask of `trimtab serve`: echo, log p of prompts, token ids, /tokenize and /detokenize. By
Python's standard library: serve_scores.py TRIMTAB MODEL ADAPTER. Prints what fails; exit code 1."""
import json
import random
import sys

from served import CHAT, TEXT, Server, chat, check, events_of, failures


def ask(server, path, body, wanted=200):
    status, text = server.ask(path, body)
    check(status == wanted, wanted, "expected from", path, str(body)[:200], "got", status, text[:300])
    return json.loads(text)


def choices_of(server, body):
    return ask(server, TEXT, body)["choices"]


def close(a, b, bound=2e-5):
    return len(a) == len(b) and all((x is None and y is None) or abs(x - y) < bound for x, y in zip(a, b))


def test_echo(server):
    """A generated text has the log p of its tokens when it is read as a prompt."""
    said = choices_of(server, {"prompt": "abc", "max_tokens": 30, "logprobs": 3, "return_token_ids": True,
                               "temperature": 1.5, "seed": 4})[0]
    ids = said["prompt_token_ids"] + said["token_ids"]
    check(len(said["token_ids"]) == 30 and said["prompt_token_ids"], "token ids", said)
    body = {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 3}
    read = choices_of(server, body)[0]
    logprobs = read["logprobs"]
    first = len(said["prompt_token_ids"])
    check(read["finish_reason"] == "length", "the end of an answer without tokens", read["finish_reason"])
    check(logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None, "the first token has log p")
    check(close(logprobs["token_logprobs"][first:], said["logprobs"]["token_logprobs"]), "log p of an answer read again")
    check(logprobs["tokens"][first:] == said["logprobs"]["tokens"], "tokens", logprobs["tokens"])
    check(logprobs["text_offset"] == [len("".join(logprobs["tokens"][:i])) for i in range(len(ids))], "text_offset")
    for token, logprob, top in zip(logprobs["tokens"][1:], logprobs["token_logprobs"][1:], logprobs["top_logprobs"][1:]):
        check(token in top and logprob <= max(top.values()), "the likeliest of", token, logprob, top)
    # One more token, drawn behind the same prompt.
    more = choices_of(server, {**body, "max_tokens": 1})[0]
    check(close(more["logprobs"]["token_logprobs"][:-1], logprobs["token_logprobs"]), "with a token more")
    check(len(more["logprobs"]["tokens"]) == len(ids) + 1, "tokens with one more")
    alone = choices_of(server, {"prompt": ids, "max_tokens": 1})[0]
    check(more["text"].endswith(alone["text"]) and more["text"][:-len(alone["text"]) or None] == read["text"], "the text", more)
    # A text is echoed as it was given; a stop text in it stops nothing.
    stopped = choices_of(server, {"prompt": "abcabc", "max_tokens": 5, "echo": True, "stop": ["b"], "temperature": 0})[0]
    check(stopped["text"].startswith("abcabc"), "a stop text in the prompt", stopped)
    # The stream says the same.
    events = events_of(server.ask(TEXT, {**body, "max_tokens": 5, "stream": True})[1])
    whole = choices_of(server, {**body, "max_tokens": 5})[0]
    parts = [event["choices"][0] for event in events]
    check("".join(part["text"] for part in parts) == whole["text"], "a streamed echo", parts)
    told = [part["logprobs"] for part in parts if part["logprobs"]]
    for key, values in whole["logprobs"].items():
        streamed = sum((part[key] for part in told), [])
        check(close(streamed, values) if key == "token_logprobs" else len(streamed) == len(values), "streamed", key)


def test_batch(server):
    """Prompts of one request, with common beginnings: each is answered as it is alone."""
    random.seed(5)
    shared = [random.randrange(3, 250) for _ in range(60)]
    prompts = [shared + [random.randrange(3, 250) for _ in range(5 + i)] for i in range(8)]
    body = {"max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
    together = choices_of(server, {"prompt": prompts, **body})
    check([choice["index"] for choice in together] == list(range(8)), "order")
    for prompt, choice in zip(prompts, together):
        alone = choices_of(server, {"prompt": prompt, **body})[0]
        check(close(choice["logprobs"]["token_logprobs"], alone["logprobs"]["token_logprobs"]), "a prompt of a batch")
        check(choice["text"] == alone["text"], "the text of a prompt of a batch")
    greedy = [choices_of(server, {"prompt": prompt, "max_tokens": 1, "logprobs": 1})[0]["logprobs"]["token_logprobs"]
              for prompt in prompts]
    check(all(close(choice["logprobs"]["token_logprobs"][-1:], one) for choice, one in zip(together, greedy)), "log p of the answer")


def test_prompt_logprobs(server):
    """vLLM's list: by id, with ranks; of prompts and of conversations."""
    for count in 0, 3:
        answer = choices_of(server, {"prompt": "abcdef", "max_tokens": 2, "prompt_logprobs": count, "return_token_ids": True})[0]
        ids, told = answer["prompt_token_ids"], answer["prompt_logprobs"]
        echoed = choices_of(server, {"prompt": "abcdef", "max_tokens": 2, "echo": True, "logprobs": 1})[0]["logprobs"]
        check(len(told) == len(ids) and told[0] is None, "one for each token", told)
        for token, one, logprob in zip(ids[1:], told[1:], echoed["token_logprobs"][1:]):
            own = one[str(token)]
            check(abs(own["logprob"] - logprob) < 2e-5 and own["rank"] >= 1 and "decoded_token" in own, "a token", own, logprob)
            ranks = sorted(entry["rank"] for entry in one.values())
            check(ranks[:count] == list(range(1, count + 1)) and len(one) in (max(count, 1), count + 1), "ranks", ranks, count)
            better = sum(entry["logprob"] > own["logprob"] for entry in one.values())
            check(own["rank"] == better + 1 or own["rank"] > count, "the rank of", own, one)
        check(echoed["tokens"][1:len(ids)] == [one[str(token)]["decoded_token"] for token, one in zip(ids[1:], told[1:])], "texts")
    talk = ask(server, CHAT, chat(prompt_logprobs=1, return_token_ids=True))
    check(len(talk["prompt_logprobs"]) == len(talk["prompt_token_ids"]) == talk["usage"]["prompt_tokens"], "a conversation", talk)
    check(len(talk["choices"][0]["token_ids"]) == 12, "ids of a conversation's answer")
    events = events_of(server.ask(CHAT, chat(return_token_ids=True, stream=True))[1])
    check(events[0]["prompt_token_ids"] == talk["prompt_token_ids"], "streamed ids of the prompt", events[0])
    check(sum((event["choices"][0].get("token_ids", []) for event in events), []) == talk["choices"][0]["token_ids"], "streamed ids")
    ask(server, TEXT, {"prompt": "a", "prompt_logprobs": 1, "stream": True}, 400)


def test_end_token(server):
    """The token that ends an answer has log p and an id, though no text."""
    ended = 0
    for seed in range(40):
        answer = choices_of(server, {"prompt": "abc", "max_tokens": 300, "temperature": 1.9, "seed": seed, "logprobs": 1,
                                     "return_token_ids": True})[0]
        ids, logprobs = answer["token_ids"], answer["logprobs"]
        check(len(ids) == len(logprobs["tokens"]) == len(logprobs["token_logprobs"]), "one log p for each id")
        ended += answer["finish_reason"] == "stop"
        if answer["finish_reason"] == "stop":
            check(logprobs["tokens"][-1] == "</s>", "the last token of an answer that ended", logprobs["tokens"][-1])
            # As a prompt: echo with one more token never takes the place of a token of the prompt.
            again = choices_of(server, {"prompt": answer["prompt_token_ids"] + ids[:-1], "max_tokens": 1, "echo": True,
                                        "logprobs": 1, "temperature": 0})[0]
            check(len(again["logprobs"]["tokens"]) == len(answer["prompt_token_ids"]) + len(ids), "echo and an end", again)
    check(ended > 3, "no answer ended, which proves nothing:", ended)


def test_tokenize(server):
    text = ask(server, "/tokenize", {"prompt": "abc </s>é", "return_token_strs": True})
    check(text["count"] == len(text["tokens"]) == len(text["token_strs"]) and text["max_model_len"] == 2000, text)
    plain = ask(server, "/tokenize", {"prompt": "abc </s>é", "add_special_tokens": False})
    check(text["tokens"][-plain["count"]:] == plain["tokens"] and plain["token_strs"] is None, text, plain)
    check(text["count"] > plain["count"], "special tokens of the tokenizer", text)
    check(ask(server, "/detokenize", {"tokens": plain["tokens"]}) == {"prompt": "abc </s>é"}, "/detokenize")
    used = choices_of(server, {"prompt": "abc </s>é", "max_tokens": 1, "return_token_ids": True})[0]
    check(used["prompt_token_ids"] == text["tokens"], "the ids of a prompt")
    used = choices_of(server, {"prompt": "abc </s>é", "max_tokens": 1, "return_token_ids": True, "add_special_tokens": False})[0]
    check(used["prompt_token_ids"] == plain["tokens"], "the ids of a prompt without special tokens")
    talk = ask(server, "/tokenize", {"messages": chat()["messages"]})
    used = ask(server, CHAT, chat(return_token_ids=True))
    check(used["prompt_token_ids"] == talk["tokens"], "the ids of a conversation")
    check(ask(server, "/tokenize", {"prompt": ""})["count"] <= 1, "an empty text")
    info = json.loads(server.ask("/tokenizer_info")[1])
    check(info["eos_token"] == "</s>" and info["chat_template"], "/tokenizer_info", info)
    for wrong in {}, {"prompt": 5}, {"prompt": ["a"]}, {"messages": []}, {"messages": chat()["messages"], "continue_final_message": True}:
        ask(server, "/tokenize", wrong, 400)
    for wrong in {}, {"tokens": 5}, {"tokens": ["a"]}, {"tokens": [-1]}, {"tokens": [2**40]}:
        ask(server, "/detokenize", wrong, 400)
    ask(server, "/tokenize", {"prompt": "a", "model": "nobody"}, 404)
    check(server.ask("/tokenize")[0] == 405 and server.ask("/tokenizer_info", "{}")[0] == 405, "methods")


def test_truncation(server):
    ids = list(range(10, 40))
    for asked, left in ((5, ids[-5:]), (30, ids), (99, ids), (-1, ids)):
        used = choices_of(server, {"prompt": ids, "max_tokens": 2, "return_token_ids": True, "truncate_prompt_tokens": asked, "echo": True})[0]
        check(used["prompt_token_ids"] == left, "truncated to", asked, used["prompt_token_ids"])
    text = choices_of(server, {"prompt": "abcdef", "max_tokens": 0, "truncate_prompt_tokens": 3, "echo": True, "add_special_tokens": False})[0]
    check(text["text"] == "def", "the echo of a truncated prompt", text)
    long = choices_of(server, {"prompt": [5] * 3000, "max_tokens": 10, "truncate_prompt_tokens": -1, "return_token_ids": True})[0]
    check(len(long["prompt_token_ids"]) == 1990, "room for the answer", len(long["prompt_token_ids"]))
    ask(server, TEXT, {"prompt": [5] * 3000, "max_tokens": 10}, 400)
    ask(server, TEXT, {"prompt": [5] * 2000, "max_tokens": 0})  # all of the context, and no answer
    ask(server, TEXT, {"prompt": [5] * 2001, "max_tokens": 0}, 400)


def test_ranks(server):
    """Two ranks say the same as one, also of prompts that are longer than a pass."""
    random.seed(8)
    prompts = [[random.randrange(3, 250) for _ in range(count)] for count in (700, 3, 40, 700, 41)]
    body = {"prompt": prompts, "max_tokens": 3, "echo": True, "logprobs": 2, "n": 2, "temperature": 1, "seed": 3}
    wanted = choices_of(server, body)
    two = Server("--max_running", "4", "--context_length", "2000", "--bf16", "false", "--ranks", "2", log="ranks.log")
    for got, one in zip(choices_of(two, body), wanted):
        check(close(got["logprobs"]["token_logprobs"], one["logprobs"]["token_logprobs"]), "log p of two ranks")
        check(got["logprobs"]["tokens"] == one["logprobs"]["tokens"], "tokens of two ranks")
    two.stop()


server = Server("--max_running", "4", "--context_length", "2000", "--bf16", "false")
for test in test_echo, test_batch, test_prompt_logprobs, test_end_token, test_tokenize, test_truncation, test_ranks:
    test(server)
server.stop()
sys.exit(1 if failures else 0)
