"""Clients of `trimtab serve`, good and bad: serve_client.py TRIMTAB MODEL ADAPTER. Prints what fails; exit code 1."""
import asyncio
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from served import CHAT, JSON, TEXT, Server, adapter, chat, check, content_of, events_of, failures, joined, model, trimtab


def generated(*flags, messages='[{"role": "user", "content": "abc"}]'):
    done = subprocess.run([trimtab, "generate", "--model_name_or_path", model, "--max_new_tokens", "12", "--json",
                           "--messages", messages, *flags], capture_output=True, check=True)
    return json.loads(done.stdout)["completion"]


def test_answers(server):
    name = os.path.basename(adapter)
    with_adapter, without = generated("--adapter_name_or_path", adapter), generated()
    check(with_adapter != without, "the adapter changes nothing, which proves nothing")
    for body, wanted in ((chat(), with_adapter), (chat(model=name), with_adapter), (chat(model="model"), without)):
        answer = server.ask(CHAT, body)
        check(answer[0] == 200 and content_of(answer)[0] == wanted, "another answer to", body, answer)
        status, text = server.ask(CHAT, {**body, "stream": True, "stream_options": {"include_usage": True}})
        events = events_of(text)
        check(joined(events) == content_of(answer), "the stream says something else", events)
        usage = json.loads(answer[1])["usage"]
        check(events[-1].get("usage") == usage and usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"],
              "usage", usage, events[-1])
    parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "bc"}]}],
             "max_completion_tokens": 12}
    check(content_of(server.ask(CHAT, parts))[0] == with_adapter, "a content of parts")
    models = json.loads(server.ask("/v1/models")[1])
    for model in models["data"]:
        check(json.loads(server.ask("/v1/models/" + model["id"])[1]) == model, "one model")
    check(server.ask("/v1/models/none")[0] == 404, "a model that is not there")
    check([m["id"] for m in models["data"]] == ["model", name], models)
    check(server.ask("/healthz") == server.ask("/health") == server.ask("/readyz") == (200, b"ok\n"), "/healthz")


def test_stops(server):
    whole, finish = content_of(server.ask(TEXT, {"prompt": "abc", "max_tokens": 40}))
    check(finish == "length", finish)
    for begin, end in ((3, 4), (5, 8), (0, 1)):
        stop = whole[begin:end]
        wanted = whole[:whole.index(stop)]
        body = {"prompt": ["abc"], "max_tokens": 40, "stop": ["never there", stop]}
        check(content_of(server.ask(TEXT, body)) == (wanted, "stop"), "stop", stop)
        check(joined(events_of(server.ask(TEXT, {**body, "stream": True})[1])) == (wanted, "stop"), "streamed stop", stop)
    # Sampled texts vary, so these stop texts span several tokens, which come in events of their own.
    varied = {"prompt": "abc", "max_tokens": 60, "temperature": 1.2, "seed": 11}
    whole, _ = content_of(server.ask(TEXT, varied))
    tried = 0
    for begin in range(4, len(whole) - 5, 4):
        stop = whole[begin:begin + 5]
        if whole.index(stop) != begin:
            continue
        events = events_of(server.ask(TEXT, {**varied, "stop": stop, "stream": True})[1])
        check(joined(events) == (whole[:begin], "stop"), "a stream with a part of the stop text", repr(stop), joined(events))
        tried += len(events) > 3
    check(tried > 0, "no stream of several events before a stop text")
    ids = {"prompt": [5, 6, 7], "max_tokens": 3, "temperature": 0}
    check(json.loads(server.ask(TEXT, ids)[1])["usage"]["prompt_tokens"] == 3, "a prompt of ids")


def test_sampling(server):
    def draw(**more):
        return content_of(server.ask(TEXT, {"prompt": "abc", "max_tokens": 30, **more}))[0]
    check(draw(temperature=1.5, seed=7) == draw(temperature=1.5, seed=7), "one seed, two texts")
    check(draw(temperature=1.5, seed=7) != draw(temperature=1.5, seed=8), "two seeds, one text")
    check(draw(temperature=1.5) != draw(temperature=1.5), "requests without a seed share one")
    check(draw(temperature=0) == draw(), "greedy")
    check(draw(temperature=1.5, top_k=1) == draw(), "top_k 1 is greedy")
    check(draw(temperature=1.5, min_p=1) == draw(), "min_p 1 is greedy")
    check(draw(temperature=1.5, seed=7, top_k=-1) == draw(temperature=1.5, seed=7, top_k=0, min_p=0, repetition_penalty=1) ==
          draw(temperature=1.5, seed=7), "values without effect")
    penalty = ["--repetition_penalty", "4"]
    check(content_of(server.ask(CHAT, chat(repetition_penalty=4)))[0] == generated("--adapter_name_or_path", adapter, *penalty) !=
          generated("--adapter_name_or_path", adapter), "repetition_penalty")


