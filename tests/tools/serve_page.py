"""The chat page of `trimtab serve`: serve_page.py TRIMTAB MODEL ADAPTERS PICTURES. What the server answers at its address,
and, where there is a browser, a conversation by keys and pointer beside the same requests of a client. MODEL answers Rome
with reasoning and a call of a tool, and Oslo with markup. Prints what fails; exit code 1."""
import json
import math
import os
import re
import shutil
import sys
import time

from browser import Browser
from served import CHAT, JSON, Server, adapter, check, failures, model

pictures = sys.argv[4]
NAMES = ["model", *(os.path.basename(name) for name in adapter.split(","))]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}]
MARKUP = "<script>document.title=1</script><img src=x onerror=document.title=2>"


def cells(turn, name=None):
    one = f'[data-model="{name}"]' if name else ""
    return f"[...document.querySelectorAll('.turn')][{turn}].querySelectorAll('.answer{one}')"


def cell(turn, name):
    return cells(turn, name) + "[0]"


def text_of(browser, turn, name):
    return browser.value(f"[...{cell(turn, name)}.querySelectorAll('.content')][0].textContent")


def send(browser, text, turn, state="ended"):
    """Types a message and sends it; waits for all answers of the turn."""
    browser.fill("document.querySelector('#message')", text)
    browser.press("Enter")
    browser.wait(f"document.querySelectorAll('.turn').length > {turn}")
    browser.wait("document.body.dataset.running === '0'", 100)
    states = browser.value(f"[...{cells(turn)}].map(e => e.dataset.state)")
    check(set(states) == {state}, "states of", text, states, browser.value("document.body.innerText"))


def field(browser, name, text):
    browser.fill(f"document.querySelector('#{name}')", text)


def api(server, name, messages, **more):
    status, text = server.ask(CHAT, {"model": name, "messages": messages, "logprobs": True, "top_logprobs": 5, **more})
    check(status == 200, "the client's request", status, text)
    return json.loads(text)["choices"][0]


def user(text):
    return {"role": "user", "content": text}


def test_address(server):
    import http.client
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "/")
    answer = connection.getresponse()
    page = answer.read().decode()
    policy = answer.headers["Content-Security-Policy"]
    check(answer.status == 200 and answer.headers["Content-Type"].startswith("text/html"), answer.status, answer.headers)
    check(re.search(r"script-src 'sha256-[\w+/]{43}='; ", policy) and "default-src 'none'" in policy and "unsafe" not in policy and
          "frame-ancestors 'none'" in policy, policy)
    check(len(page) < 40000 and not re.search(r"https?://|\bsrc=|innerHTML|insertAdjacent|document\.write|eval\(|localStorage|sessionStorage|"
                                              r"cookie", page), "the page loads or keeps something, or makes markup of texts")
    check(server.ask("/", method="HEAD")[0] == 200 and server.ask("/", {"a": 1})[0] == 405, "methods of /")
    check(server.ask("/", headers={"Host": "evil.example"})[0] == 403, "another name is answered")


def test_off():
    server = Server("--chat_page", "false", log="off.log")
    status, text = server.ask("/")
    check(status == 404 and "there is nothing here" in json.loads(text)["error"]["message"], "chat_page false", status, text)
    check("page to talk" not in open("off.log").read(), "the log names a page that is not there")
    server.stop()


