"""Members of a request that change an answer, one test a row: serve_members.py TRIMTAB MODEL ADAPTER. By Python's
standard library. Prints what fails; exit code 1."""
import json
import re
import shutil
import sys

from served import CHAT, TEXT, Server, chat, check, events_of, failures, model

TOP = 20
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "yes"]}},
          "required": ["a", "b"], "additionalProperties": False}


def ask(server, body, wanted=200, path=TEXT):
    status, text = server.ask(path, body)
    check(status == wanted, wanted, "expected, got", status, "for", body, text[:300])
    return json.loads(text)


def say(server, **more):
    body = {"prompt": "abc", "max_tokens": 30, "ignore_eos": True, "logprobs": TOP, "return_token_ids": True,
            "return_tokens_as_token_ids": True, **more}
    choice = ask(server, body)["choices"][0]
    tops = [{int(name[9:]): value for name, value in top.items()} for top in choice["logprobs"]["top_logprobs"]]
    check([f"token_id:{token}" for token in choice["token_ids"]] == choice["logprobs"]["tokens"], "tokens as ids", choice)
    return choice["token_ids"], tops


def test_penalties(server):
    """OpenAI's: the logit less count * frequency_penalty, less presence_penalty where the count is above 0."""
    plain, _ = say(server)
    for presence, frequency in (2, 0), (0, 2), (1.5, 0.5), (-2, 0), (0, -2), (-0.5, 1):
        ids, tops = say(server, presence_penalty=presence, frequency_penalty=frequency)
        counts = {}
        for token, top in zip(ids, tops):
            marks = {one: value - counts.get(one, 0) * frequency - (one in counts) * presence for one, value in top.items()}
            best = max(marks, key=lambda one: (marks[one], -one))
            check(best == token or abs(marks[best] - marks[token]) < 1e-5, "penalties", presence, frequency, "chose", token, "not", best)
            counts[token] = counts.get(token, 0) + 1
    check(len(set(say(server, frequency_penalty=2)[0])) > len(set(plain)), "frequency_penalty", plain)
    check(say(server, frequency_penalty=0, presence_penalty=0)[0] == plain, "penalties of 0")
    for wrong in {"presence_penalty": 2.1}, {"frequency_penalty": -3}, {"presence_penalty": "x"}:
        ask(server, {"prompt": "a", **wrong}, 400)


def test_logit_bias(server):
    plain, _ = say(server)
    check(set(say(server, logit_bias={"77": 100})[0]) == {77}, "a bias of 100")
    banned, _ = say(server, logit_bias={str(token): -100 for token in set(plain)})
    check(not set(banned) & set(plain), "biases of -100", banned, plain)
    ids, tops = say(server, logit_bias={str(plain[0]): -0.25})
    for token, top in zip(ids, tops):
        marks = {one: value - 0.25 * (one == plain[0]) for one, value in top.items()}
        check(marks[token] == max(marks.values()), "a small bias", token, marks)
    check(say(server, logit_bias={})[0] == plain == say(server, logit_bias=None)[0], "no bias")
    for wrong in {"5": 101}, {"x": 1}, {"5": "1"}, {"-5": 1}, {"": 1}, {"99999999999": 1}, {"9999999": 1}, {"5": 1, "05": 1}, [5]:
        ask(server, {"prompt": "a", "logit_bias": wrong}, 400)


def test_stop_token_ids(server):
    plain, _ = say(server)
    end = plain[-1]
    choice = ask(server, {"prompt": "abc", "max_tokens": 30, "ignore_eos": True, "stop_token_ids": [end, 5], "return_token_ids": True})["choices"][0]
    check(choice["finish_reason"] == "stop" and choice["token_ids"] == plain[:plain.index(end) + 1], "a stop id", choice, plain)
    for wrong in 5, ["a"], [-1], [2**40], [1.5], list(range(129)):
        ask(server, {"prompt": "a", "stop_token_ids": wrong}, 400)