def test_bytes(server):
    """Answers of any bytes: zeros and pieces of characters reach the client, and a stream has the whole answer."""
    draw = {"max_tokens": 200, "temperature": 2.0, "seed": 3, "n": 12}
    for path, body in ((TEXT, {"prompt": "abc", "logprobs": 2}), (CHAT, chat(logprobs=True, top_logprobs=2))):
        body.update(draw)
        server.ask(path, body)  # the next ones find its prompt computed: rounding is the same in all of them
        choices = json.loads(server.ask(path, body)[1])["choices"]
        texts = [choice["text"] if "text" in choice else choice["message"]["content"] for choice in choices]
        streamed = [""] * len(texts)
        for event in events_of(server.ask(path, {**body, "stream": True})[1]):
            part = event["choices"][0]
            streamed[part["index"]] += part["text"] if "text" in part else part["delta"].get("content", "")
        check(streamed == texts, "a stream has another text than the whole answer", path)
        check(any("\0" in text[:-1] for text in texts) and any("\ufffd" in text for text in texts), "no such bytes, which proves nothing")
        tokens = [choice["logprobs"].get("tokens") or [token["token"] for token in choice["logprobs"]["content"]] for choice in choices]
        check(all(("\0" in text) == ("\0" in own) for text, own in zip(texts, tokens)), "tokens of a zero byte", path)
        if path == CHAT:
            check([0] in [token["bytes"] for choice in choices for token in choice["logprobs"]["content"]], "bytes of a zero")
    found = [generated("--temperature", "2", "--seed", str(seed), "--max_new_tokens", "200", "--ignore_eos") for seed in range(12)]
    check(any("\0" in text[:-1] for text in found), "generate --json cuts its completions at a zero byte")


def test_choices(server):
    """Several answers, several prompts, streams of them."""
    draw = {"max_tokens": 8, "temperature": 1.3, "seed": 5}
    one = [content_of(server.ask(TEXT, {"prompt": prompt, **draw})) for prompt in ("abc", "xyz")]
    status, text = server.ask(TEXT, {"prompt": ["abc", "xyz"], "n": 3, **draw})
    answer = json.loads(text)
    choices = answer["choices"]
    check(status == 200 and [choice["index"] for choice in choices] == list(range(6)), "choices", text)
    check([(choices[i]["text"], choices[i]["finish_reason"]) for i in (0, 3)] == one, "the first answer to each prompt")
    check(len({choice["text"] for choice in choices}) > 2, "all answers are the same:", text)
    single = [json.loads(server.ask(TEXT, {"prompt": prompt, **draw})[1])["usage"] for prompt in ("abc", "xyz")]
    check(answer["usage"]["prompt_tokens"] == sum(usage["prompt_tokens"] for usage in single), "prompt tokens", answer["usage"])
    check(answer["usage"]["completion_tokens"] == 48, "completion tokens", answer["usage"])
    events = events_of(server.ask(TEXT, {"prompt": ["abc", "xyz"], "n": 3, "stream": True, **draw})[1])
    streamed = [""] * 6
    for event in events:
        streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
    check(streamed == [choice["text"] for choice in choices], "streamed choices", streamed)
    check(sum(event["choices"][0]["finish_reason"] is not None for event in events) == 6, "ends of streamed choices")
    # Each answer has numbers of its own, whether a seed is given or not.
    for more in {}, {"seed": 11}:
        for path, body in ((TEXT, {"prompt": "abc"}), (CHAT, chat())):
            drawn = [[choice.get("text") or choice["message"]["content"] for choice in json.loads(
                server.ask(path, {**body, "n": 4, "max_tokens": 30, "temperature": 1.5, **more})[1])["choices"]] for _ in range(3)][1:]
            check(len(set(drawn[0])) == 4, "answers of one request are the same:", more, drawn[0])
            check((drawn[0] == drawn[1]) == bool(more), "the same request again", more, drawn)
    many = json.loads(server.ask(CHAT, chat(n=5, **draw))[1])["choices"]
    check([choice["index"] for choice in many] == list(range(5)) and all(choice["message"]["role"] == "assistant" for choice in many), many)
    # A stop text ends one choice; the others go on.
    stop = choices[1]["text"][2:4]
    stopped = json.loads(server.ask(TEXT, {"prompt": ["abc"], "n": 3, "stop": stop, **draw})[1])["choices"]
    check([choice["text"] for choice in stopped] == [choice["text"].split(stop)[0] for choice in choices[:3]], "stops", stop, stopped)


