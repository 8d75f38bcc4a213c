"""Answers of `trimtab serve` that follow a grammar: serve_grammar.py TRIMTAB MODEL ADAPTER. Prints what fails; exit code 1."""
import json
import re
import sys
import time

from served import CHAT, TEXT, Server, chat, check, content_of, events_of, failures, joined

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
}
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"]}}},
    {"type": "function", "function": {"name": "say", "parameters": {
        "type": "object", "properties": {"text": {"type": "string", "maxLength": 5}}, "required": ["text"]}}},
    {"type": "function", "function": {"name": "now"}},
]
DRAW = {"temperature": 1.3, "max_tokens": 400}


def is_person(text):
    value = json.loads(text)
    return (set(value) <= {"name", "age", "tags"} and 1 <= len(value["name"]) <= 8 and type(value["age"]) is int
            and 0 <= value["age"] <= 120 and all(tag in ("a", "b") for tag in value.get("tags", [])) and len(value.get("tags", [])) < 4)


def asked(server, path, seeds=6, **more):
    for seed in range(seeds):
        body = {**(chat() if path == CHAT else {"prompt": "abc"}), **DRAW, "seed": seed, **more}
        status, text = server.ask(path, body)
        check(status == 200, "status", status, text[:300], more)
        if status == 200:
            yield content_of((status, text)), body


def test_members(server):
    """Each member that constrains an answer, in both kinds of request."""
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    strict = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    schemas = [{"response_format": form}, {"response_format": strict}, {"structured_outputs": {"json": PERSON}},
               {"structured_outputs": {"json": json.dumps(PERSON)}}, {"guided_json": PERSON}]
    for path in (CHAT, TEXT):
        for more in schemas:
            for (text, finish), body in asked(server, path, 3, **more):
                check(finish == "stop" and is_person(text), "no person:", text, finish, list(more))
        for more in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
            ended = 0
            for (text, finish), body in asked(server, path, 8, **more):
                check(text.startswith("{"), "no object:", text)
                if finish == "stop":
                    ended += 1
                    check(isinstance(json.loads(text), dict), "no object:", text)
        for more in ({"structured_outputs": {"regex": "[a-c]{3}-\\d+!"}}, {"guided_regex": "[a-c]{3}-\\d+!"}):
            for (text, finish), body in asked(server, path, 3, **more):
                check(finish == "length" or re.fullmatch(r"[a-c]{3}-\d+!", text), "no match:", text)
        for more in ({"structured_outputs": {"choice": ["yes", "no", "nono"]}}, {"guided_choice": ["yes", "no", "nono"]}):
            found = {text for (text, finish), body in asked(server, path, 8, **more) if check(finish == "stop", finish) is None}
            check(found <= {"yes", "no", "nono"} and len(found) > 1, "choices:", found)


def test_streams(server):
    """A stream has the same text; greedy answers and several of a request follow the grammar too."""
    more = {"response_format": {"type": "json_schema", "json_schema": {"schema": PERSON}}}
    for (text, finish), body in asked(server, CHAT, 3, **more):
        streamed = joined(events_of(server.ask(CHAT, {**body, "stream": True})[1]))
        check(streamed == (text, finish), "a stream says", streamed, "not", text)
    answer = json.loads(server.ask(TEXT, {"prompt": ["abc", "x"], "n": 4, "seed": 3, **DRAW, "guided_json": PERSON})[1])
    texts = [choice["text"] for choice in answer["choices"]]
    check(len(set(texts)) > 4 and all(map(is_person, texts)), "choices", texts)
    greedy = content_of(server.ask(TEXT, {"prompt": "abc", "max_tokens": 300, "temperature": 0, "guided_json": PERSON}))
    check(is_person(greedy[0]), "greedy", greedy)
    body = {"prompt": "abc", **DRAW, "seed": 1, "guided_choice": ["yes"], "logprobs": 2}
    choice = json.loads(server.ask(TEXT, body)[1])["choices"][0]
    check(choice["text"] == "yes" and "".join(choice["logprobs"]["tokens"]) == "yes", "log p of a forced answer", choice)
    short = content_of(server.ask(TEXT, {"prompt": "abc", "max_tokens": 3, "seed": 1, "temperature": 1, "guided_json": PERSON}))
    check(short[1] == "length" and "{".startswith(short[0][:1]), "an answer that is cut", short)
    beside = {"prompt": "abc", "max_tokens": 30, "temperature": 1.2, "seed": 5}
    alone = server.ask(TEXT, beside)[1]
    check(json.loads(alone)["choices"] == json.loads(server.ask(TEXT, {**beside, "structured_outputs": {}})[1])["choices"],
          "an empty structured_outputs changes the answer")