def test_conversation(browser, server):
    browser.open(f"http://127.0.0.1:{server.port}/")
    browser.wait("document.querySelectorAll('.model').length === 3")
    pressed = "[...document.querySelectorAll('.model')].filter(e => e.ariaPressed === 'true').map(e => e.textContent)"
    check(browser.value(pressed) == NAMES[:2], "the models at first", browser.value(pressed))
    browser.click("document.querySelectorAll('.model')[2]")
    check(browser.value(pressed) == NAMES, "a model that is chosen", browser.value(pressed))

    # Shift+Enter is a new line; the text of an answer grows.
    browser.click("document.querySelector('#message')")
    browser.type("one")
    browser.press("Enter", shift=True)
    browser.type("two")
    check(browser.value("document.querySelector('#message').value") == "one\ntwo" and browser.value("document.querySelectorAll('.turn').length") == 0,
          "Shift+Enter")
    browser.value("window.grown = [new Set(), new Set(), new Set()], new MutationObserver(() => { "
                  "document.querySelectorAll('.answer .content').forEach((e, i) => i < 3 && grown[i].add(e.textContent.length)); })"
                  ".observe(document.querySelector('#talk'), {subtree: true, childList: true, characterData: true})")
    slow = {"offline": False, "latency": 0, "downloadThroughput": 40000, "uploadThroughput": -1}  # else all is there at once
    browser.ask("Network.emulateNetworkConditions", **slow)
    send(browser, "Oslo", 0)
    browser.ask("Network.emulateNetworkConditions", **{**slow, "downloadThroughput": -1})
    sizes = browser.value("grown.map(each => each.size)")
    check(min(sizes) > 2, "the answers do not grow:", sizes)
    wanted = {name: api(server, name, [user("Oslo")]) for name in NAMES}
    check(len({choice["message"]["content"] for choice in wanted.values()}) == 3, "models answer alike, which proves nothing", wanted)
    for name in NAMES:
        check(text_of(browser, 0, name) == wanted[name]["message"]["content"], name, "says", text_of(browser, 0, name))
    check(text_of(browser, 0, "model") == MARKUP, "no markup, which proves nothing:", text_of(browser, 0, "model"))
    check(browser.value("document.title") == "Trimtab" and browser.value("document.querySelectorAll('#talk script, #talk img').length") == 0,
          "a text became markup")
    check(browser.posts[-1]["stream"] is True and browser.posts[-1]["messages"] == [user("Oslo")] and "temperature" not in browser.posts[-1],
          "a request", browser.posts[-1])
    return wanted


def test_tokens(browser, wanted):
    """Every character stands in a token; the pointer shows the probabilities that the API gives."""
    for name in NAMES:
        whole = wanted[name]["message"]["content"]
        woven = browser.value(f"[...{cell(0, name)}.querySelectorAll('.token')].map(e => e.textContent)")
        check("".join(woven) == whole and len(woven) > 5, name, "has characters outside of tokens:", woven, repr(whole))
    for index in 0, 3:
        browser.point(f"{cell(0, 'model')}.querySelectorAll('.token')[{index}]")
        browser.wait("!document.querySelector('#tip').hidden")
        shown = browser.value("[...document.querySelectorAll('#tip .row')].map(e => e.lastChild.textContent)")
        token = wanted["model"]["logprobs"]["content"][index]
        chances = [100 * math.exp(each["logprob"]) for each in token["top_logprobs"]]
        check(len(shown) == 5 and all("<" in text or abs(float(text[:-2]) - chance) < 0.06 for text, chance in zip(shown, chances)), shown, chances)
        check(browser.value("document.querySelector('#tip .taken code').textContent") == token["token"].replace(" ", "\u00b7"), "the token", token)
        check(browser.value("document.querySelector('#tip p').textContent") == f"log p {token['logprob']:.3f}", "log p")
    browser.picture(f"{pictures}/hover.png")
    browser.click(f"{cell(0, 'model')}.querySelectorAll('.token')[3]")
    browser.press("ArrowRight")
    check(browser.value(f"[...{cell(0, 'model')}.querySelectorAll('.token')].indexOf(document.querySelector('.held'))") == 4, "an arrow")
    browser.press("Escape")
    check(browser.value("document.querySelector('#tip').hidden"), "Escape leaves the tip")