def test_logprobs(server):
    """The tokens of an answer, the likeliest at each place, and the same from the prompt with the tokens before."""
    body = {"prompt": "abc", "max_tokens": 6, "logprobs": 3}
    whole = json.loads(server.ask(TEXT, body)[1])["choices"][0]
    logprobs = whole["logprobs"]
    check("".join(logprobs["tokens"]) == whole["text"] and len(logprobs["tokens"]) == 6, "tokens", whole)
    check(logprobs["text_offset"] == [len("".join(logprobs["tokens"][:i])) for i in range(6)], "text_offset", logprobs)
    for token, logprob, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]):
        check(logprob == max(top.values()) == top[token] and sum(map(math.exp, top.values())) <= 1.0001, token, logprob, top)
        check(2 <= len(top) <= 4, "top", top)
    first = json.loads(server.ask(TEXT, {**body, "max_tokens": 1, "temperature": 2, "repetition_penalty": 3, "seed": 1, "logprobs": 20})[1])
    first = first["choices"][0]["logprobs"]["top_logprobs"][0]
    check(all(abs(first[token] - value) < 1e-5 for token, value in logprobs["top_logprobs"][0].items() if token != "\ufffd"),
          "temperature or penalty change log p:", first, logprobs["top_logprobs"][0])
    events = events_of(server.ask(TEXT, {**body, "stream": True})[1])
    parts = [event["choices"][0]["logprobs"] for event in events if event["choices"][0]["logprobs"]]
    check({key: sum((part[key] for part in parts), []) for key in logprobs} == logprobs, "streamed log p", parts)
    talk = json.loads(server.ask(CHAT, chat(logprobs=True, top_logprobs=2))[1])["choices"][0]
    content = talk["logprobs"]["content"]
    check(len(content) == 12 and "".join(token["token"] for token in content) == talk["message"]["content"], "chat", talk)
    for token in content:
        top = token["top_logprobs"]
        check(len(top) == 2 and top[0]["logprob"] >= top[1]["logprob"] and top[0]["logprob"] == token["logprob"], token)
        check(token["bytes"] is None or bytes(token["bytes"]).decode() == token["token"], "bytes", token)
    events = events_of(server.ask(CHAT, chat(logprobs=True, top_logprobs=2, stream=True))[1])
    parts = [event["choices"][0]["logprobs"]["content"] for event in events if event["choices"][0]["logprobs"]]
    check(sum(parts, []) == content, "streamed log p of a conversation", parts)
    plain = json.loads(server.ask(CHAT, chat(logprobs=True))[1])["choices"][0]["logprobs"]["content"]
    check([token["logprob"] for token in plain] == [token["logprob"] for token in content] and plain[0]["top_logprobs"] == [], plain)
    check(json.loads(server.ask(CHAT, chat())[1])["choices"][0]["logprobs"] is None, "log p that nobody asked for")


def test_ranks(server):
    """Two ranks say the same as one."""
    bodies = [(TEXT, {"prompt": ["abc", "xyz"], "n": 2, "max_tokens": 6, "temperature": 1, "seed": 3, "logprobs": 4}),
              (CHAT, chat(logprobs=True, top_logprobs=3))]
    wanted = [json.loads(server.ask(*body)[1])["choices"] for body in bodies]
    two = Server("--max_running", "4", "--context_length", "4000", "--ignore_eos", "--ranks", "2", log="ranks.log")
    for body, choices in zip(bodies, wanted):
        check(json.loads(two.ask(*body)[1])["choices"] == choices, "another answer of two ranks to", body)
    two.stop()
    log = open("ranks.log").read()
    check("stopping: requests that run end now" in log and "this step" not in log, "the log of SIGTERM:", log)