def test_min_tokens(server):
    """Neither an end token, nor a stop id, nor a stop text ends a shorter answer."""
    plain, _ = say(server)
    body = {"prompt": "abc", "max_tokens": 40, "stop_token_ids": [plain[0]], "return_token_ids": True}
    check(len(ask(server, body)["choices"][0]["token_ids"]) == 1, "the first token is a stop id")
    ids = ask(server, {**body, "min_tokens": 7})["choices"][0]["token_ids"]
    check(len(ids) >= 7 and plain[0] not in ids[:7] and 2 not in ids[:7], "min_tokens", ids)
    ended = {"prompt": "abc", "max_tokens": 200, "temperature": 1.9, "return_token_ids": True, "n": 60, "seed": 1}
    few = [len(choice["token_ids"]) for choice in ask(server, ended)["choices"] if choice["finish_reason"] == "stop"]
    check(few and min(few) < 100, "no answer ends early, which proves nothing", few)
    long = [len(choice["token_ids"]) for choice in ask(server, {**ended, "min_tokens": 150})["choices"]]
    check(min(long) > 150, "answers of fewer than min_tokens", min(long))
    text = ask(server, {"prompt": "abc", "max_tokens": 30, "ignore_eos": True})["choices"][0]["text"]
    for min_tokens in 0, 25:
        choice = ask(server, {"prompt": "abc", "max_tokens": 30, "ignore_eos": True, "stop": text[2], "min_tokens": min_tokens,
                              "return_token_ids": True})["choices"][0]
        check((len(choice["token_ids"]) >= min_tokens) and (min_tokens > 0 or choice["finish_reason"] == "stop"), "stop texts", choice)
    ask(server, {"prompt": "a", "min_tokens": -1}, 400)


def test_stop_str(server):
    """include_stop_str_in_output: the text that ends an answer, of a stop text or of a token that is none of the special ones."""
    plain = ask(server, {"prompt": "abc", "max_tokens": 30, "ignore_eos": True, "return_token_ids": True})["choices"][0]
    stop = plain["text"][6:9]
    end = plain["text"].index(stop)
    for keeps, wanted in (False, end), (True, end + len(stop)):
        body = {"prompt": "abc", "max_tokens": 30, "ignore_eos": True, "stop": ["not in it", stop], "include_stop_str_in_output": keeps}
        choice = ask(server, body)["choices"][0]
        check(choice["text"] == plain["text"][:wanted] and choice["finish_reason"] == "stop", "a stop text", keeps, choice, plain)
        parts = [event["choices"][0]["text"] for event in events_of(server.ask(TEXT, {**body, "stream": True})[1]) if event["choices"]]
        check("".join(parts) == plain["text"][:wanted], "in a stream", keeps, parts)
    token = plain["token_ids"][-1]
    before = plain["token_ids"].index(token)
    body = {"prompt": "abc", "max_tokens": 30, "ignore_eos": True, "stop_token_ids": [token]}
    cut, kept = (ask(server, {**body, "include_stop_str_in_output": keeps})["choices"][0]["text"] for keeps in (False, True))
    words = [json.loads(server.ask("/detokenize", {"tokens": plain["token_ids"][:count]})[1])["prompt"] for count in (before, before + 1)]
    check(kept.startswith(cut) and len(kept) > len(cut), "a stop token", cut, kept, words)
    special = {"prompt": "abc", "max_tokens": 5, "stop_token_ids": [1], "logit_bias": {"1": 100}, "include_stop_str_in_output": True}
    check(ask(server, special)["choices"][0]["text"] == "", "a special token has no text")
    check(ask(server, {**special, "skip_special_tokens": False})["choices"][0]["text"] == "<s>", "unless special tokens are shown")
    ask(server, {"prompt": "a", "include_stop_str_in_output": 1}, 400)


def test_allowed(server):
    """allowed_token_ids: no other token comes, an end token either; with a grammar only what both allow."""
    plain, _ = say(server)
    for allowed in [77], [90, 70, 80], sorted(set(plain)):
        ids, tops = say(server, allowed_token_ids=allowed)
        check(set(ids) <= set(allowed), "allowed", allowed, ids)
    check(say(server, allowed_token_ids=sorted(set(plain)))[0] == plain, "all that it says", plain)
    drawn, _ = say(server, allowed_token_ids=[90, 70, 80], temperature=1.5, seed=3)
    check(len(set(drawn)) > 1 and set(drawn) <= {70, 80, 90}, "drawn", drawn)
    check(say(server, allowed_token_ids=None)[0] == plain, "none")
    digits = [ids[0] for ids in (json.loads(server.ask("/tokenize", {"prompt": d, "add_special_tokens": False})[1])["tokens"] for d in "0123456789")]
    body = {"prompt": "abc", "max_tokens": 6, "structured_outputs": {"regex": "[a-z0-9]*"}, "allowed_token_ids": digits}
    text = ask(server, body)["choices"][0]["text"]
    check(len(text) == 6 and text.isdigit(), "with a grammar", text)
    ended = ask(server, {**body, "structured_outputs": {"regex": "[a-z]{3}"}})["choices"][0]
    check(ended["text"] == "" and ended["finish_reason"] == "length", "nothing that both allow", ended)
    for wrong in [], [-1], ["a"], 5, [1.5], [9999999]:
        ask(server, {"prompt": "a", "allowed_token_ids": wrong}, 400)


