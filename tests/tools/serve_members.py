"""Members of a request that change an answer, one test a row: serve_members.py TRIMTAB MODEL ADAPTER. By Python's
standard library. Prints what fails; exit code 1."""
import json
import shutil
import sys

from served import CHAT, TEXT, Server, chat, check, events_of, failures, model

TOP = 20


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
               "stop_token_ids": [80, 81], "seed": 2, "temperature": 1.5}]
    wanted = [[choice["text"] for choice in ask(server, body)["choices"]] for body in bodies]
    two = Server("--max_running", "4", "--context_length", "2000", "--ranks", "2", "--bf16", "false", log="ranks.log")
    for body, texts in zip(bodies, wanted):
        check([choice["text"] for choice in ask(two, body)["choices"]] == texts, "two ranks answer", body)
    two.stop()


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
    for path in ("/v1/responses", "/v1/embeddings", "/v1/audio", "/v1/files", "/v1/batches", "/pooling", "/score", "/rerank",
                 "/classify", "/ping", "/version", "/v1/chat", "/tokenizer", "/v1/modelsx"):
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
for test in test_penalties, test_logit_bias, test_stop_token_ids, test_min_tokens, test_special_tokens, test_usage, test_nucleus, test_template, test_addresses, test_together, test_generation_config:
    test(server)
server.stop()
sys.exit(1 if failures else 0)