BROKEN = [
    b"", b"{", b"[]", b"null", b"1", b'"x"', b"{}", b"\xff\xfe", b'{"messages": 1}', b'{"messages": []}',
    b'{"messages": [1]}', b'{"messages": [{"content": "no role"}]}', b'{"messages": [{"role": 1, "content": "x"}]}',
    b"[" * 100000, b'{"a": 1, "a": 2, "messages": [{"role": "user", "content": "x"}]}',
]
WRONG = [{"n": 0}, {"n": 1.5}, {"n": 129}, {"logprobs": 3}, {"top_logprobs": 3}, {"top_logprobs": 21, "logprobs": True},
         {"best_of": 2}, {"temperature": -1}, {"temperature": "hot"}, {"top_p": 0}, {"max_tokens": 0},
         {"max_tokens": 1.5}, {"seed": "x"}, {"stop": 5}, {"stop": ["a"] * 17}, {"stop": ""}, {"stop": "a" * 300},
         {"stream": "yes"}, {"response_format": {"type": "xml"}}, {"presence_penalty": 3}, {"model": 3},
         {"logit_bias": {"5": 101}}, {"tool_choice": "required"}, {"top_k": 1.5}, {"top_k": -2}, {"top_k": "x"}, {"min_p": 1.1},
         {"repetition_penalty": 0}, {"ignore_eos": 1}, {"guided_json": {"not": {}}}, {"structured_outputs": {"regex": 5}}, {"min_tokens": -1},
         {"stop_token_ids": 5}, {"use_beam_search": True}, {"grammar": "root ::= x"}, {"continue_final_message": True}, {"add_generation_prompt": False},
         {"prompt_logprobs": 21}, {"prompt_logprobs": -2}, {"return_token_ids": 1}, {"return_tokens_as_token_ids": 1}, {"echo": True},
         {"skip_special_tokens": 0}, {"spaces_between_special_tokens": False}, {"add_special_tokens": True},
         {"truncate_prompt_tokens": 0}, {"chat_template": "x"}, {"length_penalty": 2}, {"bad_words": "a"}, {"allowed_token_ids": []},
         {"logits_processors": ["x"]}, {"include_reasoning": False}, {"thinking_token_budget": 5}, {"structural_tag": "x"},
         {"mm_processor_kwargs": {"a": 1}}, {"vllm_xargs": {"a": 1}}, {"kv_transfer_params": {}}, {"prompt_embeds": "x"},
         {"parallel_tool_calls": 0}, {"function_call": {"name": "add"}}, {"functions": [{"name": "add"}]}, {"audio": {"voice": "x"}},
         {"modalities": ["text", "audio"]}, {"reasoning_effort": "low"}, {"verbosity": "low"}, {"web_search_options": {}},
         {"stream_options": {"continuous_usage_stats": 1}}, {"repeat_penalty": 1.1}, {"mirostat": 2}, {"regex": "a"}, {"n_probs": 3}]
# As the libraries send them where nobody asked for anything.
PLAIN = {"prompt_logprobs": None, "return_token_ids": False, "skip_special_tokens": True, "spaces_between_special_tokens": True,
         "add_special_tokens": False, "length_penalty": 1.0, "bad_words": [], "parallel_tool_calls": True, "modalities": ["text"],
         "include_reasoning": True, "user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto", "priority": 0,
         "request_id": "r", "cache_salt": "s", "reasoning_effort": None, "guided_json": None, "a_member_of_nobody": 1}


