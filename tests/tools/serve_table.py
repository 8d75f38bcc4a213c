"""docs/openai-api.md against `trimtab serve`: serve_table.py TRIMTAB MODEL ADAPTER ROOT. Members that are served at one value
only are sent with it and with another; rows and the server's own table must have the same names; each test that a row names
must exist. Prints what fails; exit code 1."""
import glob
import json
import os
import re
import sys

from served import CHAT, TEXT, Server, chat, check, failures

root = sys.argv[4]
OTHER = {"a": 1}
BODIES = {"chat": (CHAT, chat(max_tokens=1)), "prompts": (TEXT, {"prompt": "a", "max_tokens": 1}),
          "`/tokenize`": ("/tokenize", {"messages": chat()["messages"]}), "`/detokenize`": ("/detokenize", {"tokens": [5]})}


def rows_of(page):
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) == 5:
            yield [name.strip("` ") for name in cells[0].split(",")], *cells[2:]


def addresses_of(page):
    """Rows of four cells: addresses and headers, with the test that asks there."""
    constants = {"/v1/chat/completions": "CHAT", "/v1/completions": "TEXT", "/v1/models/NAME": '"/v1/models/"'}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        names = re.findall(r"`([/A-Z][^`]*)`", cells[0])
        if line.startswith("| ") and len(cells) == 4 and names:
            yield names, [constants.get(name, name) for name in names], cells[2], cells[3]


def check_values(server, name, bodies, served):
    value = json.loads(re.match(r"only `(.*?)`", served)[1])
    for body in ("chat", "prompts") if bodies == "both" else (bodies,):
        path, request = BODIES[body]
        status, text = server.ask(path, {**request, name: value})
        check(status == 200, name, "with", value, "at", path, status, text[:200])
        status, text = server.ask(path, {**request, name: OTHER})
        check(status == 400 and json.loads(text)["error"]["param"] == name, name, "with another value at", path, status, text[:200])


def test_of(names, test):
    """The file of a test, and the function."""
    found = re.fullmatch(r"(serve_\w+\.py) (test_\w+)", test)
    check(found, names, "has no test:", test)
    text = open(os.path.join(root, "tests/tools", found[1])).read() if found else ""
    body = re.search(rf"^def {found[2]}\(.*?(?=^def |^\w+ = |\Z)", text, re.M | re.S) if found else None
    check(body, "there is no", test)
    return text, body[0] if body else ""


def check_test(names, test):
    text, body = test_of(names, test)
    for name in names:
        helpers = "".join(re.findall(r"^def (?!test_).*?(?=^def )", text, re.M | re.S))
        wanted = re.compile(rf'"{name}"|\b{name}=')
        check(wanted.search(body) or wanted.search(helpers), test, "does not send", name)


page = open(os.path.join(root, "docs/openai-api.md")).read()
source = "".join(open(path).read() for path in glob.glob(os.path.join(root, "src/serve/api_*.c")))
known = set(re.findall(r'^    \{(?:\.name = )?"(\w+)", (?:\.forms = )?(?:TT_API_|ANY)', source, re.M)) - {"include_usage", "continuous_usage_stats"}
known -= {"json", "choice", "json_object", "whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"}
known |= {"documents", "chat_template_kwargs"}
listed = [name for names, *_ in rows_of(page) for name in names]
check(known == set(listed), "rows without a member:", set(listed) - known, "members without a row:", known - set(listed))
check(len(known) > 70, "few members, which proves nothing:", known)
server = Server("--max_running", "4", "--context_length", "2000")
for names, bodies, served, test in rows_of(page):
    if test == "this table":
        for name in names:
            check_values(server, name, bodies, served)
    else:
        check_test(names, test)
routes = re.findall(r'^    \{"(/[^"]*)"(.*)', open(os.path.join(root, "src/serve/server.c")).read(), re.M)
answered = {path for path, _ in routes} | {path + "/NAME" for path, rest in routes if ".with_name = true" in rest} | {"Authorization"}
refused = set(re.findall(r'"(/[^"]+)"', re.search(r"others = \((.*?)\)", test_of(["others"], "serve_members.py test_addresses")[1], re.S)[1]))
check(len(answered) > 12 and len(refused) > 8, "few addresses, which proves nothing:", answered, refused)
for names, spellings, served, test in addresses_of(page):
    text, body = test_of(names, test)
    helpers = "".join(re.findall(r"^(?:def (?!test_).*?(?=^def )|[A-Z, ]+ = .*?$)", text, re.M | re.S))
    for spelling in spellings:
        check(spelling in body or spelling in helpers, test, "does not ask", spelling)
    there = answered if served.startswith("yes") else refused
    check(set(names) <= there, "not of the server, which answers", there, ":", names)
    there -= set(names)
check(not answered and not refused, "addresses without a row:", answered, refused)
server.stop()
sys.exit(1 if failures else 0)