def test_settings(browser, server):
    """Sampling settings reach the request; a wrong one is an error in place; the next message tries again."""
    browser.click("document.querySelector('#tune')")
    for name, text in ("temperature", "0.8"), ("top_k", "7"), ("seed", "5"), ("max_tokens", "9"), ("presence_penalty", "0.5"), ("system", "Be."):
        field(browser, name, text)
    send(browser, "Bern", 1)
    more = {"temperature": 0.8, "top_k": 7, "seed": 5, "max_tokens": 9, "presence_penalty": 0.5}
    post = browser.posts[-1]
    check({name: post.get(name) for name in more} == more, "settings", post)
    check([each["role"] for each in post["messages"]] == ["system", "user", "assistant", "user"], "messages", post)
    choice = api(server, NAMES[2], post["messages"], **more)
    check(text_of(browser, 1, NAMES[2]) == choice["message"]["content"], "a drawn answer", text_of(browser, 1, NAMES[2]), choice["message"])
    field(browser, "temperature", "9")
    send(browser, "Rome", 2, "failed")
    check("temperature" in browser.value(f"{cell(2, 'model')}.querySelector('.error').textContent"), "no error in place")
    field(browser, "temperature", "much")
    browser.click(f"{cell(2, 'model')}.querySelector('button')")
    browser.wait(f"{cell(2, 'model')}.querySelector('.error').textContent.includes('is no number')")
    for name in "temperature", "top_k", "seed", "max_tokens", "presence_penalty", "system":
        field(browser, name, "")
    field(browser, "tools", "{")
    browser.click(f"{cell(2, 'model')}.querySelector('button')")
    browser.wait(f"{cell(2, 'model')}.querySelector('.error').textContent.startsWith('Tools: ')")


def test_edits(browser, server):
    """An edited message takes the later turns away; tools, reasoning, and the result of a call."""
    field(browser, "tools", json.dumps(TOOLS))
    browser.click("document.querySelector('.turn .asked button')")
    browser.fill("document.querySelector('.asked textarea')", "Rome")
    browser.press("Enter")
    browser.wait("document.querySelectorAll('.turn').length === 1")
    browser.wait("document.body.dataset.running === '0'", 100)
    choice = api(server, "model", [user("Rome")], tools=TOOLS)["message"]
    call = choice["tool_calls"][0]
    shown = cell(0, "model")
    check(browser.value(f"{shown}.querySelector('.call b').textContent") == call["function"]["name"] == "add", "the call", choice)
    check(json.loads(browser.value(f"{shown}.querySelector('.call pre').textContent")) == json.loads(call["function"]["arguments"]), "arguments")
    check(browser.value(f"{shown}.querySelector('.thought .text').textContent") == choice["reasoning_content"] != "", "reasoning", choice)
    check(browser.value(f"{shown}.querySelectorAll('.thought .token').length") > 3, "the reasoning has no tokens")
    check(text_of(browser, 0, "model") == (choice["content"] or ""), "the text beside a call", text_of(browser, 0, "model"))
    browser.picture(f"{pictures}/calls.png")
    browser.fill(f"{shown}.querySelector('.call textarea')", "3")
    posts = len(browser.posts)
    browser.press("Enter")
    browser.wait("document.querySelectorAll('.turn').length === 2 && document.body.dataset.running === '0'")
    roles = [[each["role"] for each in post["messages"]] for post in browser.posts[posts:]]
    check(roles == [["user", "assistant", "tool"]], "messages with a result", roles)
    check(browser.posts[-1]["messages"][2]["content"] == "3" and browser.posts[-1]["messages"][1]["tool_calls"][0]["id"] == browser.posts[-1]["messages"][2]["tool_call_id"],
          "the result", browser.posts[-1])
    # Once more from the first turn: the later answer of this model goes, those of the others stay.
    posts = len(browser.posts)
    browser.click(f"{cell(0, NAMES[1])}.querySelector('button')")
    browser.wait("document.body.dataset.running === '0'")
    check([post["model"] for post in browser.posts[posts:]] == [NAMES[1]], "regenerate asks", browser.posts[posts:])
    check(text_of(browser, 0, NAMES[1]) == api(server, NAMES[1], [user("Rome")], tools=TOOLS)["message"]["content"], "regenerate")
    # The turn with a result asked one model alone; the next message asks all.
    send(browser, "Bern", 2)
    last = {post["model"]: [each["role"] for each in post["messages"]] for post in browser.posts[-3:]}
    check(last == {name: ["user", "assistant", *(["tool", "assistant"] if name == "model" else []), "user"] for name in NAMES},
          "messages behind a result", last)