def test_bad_words(server):
    """bad_words: the last token of a word does not come where it would complete the word; its other tokens may."""
    def tokens(text):
        return json.loads(server.ask("/tokenize", {"prompt": text, "add_special_tokens": False})[1])["tokens"]
    plain, _ = say(server)
    body = {"prompt": "abc", "max_tokens": 30, "ignore_eos": True}
    text = ask(server, body)["choices"][0]["text"]
    printable = [(i, text[i:i + 2]) for i in range(len(text) - 1) if text[i:i + 2].isalnum() and text[i:i + 2].isascii()]
    check(printable, "nothing to ban, which proves nothing", text)
    at, pair = printable[0]
    other = ask(server, {**body, "bad_words": [pair]})["choices"][0]["text"]
    check(pair not in other and other[:at + 1] == text[:at + 1] and other != text, "a word of two tokens", pair, text, other)
    single = ask(server, {**body, "bad_words": [pair[0], "zq"]})["choices"][0]["text"]
    check(pair[0] not in single, "a word of one token", pair[0], single)
    spaced = ask(server, {**body, "bad_words": ["  " + pair]})["choices"][0]["text"]
    check(spaced == other, "blanks before a word do not count", spaced, other)
    banned = ask(server, {**body, "bad_words": [pair], "return_token_ids": True})["choices"][0]["token_ids"]
    word = tokens(pair)
    check(len(word) == 2 and word[0] in banned and not any(banned[i:i + 2] == word for i in range(len(banned))), "tokens", word, banned)
    check(say(server, bad_words=[])[0] == plain, "no words")
    for wrong in "abc", [""], [5], ["a"] * 257, ["a" * 257], ["  "]:
        ask(server, {"prompt": "a", "bad_words": wrong}, 400)


def test_special_tokens(server):
    ended = {"prompt": "abc", "max_tokens": 20, "logit_bias": {"1": 100}, "ignore_eos": True}
    check(ask(server, ended)["choices"][0]["text"] == "", "special tokens have no text")
    check(ask(server, {**ended, "skip_special_tokens": False})["choices"][0]["text"] == "<s>" * 20, "skip_special_tokens: false")
    ask(server, {"prompt": "a", "skip_special_tokens": 1}, 400)


def test_usage(server):
    """stream_options: continuous_usage_stats counts in every event."""
    body = {"prompt": "abc", "max_tokens": 12, "stream": True, "ignore_eos": True}
    events = events_of(server.ask(TEXT, {**body, "stream_options": {"continuous_usage_stats": True}})[1])
    counts = [event["usage"]["completion_tokens"] for event in events]
    check(counts == sorted(counts) and counts[-1] == 12 and counts[0] < 12, "counts", counts)
    check(all(event["usage"]["total_tokens"] == event["usage"]["prompt_tokens"] + event["usage"]["completion_tokens"] for event in events), events)
    check(not any("usage" in event for event in events_of(server.ask(TEXT, body)[1])), "counts that nobody asked for")
    events = events_of(server.ask(CHAT, chat(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}))[1])
    check(all("usage" in event for event in events) and events[-1]["choices"] == [], "both", events)
    ask(server, {**body, "stream_options": {"continuous_usage_stats": 1}}, 400)


