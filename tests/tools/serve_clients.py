"""Clients of `trimtab serve` beside each other: keys, limits and fair shares, figures for scrapers. By Python's standard
library: serve_clients.py TRIMTAB MODEL ADAPTER. Prints what fails; exit code 1."""
import json
import re
import sys
import threading
import time

from served import CHAT, JSON, TEXT, Server, adapter, chat, check, failures, model

SERVED = ("--model_name_or_path", model, "--adapter_name_or_path", adapter)
KEYS = {"ann": ["sk-ann-first", "sk-ann-second"], "bob": ["sk-bob"]}


def with_key(key):
    return {**JSON, "Authorization": f"Bearer {key}"}


def figures(server, headers=JSON):
    status, text = server.ask("/metrics", headers=headers)
    check(status == 200, "/metrics", status, text[:200])
    return {match[1]: float(match[2]) for match in re.finditer(r"^(trimtab_\S+) (\S+)$", text.decode(), re.M)}, text.decode()


def test_keys(_):
    with open("keys.txt", "w") as file:
        file.write("# who may ask\n" + "".join(f"{name} {key}\n" for name, keys in KEYS.items() for key in keys))
    server = Server("--max_running", "2", "--context_length", "2000", "--api_key_file", "keys.txt", log="keys.log")
    body = {"prompt": "abc", "max_tokens": 2}
    for keys in KEYS.values():
        for key in keys:
            check(server.ask(TEXT, body, headers=with_key(key))[0] == 200, "a key is refused")
    for headers in (JSON, with_key("sk-bo"), with_key("sk-bobb"), with_key("ann"), {**JSON, "Authorization": "sk-bob"}, with_key("")):
        for path, sent in ((TEXT, body), (CHAT, chat()), ("/tokenize", {"prompt": "a"}), ("/v1/models", None), ("/metrics", None)):
            status, text = server.ask(path, sent, headers=headers)
            check(status == 401 and json.loads(text)["error"]["code"] == "invalid_api_key", path, headers, status, text)
    for path in "/health", "/healthz", "/readyz":
        check(server.ask(path)[0] == 200, path, "needs a key")
    refused = figures(server, with_key("sk-bob"))[0]['trimtab_serve_refused_requests_total{reason="no_key"}']
    check(refused == 30, "refused requests", refused)
    server.stop()
    log = open("keys.log").read()
    check(not any(key in log for keys in KEYS.values() for key in keys), "the log has a key:", log)


def test_limits(_):
    """A client has at most so many answers here, and others are not kept out by it."""
    server = Server("--max_running", "1", "--context_length", "150000", "--api_key_file", "keys.txt", "--max_per_client", "3",
                    "--ignore_eos", log="limits.log")
    line = server.begin(TEXT, {"prompt": "abc", "max_tokens": 5})
    check(b" 401 " in line.recv(1000), "no key")
    slow = threading.Thread(target=server.ask, args=(TEXT, {"prompt": "abc", "max_tokens": 3000, "n": 3}), kwargs={"headers": with_key("sk-ann-first")})
    slow.start()
    while figures(server, with_key("sk-bob"))[0]["trimtab_serve_answers_running"] < 1:
        time.sleep(0.01)
    status, text = server.ask(TEXT, {"prompt": "abc", "max_tokens": 5}, headers=with_key("sk-ann-second"))
    check(status == 429 and json.loads(text)["error"]["code"] == "client_limit", "a fourth answer of one client", status, text)
    check(server.ask(TEXT, {"prompt": "abc", "max_tokens": 5, "n": 4}, headers=with_key("sk-bob"))[0] == 429, "four answers at once")
    check(server.ask(TEXT, {"prompt": "abc", "max_tokens": 5}, headers=with_key("sk-bob"))[0] == 200, "another client")
    slow.join()
    reasons = figures(server, with_key("sk-bob"))[0]
    check(reasons['trimtab_serve_refused_requests_total{reason="client_limit"}'] == 2, "refused for the limit", reasons)
    check(server.ask(TEXT, {"prompt": "abc", "max_tokens": 5, "n": 3}, headers=with_key("sk-ann-second"))[0] == 200, "after the answers")
    server.stop()


def test_next(_):
    """A client with one place asks again at the last byte of each answer, which it takes for its end: it is never too early,
    and no figure has its last answer as one that runs."""
    server = Server("--max_running", "1", "--max_waiting", "1", "--context_length", "200", "--max_per_client", "1", "--ignore_eos",
                    log="next.log")
    whole = {"prompt": "abc", "max_tokens": 1}
    kinds = {"whole": (TEXT, whole, b"}}"), "stream": (TEXT, {**whole, "stream": True}, b"data: [DONE]"), "refused": (TEXT, {"prompt": ""}, b"}}"),
             "too long": (TEXT, {"prompt": "a" * 300}, b"}}"), "tokens": ("/tokenize", {"prompt": "abc"}, b"}"),
             "unknown": (TEXT, {**whole, "model": "none"}, b"}}")}
    early, shown = dict.fromkeys(kinds, 0), 0
    for turn in range(100):
        for kind, (path, body, last) in kinds.items():
            line, text = server.begin(path, body), b""
            while b" 429 " not in text[:16] and last not in text.partition(b"\r\n\r\n")[2] and (more := line.recv(65536)):
                text += more
            early[kind] += b" 429 " in text[:16]
            shown += kind == "stream" and figures(server)[0]["trimtab_serve_answers_running"] > 0
            line.close()
    check(not any(early.values()) and shown == 0, "a client that knows the end is busy:", early, "times; shown as running:", shown)
    server.stop()