def test_widths(browser):
    """A phone, with and without the settings, and both schemes."""
    back = "getComputedStyle(document.body).backgroundColor"
    browser.scheme("light")
    light = browser.value(back)
    browser.picture(f"{pictures}/light.png")
    browser.scheme("dark")
    check(browser.value(back) != light, "dark is light")
    browser.picture(f"{pictures}/dark.png")
    wide = "Math.max(document.documentElement.scrollWidth, document.querySelector('#talk').scrollWidth)"
    for shown in False, True:
        browser.resize(390, 800)
        if browser.value("document.querySelector('#settings').hidden") == shown:
            browser.value("toggleSettings()")
        check(browser.value(wide) <= 390, "on a phone the page is too wide:", browser.value(wide), "settings" if shown else "")
        browser.picture(f"{pictures}/phone{'-settings' if shown else ''}.png")
    browser.resize(1280, 900)


def test_keys(browser):
    """A key is asked for; a wrong one is said; a stopped answer stays and its generation ends."""
    with open("keys.txt", "w") as file:
        file.write("sk-right\n")
    server = Server("--api_key_file", "keys.txt", "--ignore_eos", "--context_length", "150000", log="keys.log")
    check(server.ask("/")[0] == 200 and server.ask("/v1/models")[0] == 401, "the page needs a key")
    browser.open(f"http://127.0.0.1:{server.port}/")
    for key, wanted in ("sk-wrong", "document.querySelector('.key .error') !== null"), ("sk-right", "document.querySelectorAll('.model').length === 3"):
        browser.wait("document.activeElement.type === 'password'")
        browser.type(key)
        browser.press("Enter")
        browser.wait(wanted)
    check(browser.value("JSON.stringify([localStorage, sessionStorage, document.cookie])") == '[{},{},""]', "the key is kept")
    browser.click("document.querySelector('#tune')")
    field(browser, "max_tokens", "100000")
    for end in ("press", "Escape"), ("click", "document.querySelector('#stop')"):
        turn = browser.value("document.querySelectorAll('.turn').length")
        browser.fill("document.querySelector('#message')", "Bern")
        browser.press("Enter")
        browser.wait(f"document.querySelectorAll('.turn').length > {turn} && [...{cells(turn)}].every(e => e.querySelectorAll('.token').length > 20)")
        getattr(browser, end[0])(end[1])
        browser.wait(f"[...{cells(turn)}].every(e => e.dataset.state === 'stopped')")
        check(browser.value(f"{cell(turn, 'model')}.querySelectorAll('.token').length") > 20, "a stopped answer is gone")
        stopped, ended = 2 * (turn + 1), 0
        for _ in range(200):
            found = re.search(r'trimtab_serve_answers_total\{end="cancelled"\} (\d+)',
                              server.ask("/metrics", headers={**JSON, "Authorization": "Bearer sk-right"})[1].decode())
            ended = int(found[1])
            if ended == stopped:
                break
            time.sleep(0.05)
        check(ended == stopped, "generations that were stopped:", ended, "of", stopped)
    check("sk-right" not in open("keys.log").read(), "the log has a key")
    # A server that is gone: the error stands in place.
    server.stop()
    send(browser, "Bern", 2, "failed")
    check("does not answer" in browser.value(f"{cell(2, 'model')}.querySelector('.error').textContent"), "a server that is gone")


def main():
    server = Server()
    try:
        test_address(server)
        test_off()
        if shutil.which("chromium") is None:
            print("without a browser: chromium is not installed")
            return
        browser = Browser(os.path.abspath("browser"))
        try:
            said = test_conversation(browser, server)
            test_tokens(browser, said)
            test_settings(browser, server)
            test_edits(browser, server)
            test_widths(browser)
            test_keys(browser)
            check(not browser.problems, "the browser reports", browser.problems)
        finally:
            browser.close()
    finally:
        server.stop()


main()
sys.exit(1 if failures else 0)