def calls_of(answer):
    choice = json.loads(answer[1])["choices"][0]
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in choice["message"].get("tool_calls", [])], choice


def fits(name, arguments):
    if name == "add":
        return set(arguments) == {"a"} and 0 <= arguments["a"] < 100
    return arguments == {} if name == "now" else name == "say" and set(arguments) == {"text"} and len(arguments["text"]) < 6


def test_calls(server, several):
    """Forced calls of tools, in the form of the model's template."""
    names, counts = set(), set()
    for seed in range(12):
        body = {**chat(), **DRAW, "seed": seed, "tools": TOOLS, "tool_choice": "required"}
        calls, choice = calls_of(server.ask(CHAT, body))
        if choice["finish_reason"] != "length":
            check(calls and all(fits(*call) for call in calls) and choice["finish_reason"] == "tool_calls", "calls", choice)
            check(choice["message"]["content"] is None, "text beside forced calls", choice)
        names |= {name for name, _ in calls}
        counts.add(len(calls))
        one, choice = calls_of(server.ask(CHAT, {**body, "parallel_tool_calls": False}))
        check(len(one) == 1 and fits(*one[0]), "one call", choice)
        named, choice = calls_of(server.ask(CHAT, {**body, "tool_choice": {"type": "function", "function": {"name": "say"}}}))
        check(len(named) == 1 and named[0][0] == "say" and fits(*named[0]), "a named call", choice)
        events = events_of(server.ask(CHAT, {**body, "parallel_tool_calls": False, "stream": True})[1])
        streamed = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", [])]
        check([(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in streamed] == one, "streamed", events)
    check(len(names) > 1, "tools that were called:", names)
    check((len(counts) > 1) == several, "numbers of calls:", counts)


NESTED = {"type": "object", "required": ["where", "days"], "properties": {
    "where": {"type": "array", "items": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "enum": ["New York, USA", "{Oslo}: N"]}, "flat": {"type": "boolean"}}, "additionalProperties": False}},
    "days": {"type": "array", "items": {"type": "integer", "minimum": -5, "maximum": 5}},
    "share": {"type": "number", "minimum": 0, "maximum": 1}}}


def nested_lists(depth, item):
    return {"type": "array", "items": nested_lists(depth - 1, item)} if depth > 0 else item


def optional(count):
    return {"type": "object", "properties": {f"a{i}": {"type": "null"} for i in range(count)}}