def test_errors(server):
    for body in BROKEN:
        status, text = server.ask(CHAT, body)
        check(status == 400 and json.loads(text)["error"]["type"] == "invalid_request_error", body[:40], status, text)
    for wrong in WRONG:
        status, text = server.ask(CHAT, chat(**wrong))
        check(status == 400 and json.loads(text)["error"]["param"] == list(wrong)[0], wrong, status, text)
    check(content_of(server.ask(CHAT, chat(**PLAIN))) == content_of(server.ask(CHAT, chat())), "members without effect")
    check(server.ask(TEXT, {"prompt": "a", "add_special_tokens": True})[0] == 200, "add_special_tokens of a prompt")
    image = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}
    check(server.ask(CHAT, image)[0] == 400, "an image")
    check(server.ask(CHAT, chat(response_format={"type": "text"}))[0] == 200, "the format text")
    for wrong in ({"prompt": ["a"] * 65, "n": 2}, {"prompt": ["a"] * 129}, {"prompt": ["a", [1]]}, {"prompt": [[1], [1.5]]},
                  {"prompt": ["a", ""]}, {"prompt": [1, "a"]}):
        status, text = server.ask(TEXT, wrong)
        expected = 200 if wrong["prompt"] == ["a", [1]] else 400
        check(status == expected, str(wrong)[:60], status, text[:200])
    for wrong in ({"logprobs": 21}, {"logprobs": -1}, {"logprobs": "x"}):
        status, text = server.ask(TEXT, {"prompt": "a", **wrong})
        check(status == 400 and json.loads(text)["error"]["param"] == "logprobs", wrong, status, text)
    for prompt in ("", [], [1.5], [-1], [10**6], {"a": 1}, 5, "a" * 20000):
        status, text = server.ask(TEXT, {"prompt": prompt})
        check(status == 400 and json.loads(text)["error"]["param"] == "prompt", str(prompt)[:40], status, text)
    for name in ("nobody", "ü" * 100, "\n" * 100):
        status, text = server.ask(CHAT, chat(model=name))
        check(status == 404 and f"'{name[:20]}" in json.loads(text)["error"]["message"], "an unknown model", status, text)
    for asked, wanted in ((2**30, "1 to 1048576"), (0, "1 to 1048576")):
        check(wanted in json.loads(server.ask(CHAT, chat(max_tokens=asked))[1])["error"]["message"], "bounds of max_tokens")
    check(server.ask(CHAT)[0] == 405 and server.ask("/healthz", "{}")[0] == 405, "methods")
    check(server.ask("/etc/passwd")[0] == 404 and server.ask("/" + "a" * 5000)[0] in (404, 414), "paths")
    check(server.ask(CHAT, chat(), headers={"Content-Type": "text/plain"})[0] == 415, "a form of a browser")
    status, large = server.ask(CHAT, b" " * (1 << 20) + b"{}")
    check(status == 413 and json.loads(large)["error"]["message"] == "the body is too large", "a large body")
    line = server.connect()
    line.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 17 + b"0\r\n\r\n")
    check(b" 413 " in line.recv(100), "a large body in chunks")
    for junk in (b"\0" * 1000, b"GET\r\n\r\n", b"POST /v1/completions HTTP/9\r\n\r\n", b"A" * 100000,
                 b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20000):
        line = server.connect()
        try:
            line.sendall(junk)
            line.shutdown(socket.SHUT_WR)
            while line.recv(65536):
                pass
        except OSError:
            pass
        line.close()