def test_together(server):
    """An answer does not depend on the others in the batch, nor on the number of ranks."""
    bodies = [{"prompt": "abc", "max_tokens": 25, "frequency_penalty": 1.5, "n": 3, "temperature": 1, "seed": 4, "min_tokens": 9},
              {"prompt": ["xyz", "abc"], "max_tokens": 25, "logit_bias": {"70": 3, "71": -100}, "presence_penalty": 1,
               "stop_token_ids": [80, 81], "seed": 2, "temperature": 1.5},
              {"prompt": ["xyz", "abc", "a b"], "max_tokens": 60, "n": 2, "seed": 5, "temperature": 1, "structured_outputs": {"json": SCHEMA}},
              {"prompt": "abc", "max_tokens": 40, "n": 4, "seed": 1, "temperature": 1, "structured_outputs": {"regex": "(ab|[0-9]{2}){1,4}c"}},
              {"prompt": "abc", "max_tokens": 9, "n": 3, "structured_outputs": {"choice": ["yes", "no", "perhaps"]}},
              {"prompt": ["abc", "q"], "max_tokens": 25, "allowed_token_ids": list(range(60, 120)), "bad_words": ["a", "bc", "xy"], "seed": 8,
               "temperature": 1.2, "ignore_eos": True}]
    wanted = [[choice["text"] for choice in ask(server, body)["choices"]] for body in bodies]
    whole = [json.loads(text) for text in wanted[2] if text.endswith("}")]
    check(whole and all(set(one) == {"a", "b"} for one in whole), "no structured answer is whole, which proves nothing", wanted[2])
    check(all(re.fullmatch("(ab|[0-9]{2}){1,4}c", text) for text in wanted[3]) and set(wanted[4]) <= {"yes", "no", "perhaps"}, wanted)
    for flags in ("--ranks", "2"), ("--ranks", "3", "--sharding_strategy", "FULL_SHARD"):
        several = Server("--max_running", "4", "--context_length", "2000", "--bf16", "false", *flags, log="ranks.log")
        for body, texts in zip(bodies, wanted):
            check([choice["text"] for choice in ask(several, body)["choices"]] == texts, flags, "answer", body)
        several.stop()


def test_nucleus(server):
    greedy, _ = say(server)
    check(say(server, temperature=1.5, seed=1, top_p=1e-6)[0] == greedy, "top_p near 0 is greedy")
    check(say(server, seed=1, top_p=0.99)[0] != greedy, "top_p alone draws")
    for wrong in 0, 1.1, "x":
        ask(server, {"prompt": "a", "top_p": wrong}, 400)


def test_template(server):
    """What the chat template reads besides messages and tools: here it prints it."""
    plain = ask(server, {"messages": chat()["messages"]}, path="/tokenize")["count"]
    for more in {"documents": [{"title": "t", "text": "a text"}]}, {"chat_template_kwargs": {"mark": "seen"}}:
        count = ask(server, chat(return_token_ids=True, **more), path=CHAT)["usage"]["prompt_tokens"]
        check(count > plain, "the chat template does not see", more, count, plain)


def test_addresses(server):
    others = ("/v1/responses", "/v1/embeddings", "/v1/audio", "/v1/files", "/v1/batches", "/pooling", "/score", "/rerank",
              "/classify", "/ping", "/version")
    for path in *others, "/v1/chat", "/tokenizer", "/v1/modelsx":
        status, text = server.ask(path, {})
        check(status == 404 and json.loads(text)["error"]["message"], path, status, text)


def test_generation_config(_):
    """What generation_config.json recommends holds where a request says nothing."""
    shutil.copytree(model, "drawn")
    with open("drawn/generation_config.json", "w") as file:
        json.dump({"do_sample": True, "temperature": 1.5, "top_k": 30, "repetition_penalty": 1.2}, file)
    drawn = Server("--bf16", "false", log="drawn.log", served=("--model_name_or_path", "drawn"))
    plain = Server("--bf16", "false", "--generation_config", "none", log="plain.log", served=("--model_name_or_path", "drawn"))
    check("sampling by generation_config.json: temperature 1.5, top_k 30" in open("drawn.log").read(), open("drawn.log").read())
    body = {"prompt": "abc", "max_tokens": 30, "seed": 3, "ignore_eos": True}
    said = {"temperature": 1.5, "top_k": 30, "repetition_penalty": 1.2}
    text = ask(drawn, body)["choices"][0]["text"]
    check(text == ask(plain, {**body, **said})["choices"][0]["text"] != ask(plain, body)["choices"][0]["text"], "recommended", text)
    for one in {"temperature": 0.2}, {"top_k": 2}, {"repetition_penalty": 1}, {"temperature": 0}:
        check(ask(drawn, {**body, **one})["choices"][0]["text"] == ask(plain, {**body, **said, **one})["choices"][0]["text"], "a request's", one)
    drawn.stop()
    plain.stop()


server = Server("--max_running", "4", "--context_length", "2000", "--bf16", "false")
for test in test_penalties, test_logit_bias, test_stop_token_ids, test_stop_str, test_allowed, test_bad_words, test_min_tokens, test_special_tokens, test_usage, test_nucleus, test_template, test_addresses, test_together, test_generation_config:
    test(server)
server.stop()
sys.exit(1 if failures else 0)