def test_nested_calls(server):
    """Gemma's values: texts with the form's own marks in them, lists and objects, members that may be left out."""
    tools, kinds, cities = [{"type": "function", "function": {"name": "plan", "parameters": NESTED}}], set(), set()
    for seed in range(16):
        calls, choice = calls_of(server.ask(CHAT, {**chat(), "temperature": 1.3, "max_tokens": 900, "seed": seed, "tools": tools,
                                                   "tool_choice": {"type": "function", "function": {"name": "plan"}}}))
        if choice["finish_reason"] == "length":
            continue
        check(len(calls) == 1 and choice["message"]["content"] is None, "a nested call", choice)
        for name, value in calls:
            check(name == "plan" and {"where", "days"} <= set(value) <= set(NESTED["properties"]), "members", value)
            check(all(type(day) is int and -5 <= day <= 5 for day in value["days"]), "days", value)
            check(all({"city"} <= set(place) <= {"city", "flat"} for place in value["where"]), "places", value)
            cities |= {place["city"] for place in value["where"]}
            kinds.add(tuple(value))
    check(cities == {"New York, USA", "{Oslo}: N"} and len(kinds) > 1, "what was called:", cities, kinds)
    for parameters, words in (({"type": "object", "properties": {"a": {}}}, "without one 'type'"),
                              ({"type": "object", "properties": {"a": {"type": "array"}}}, "without one 'type'"),
                              ({"type": "object", "properties": {"a,b": {"type": "null"}}}, "the key 'a,b'"),
                              ({"type": "object", "minProperties": 1}, "'minProperties'"),
                              ({"type": "object", "additionalProperties": {"type": "null"}}, "additionalProperties"),
                              ({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "null"}, "maxItems": 2}}},
                               "'maxItems'"),
                              (optional(20000), "more than 1024 members"), (optional(1000), "too many"),
                              ({"type": "object", "properties": {"a": nested_lists(11, {"type": "string", "enum": [
                                  f"word {i}" for i in range(400)]})}}, "too many")):
        begin = time.monotonic()
        status, text = server.ask(CHAT, {**chat(), "tool_choice": "required", "tools": [{"type": "function", "function": {
            "name": "f", "parameters": parameters}}]})
        check(status == 400 and words in json.loads(text)["error"]["message"], "refusal of", str(parameters)[:300], status, text)
        check(time.monotonic() - begin < 5, "the refusal took", time.monotonic() - begin, "s")


def test_messages(server):
    """Answers that follow a form are harmony's messages to the reader, of which the client gets the content."""
    form = {"response_format": {"type": "json_schema", "json_schema": {"schema": PERSON}}}
    for (text, finish), body in asked(server, CHAT, 6, **form):
        message = message_of(server, body)
        check(finish == "stop" and is_person(text) and message["content"] == text and not message.get("reasoning_content"), "a person", message)
    for (text, finish), body in asked(server, TEXT, 3, guided_choice=["yes", "no"]):
        check(text in ("yes", "no"), "a prompt has no messages:", text)


def test_random_schemas(server, lines):
    """Random schemas on a model of random weights; jsonschema decides where Python has it, else JSON itself."""
    try:
        import jsonschema
    except ImportError:
        jsonschema = None
    ended = 0
    schemas = {json.dumps(json.loads(line)["schema"]) for line in open(lines)}
    for seed, schema in enumerate(sorted(schemas)):
        body = {"prompt": "abc", "max_tokens": 150, "temperature": 1.5, "seed": seed, "n": 2, "guided_json": json.loads(schema)}
        status, text = server.ask(TEXT, body)
        check(status == 200, "status", status, text[:300], schema)
        for choice in json.loads(text)["choices"] if status == 200 else []:
            if choice["finish_reason"] == "stop":
                value = json.loads(choice["text"])
                ended += 1
                check(jsonschema is None or jsonschema.Draft202012Validator(json.loads(schema)).is_valid(value),
                      "not valid:", choice["text"], schema)
    check(ended > len(schemas) / 2, "few answers ended:", ended, "of", 2 * len(schemas))