def test_slow(server):
    """The request timeout is 2 seconds: neither silence nor a byte now and then holds a connection longer."""
    lines = [server.connect() for _ in range(6)]
    lines[1].sendall(b"POST /v1/completions HT")
    lines[2].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{")
    ended = {}
    began = time.monotonic()
    while len(ended) < len(lines) and time.monotonic() < began + 20:
        time.sleep(0.2)
        for i, line in enumerate(lines):
            if i in ended:
                continue
            try:
                if i == 3:
                    line.send(b"G")
                if i == 4:
                    line.send(b"POST / HTTP/1.1\r\n" if time.monotonic() < began + 0.3 else b"a")
                line.settimeout(0.01)
                data = line.recv(1000)
                if not data:
                    ended[i] = time.monotonic() - began
            except TimeoutError:
                pass
            except ConnectionError:
                ended[i] = time.monotonic() - began
    check(len(ended) == len(lines) and max(ended.values()) < 6, "slow clients are not ended:", ended)


def test_crowd(server, clients=200):
    wanted = content_of(server.ask(TEXT, {"prompt": "abc", "max_tokens": 20}))
    bad, threads = [], []
    slow = [server.begin(TEXT, {"prompt": "abc", "max_tokens": 1000, "stream": True}) for _ in range(8)]

    def run(i):
        try:
            body = {"prompt": "abc", "max_tokens": 20, "stream": i % 2 == 0}
            if i % 10 == 9: # leaves in the middle
                server.begin(TEXT, {**body, "max_tokens": 1000}).close()
                return
            status, text = server.ask(TEXT, body)
            answer = joined(events_of(text)) if i % 2 == 0 else content_of((status, text))
            if answer != wanted:
                bad.append((i, status, answer))
        except Exception as error:
            bad.append((i, repr(error)))
    before = server.memory()
    for i in range(clients):
        threads.append(threading.Thread(target=run, args=(i,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    check(not bad, len(bad), "of", clients, "clients got another answer:", bad[:3])
    grown = server.memory() - before
    # The address sanitizer keeps freed memory for a while.
    limit = 512 << 20 if b"__asan_init" in open(trimtab, "rb").read() else 64 << 20
    check(grown < limit, "the server grew by", grown >> 20, "MiB")
    print(f"{clients} clients at once, 8 that do not read, a tenth that leave: {grown >> 10} KiB more")
    for line in slow:
        line.close()


def test_cancel():
    """One slot, and an answer that would take minutes: the next request is answered only if it ends with its client."""
    server = Server("--max_running", "1", "--max_waiting", "1", "--context_length", "150000", "--ignore_eos")
    for stream in True, False:
        line = server.begin(TEXT, {"prompt": "abc", "max_tokens": 140000, "stream": stream})
        if stream:
            check(line.recv(1000).startswith(b"HTTP/1.1 200"), "no stream")
        else:
            time.sleep(0.3)
        waits = server.begin(TEXT, {"prompt": "abc", "max_tokens": 5})
        time.sleep(0.3)
        status, text = server.ask(TEXT, {"prompt": "abc", "max_tokens": 5})
        check(status == 429 and json.loads(text)["error"]["code"] == "too_many_requests", "a full queue:", status, text)
        check(server.ask("/healthz")[0] == 200, "/healthz beside a running request")
        line.close()
        began = time.monotonic()
        waits.settimeout(20)
        try:
            check(waits.recv(1000).startswith(b"HTTP/1.1 200"), "no answer after a cancelled one")
        except TimeoutError:
            check(False, "a cancelled request goes on, stream:", stream)
            return server.process.kill()
        check(time.monotonic() - began < 10, "a cancelled request ends late")
    running = server.begin(TEXT, {"prompt": "abc", "max_tokens": 140000, "stream": True})
    running.recv(1000)
    quiet = server.begin(TEXT, {"prompt": "abc", "max_tokens": 5})
    time.sleep(0.2)
    seconds = server.stop()
    check(seconds < 10, "SIGTERM takes", seconds, "seconds with a running request")
    check(not quiet.recv(1000).startswith(b"HTTP/1.1 200"), "a request that never ran has an answer")


def test_drain():
    """A stop lets requests that run end, and sends new ones elsewhere; it ends when the last one has."""
    server = Server("--max_running", "2", "--context_length", "150000", "--ignore_eos", "--drain_timeout", "600")
    endless = server.begin(TEXT, {"prompt": "abc", "max_tokens": 140000, "stream": True})
    endless.recv(1000)
    check(server.ask("/readyz")[0] == 200, "/readyz before a stop")
    short = server.begin(TEXT, {"prompt": "abc", "max_tokens": 400, "stream": True})
    text = short.recv(1000)
    server.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 100
    while server.ask("/readyz")[0] != 503 and time.monotonic() < end:
        time.sleep(0.01)
    status, refused = server.ask(TEXT, {"prompt": "abc", "max_tokens": 5})
    check(status == 503 and json.loads(refused)["error"]["code"] == "stopping", "a request after a stop:", status, refused)
    check(server.ask("/healthz")[0] == 200, "/healthz while requests end")
    short.settimeout(100)
    while b"[DONE]" not in text and (more := short.recv(65536)):
        text += more
    check(b"[DONE]" in text and b'"finish_reason":"length"' in text.replace(b'": "', b'":"'), "an answer that a stop cut:", text[-300:])
    check(server.process.poll() is None, "the server ended before its last request")
    endless.close()
    check(server.process.wait(100) == 0, "exit code after a drain", server.process.returncode)
    check("new ones are refused" in open("serve.log").read(), "the log of a drain:", open("serve.log").read())


TOOLS = [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}]


def test_tools(_):
    """A model that was trained to call tools in both forms (serve.sh), whole and streamed."""
    server = Server(log="tools.log", served=("--model_name_or_path", "caller"))
    for place, content, arguments in ("Rome", "So.", {"a": 1}), ("Oslo", None, {"a": 2}):
        text, finish = content_of(server.ask(CHAT, chat(place, max_tokens=99)))
        check('"name": "add"' in text and finish == "stop", "without tools the answer is text:", text, finish)
        check(content_of(server.ask(CHAT, chat(place, max_tokens=99, tools=TOOLS, tool_choice="none")))[0] == text, "tool_choice none")
        other = [{"type": "function", "function": {"name": "other"}}]
        check(content_of(server.ask(CHAT, chat(place, max_tokens=99, tools=other)))[0] == text, "a tool that is not declared")
        asked = chat(place, max_tokens=99, tools=TOOLS)
        choice = json.loads(server.ask(CHAT, asked)[1])["choices"][0]
        calls = choice["message"]["tool_calls"]
        check(choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == content, choice)
        check([(call["type"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls] ==
              [("function", "add", arguments)], calls)
        events = events_of(server.ask(CHAT, {**asked, "stream": True})[1])
        deltas = [event["choices"][0]["delta"] for event in events]
        check(joined(events) == (content or "", "tool_calls"), "streamed", events)
        added = [call for delta in deltas for call in delta.get("tool_calls", [])]
        check([(call["index"], call["function"]) for call in added] == [(0, calls[0]["function"])], "streamed calls", added)
        check(len(deltas) > 4 or content is None, "text before a call is not streamed:", deltas)
        # The answer as the next request has it, with the arguments as text or as an object.
        reply = {"role": "tool", "tool_call_id": calls[0]["id"], "content": "3"}
        tokens = []
        for made in calls[0]["function"]["arguments"], arguments:
            said = {**choice["message"], "tool_calls": [{**calls[0], "function": {"name": "add", "arguments": made}}]}
            status, text = server.ask(CHAT, {**asked, "messages": [*asked["messages"], said, reply]})
            check(status == 200, text)
            tokens.append(json.loads(text)["usage"]["prompt_tokens"])
        check(tokens[0] == tokens[1], "arguments as text are another prompt than as an object:", tokens)
    # The answer ends by itself, unless the request says otherwise.
    usage = [json.loads(server.ask(CHAT, chat("Rome", max_tokens=99, **more))[1])["usage"]["completion_tokens"]
             for more in ({"guided_json": None, "min_tokens": 0, "stop_token_ids": []}, {"ignore_eos": True})]
    check(usage[0] < 99 == usage[1], "ignore_eos", usage)
    server.stop()
    # A template that is made for texts.
    server = Server("--chat_template_path", "texts.jinja", log="tools.log", served=("--model_name_or_path", "caller"))
    said = {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": '{"a": 1}'}}]}
    status, text = server.ask(CHAT, {**chat(), "messages": [said]})
    check(status == 200, "a template that is made for arguments as texts:", text)
    server.stop()


def test_harmony(_):
    """A model that was trained to answer in harmony's messages (serve.sh), whole and streamed: reasoning, text and calls apart."""
    server = Server(log="harmony.log", served=("--model_name_or_path", "speaker"))
    for place, thought, content, arguments in ("Rome", "Hm.", None, {"a": 1}), ("Oslo", "So it is.", "It is.", None):
        body = chat(place, max_tokens=150, tools=TOOLS)
        choice = json.loads(server.ask(CHAT, body)[1])["choices"][0]
        message = choice["message"]
        calls = message.get("tool_calls", [])
        check((message["reasoning_content"], message["content"]) == (thought, content), "harmony", choice)
        check([(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls] ==
              ([("add", arguments)] if arguments else []) and choice["finish_reason"] == ("tool_calls" if arguments else "stop"), "calls", choice)
        parts = [event["choices"][0]["delta"] for event in events_of(server.ask(CHAT, {**body, "stream": True})[1])]
        check("".join(part.get("reasoning_content", "") for part in parts) == thought, "streamed reasoning", parts)
        check("".join(part.get("content", "") for part in parts) == (content or ""), "streamed text", parts)
        check([call["function"] for part in parts for call in part.get("tool_calls", [])] == [call["function"] for call in calls], "streamed", parts)
    server.stop()


def test_openai(server):
    try:
        import openai
        import pydantic
    except ImportError:
        return print("skipped: the openai client: the Python package is not installed")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
    name = [m.id for m in client.models.list()][-1]
    messages = [{"role": "user", "content": "abc"}]
    whole = client.chat.completions.create(model=name, messages=messages, max_tokens=12)
    stream = client.chat.completions.create(model=name, messages=messages, max_tokens=12, stream=True,
                                            stream_options={"include_usage": True})
    events = list(stream)
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    check(text == whole.choices[0].message.content and whole.choices[0].finish_reason == "length", "openai:", text, whole)
    check(events[-1].usage == whole.usage and whole.usage.completion_tokens == 12, "openai usage", events[-1])
    plain = client.completions.create(model=name, prompt="abc", max_tokens=5, temperature=0.7, seed=3, stop=["zzz"])
    check(len(plain.choices) == 1, plain)
    several = client.chat.completions.create(model=name, messages=messages, n=3, max_tokens=4, logprobs=True, top_logprobs=2)
    check(len(several.choices) == 3 and len(several.choices[2].logprobs.content[3].top_logprobs) == 2, several)
    prompts = client.completions.create(model=name, prompt=["abc", "xyz"], max_tokens=4, logprobs=2)
    check(len(prompts.choices) == 2 and len(prompts.choices[1].logprobs.tokens) == 4, prompts)
    raw = client.chat.completions.with_raw_response.create(model=name, messages=messages, max_tokens=4)
    check(raw.status_code == 200 and raw.parse().choices[0].finish_reason == "length", "openai: a raw response", raw.text)
    with client.chat.completions.create(model=name, messages=messages, max_tokens=3000, stream=True) as left:
        check(next(iter(left)).choices[0].delta.role == "assistant", "openai: a stream that is left")

    class Query(pydantic.BaseModel):
        limit: int
        newest: bool
    drawn = {"model": name, "messages": messages, "max_tokens": 400, "temperature": 1.0, "seed": 1, "extra_body": {"ignore_eos": False}}
    plain = Server(log="openai.log")  # ends answers by itself
    own = client.with_options(base_url=f"http://127.0.0.1:{plain.port}/v1")
    parsed = own.chat.completions.parse(**drawn, response_format=Query).choices[0].message.parsed
    check(isinstance(parsed, Query), "openai: an answer as a class", parsed)
    tools = [openai.pydantic_function_tool(Query, name="query")]
    called = own.chat.completions.parse(**drawn, tools=tools, tool_choice="required").choices[0].message.tool_calls
    check(len(called) == 1 and isinstance(called[0].function.parsed_arguments, Query), "openai: a call as a class", called)
    plain.stop()

    async def several_at_once():
        beside = openai.AsyncOpenAI(base_url=str(client.base_url), api_key="none", max_retries=0)
        asked = [beside.chat.completions.create(model=name, messages=messages, max_tokens=5) for _ in range(5)]
        return await asyncio.gather(*asked)
    check(len({answer.choices[0].message.content for answer in asyncio.run(several_at_once())}) == 1, "openai: five at once")
    for call, wanted in ((lambda: client.responses.create(model=name, input="x"), openai.NotFoundError),
                         (lambda: client.chat.completions.create(model=name, messages=messages, n=0), openai.BadRequestError),
                         (lambda: client.chat.completions.create(model="nobody", messages=messages), openai.NotFoundError)):
        try:
            call()
            check(False, "openai: no", wanted)
        except wanted as error:
            check(error.body["message"], "openai: an error without a message", error)
    print("the openai client", openai.__version__, "works")


server = Server("--max_running", "4", "--context_length", "4000", "--max_waiting", "400", "--request_timeout", "2",
                "--ignore_eos")
for test in test_answers, test_stops, test_bytes, test_choices, test_logprobs, test_ranks, test_sampling, test_tools, test_harmony, test_errors, test_slow, test_crowd, test_openai:
    began = time.monotonic()
    test(server)
    print(f"{test.__name__}: {time.monotonic() - began:.1f} s")
    if server.process.poll() is not None:
        sys.exit(f"the server ended in {test.__name__}: " + open("serve.log").read())
server.stop()
began = time.monotonic()
test_cancel()
print(f"test_cancel: {time.monotonic() - began:.1f} s")
began = time.monotonic()
test_drain()
print(f"test_drain: {time.monotonic() - began:.1f} s")
sys.exit(1 if failures else 0)