def test_fairness(_):
    """With one place, an answer of a second client runs before the first client's other answers, which came before."""
    server = Server("--max_running", "1", "--context_length", "150000", "--api_key_file", "keys.txt", "--ignore_eos", log="fair.log")
    ended = []

    def ask(name, key, count):
        status, text = server.ask(TEXT, {"prompt": "abc", "max_tokens": 1500, "n": count}, headers=with_key(key))
        check(status == 200, name, status, text[:200])
        ended.append(name)
    threads = [threading.Thread(target=ask, args=("many", "sk-ann-first", 4))]
    threads[0].start()
    while figures(server, with_key("sk-bob"))[0]["trimtab_serve_answers_running"] < 1:
        time.sleep(0.005)
    threads += [threading.Thread(target=ask, args=("same", "sk-ann-second", 1))]
    threads[1].start()
    while figures(server, with_key("sk-bob"))[0]["trimtab_serve_answers_waiting"] < 4:
        time.sleep(0.005)
    threads += [threading.Thread(target=ask, args=("other", "sk-bob", 1))]
    threads[2].start()
    for thread in threads:
        thread.join()
    check(ended[0] == "other" and ended[1] == "many", "the order of the ends", ended)
    server.stop()


def test_metrics(_):
    server = Server("--max_running", "3", "--context_length", "60000", "--ignore_eos", log="metrics.log")
    before, text = figures(server)
    for name in before:
        check(re.fullmatch(r'[a-z_]+(_bucket\{le="[^"]+"\}|_sum|_count|\{(end|reason)="[a-z_]+"\})?', name), "a name", name)
    for family in set(re.findall(r"^# TYPE (\S+) ", text, re.M)):
        check(f"# HELP {family} " in text and (" histogram" in text.split(f"# TYPE {family}")[1][:12] or family in text), family)
    server.ask(TEXT, {"prompt": "abcdef", "max_tokens": 7, "n": 2})
    server.ask(TEXT, {"prompt": "abcdefgh", "max_tokens": 5})
    server.ask(CHAT, chat(n=0))
    after, text = figures(server)

    def grown(name):
        return after[name] - before[name]
    check(grown("trimtab_serve_prompt_tokens_total") == 6 + 8, "tokens of prompts", grown("trimtab_serve_prompt_tokens_total"))
    check(grown("trimtab_serve_generated_tokens_total") == 19, "generated tokens", grown("trimtab_serve_generated_tokens_total"))
    check(grown('trimtab_serve_answers_total{end="length"}') == 3, "answers", after)
    check(grown('trimtab_serve_refused_requests_total{reason="invalid"}') == 1, "invalid requests", after)
    check(after["trimtab_serve_answers_running"] == after["trimtab_serve_answers_waiting"] == 0, "nothing runs", after)
    check(after["trimtab_serve_answers_running_max"] == 3 and 0 < after["trimtab_serve_cache_usage_ratio"] < 0.1, "the cache", after)
    check(grown("trimtab_serve_passes_total") >= 12, "passes", grown("trimtab_serve_passes_total"))
    for name, count in ("queue", 2), ("time_to_first_token", 2), ("request", 2), ("time_per_token", 3):
        family = f"trimtab_serve_{name}_seconds"
        check(grown(family + "_count") == count == grown(family + '_bucket{le="+Inf"}') and grown(family + "_sum") > 0, family)
        buckets = [value for key, value in after.items() if key.startswith(family + "_bucket")]
        check(buckets == sorted(buckets) and len(buckets) == 17, "cumulative buckets of", family, buckets)
    status, text = server.ask("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    check(text.decode().endswith("# EOF\n"), "OpenMetrics", text[-100:])
    check(server.ask("/metrics", "{}")[0] == 405, "POST /metrics")
    line = server.begin(TEXT, {"prompt": "abc", "max_tokens": 50000, "stream": True})
    line.recv(100)
    line.close()
    end = time.monotonic() + 20
    while figures(server)[0]['trimtab_serve_answers_total{end="cancelled"}'] < 1 and time.monotonic() < end:
        time.sleep(0.02)
    check(figures(server)[0]['trimtab_serve_answers_total{end="cancelled"}'] == 1, "a client that left")
    server.stop()


for test in test_keys, test_limits, test_next, test_fairness, test_metrics:
    test(None)
sys.exit(1 if failures else 0)