def test_refusals(server):
    long = {"type": "string", "maxLength": 10000000}
    for more, param, words in (
            ({"response_format": {"type": "xml"}}, "response_format", "text, json_object or json_schema"),
            ({"response_format": {"type": "json_schema"}}, "response_format", '"schema"'),
            ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}}}, "response_format", "strict"),
            ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}, "response_format", "'not'"),
            ({"structured_outputs": {"json": {"uniqueItems": True}}}, "structured_outputs", "'uniqueItems'"),
            ({"structured_outputs": {"json": "{"}}, "structured_outputs", ""),
            ({"structured_outputs": {"json": 3}}, "structured_outputs", "JSON Schema"),
            ({"structured_outputs": {"regex": "a(?=b)"}}, "structured_outputs", "group"),
            ({"structured_outputs": {"regex": 1}}, "structured_outputs", "regular expression"),
            ({"structured_outputs": {"choice": []}}, "structured_outputs", "list of texts"),
            ({"structured_outputs": {"choice": [1]}}, "structured_outputs", "list of texts"),
            ({"structured_outputs": {"grammar": "root ::= x"}}, "structured_outputs", "'grammar'"),
            ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs", "'structural_tag'"),
            ({"structured_outputs": {"whitespace_pattern": "x"}}, "structured_outputs", "'whitespace_pattern'"),
            ({"structured_outputs": {"json_object": 1}}, "structured_outputs", "true or false"),
            ({"structured_outputs": 5}, "structured_outputs", "an object"),
            ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "both constrain"),
            ({"guided_json": long}, "guided_json", "the grammar takes more than"),
            ({"guided_json": PERSON, "guided_regex": "a"}, "guided_regex", "'guided_json' and 'guided_regex' both constrain"),
            ({"guided_choice": "a"}, "guided_choice", "list of texts"),
            ({"guided_json": False}, "guided_json", "no answer fits"),
            ({"tool_choice": "required"}, "tool_choice", "no 'tools'"),
            ({"tool_choice": "some", "tools": TOOLS}, "tool_choice", "auto, none, required"),
            ({"tool_choice": {"type": "function", "function": {"name": "none"}}, "tools": TOOLS}, "tool_choice", "none of 'tools'"),
            ({"tool_choice": "required", "tools": TOOLS, "guided_choice": ["a"]}, "tool_choice", "both constrain"),
            ({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "parameters": {"if": {}}}}]},
             "tool_choice", "'if'"),
            ({"parallel_tool_calls": 1}, "parallel_tool_calls", "true or false")):
        status, text = server.ask(CHAT, {**chat(), **more})
        error = json.loads(text).get("error", {})
        check(status == 400 and error.get("param") == param and words in error.get("message", ""), "refusal of", more, status, text)
    check(server.ask(TEXT, {"prompt": "a", "max_tokens": 1})[0] == 200, "the server goes on")


def message_of(server, body):
    """The message of an answer, whole and as a stream; both must be the same."""
    message = json.loads(server.ask(CHAT, body)[1])["choices"][0]["message"]
    parts = [event["choices"][0]["delta"] for event in events_of(server.ask(CHAT, {**body, "stream": True})[1])]
    for name in ("content", "reasoning_content"):
        streamed = "".join(part.get(name, "") for part in parts)
        check(streamed == (message.get(name) or ""), name, "of a stream:", streamed, "not", message)
    return message


def test_reasoning(server, inside):
    """Reasoning apart from the text: an answer that a prompt has begun inside of it, one that is outside, one by a grammar."""
    body = {**chat(), "temperature": 1.2, "max_tokens": 40, "seed": 3}
    message = message_of(server, body)
    thought = message.get("reasoning_content", "")
    check((len(thought) > 5 and not message["content"]) == inside and bool(thought) == inside, "reasoning", message)
    whole = (thought or message["content"]).strip()
    cut = whole[2:6].strip()
    stopped = message_of(server, {**body, "stop": cut})
    check((stopped.get("reasoning_content", "") or stopped["content"]).strip() == whole[:whole.index(cut)].strip(), "a stop text", stopped, whole)
    held = message_of(server, {**body, "guided_choice": ["yes", "no"]})
    check(held["content"] in ("yes", "no") and "reasoning_content" not in held, "reasoning beside a grammar", held)


server = Server("--max_new_tokens", "64", log="serve.log")
if sys.argv[4] in ("xml", "gemma"):  # texts are plain there
    status, text = server.ask(CHAT, {**chat(), "tools": TOOLS, "tool_choice": "required"})
    check(status == 400 and "'maxLength' is not supported in calls of this model's form" in text.decode(), status, text)
    TOOLS[1]["function"]["parameters"] = {"type": "object", "properties": {"text": {"type": "string", "enum": ["a b", "c"]}}, "required": ["text"]}
if sys.argv[4] in ("inside", "outside"):
    test_reasoning(server, sys.argv[4] == "inside")
elif sys.argv[4] in ("hermes", "xml", "mistral", "named", "gemma", "harmony"):
    test_calls(server, sys.argv[4] in ("hermes", "xml", "gemma"))
    if sys.argv[4] == "gemma":
        test_nested_calls(server)
    if sys.argv[4] == "harmony":
        test_messages(server)
else:
    test_members(server)
    test_streams(server)
    test_refusals(server)
    test_random_schemas(server, sys.argv[4])
    test_calls(server, False)
server.stop()
sys.exit(1 if failures else 0)
