#!/usr/bin/env bash
# trimtab chat: answers are those of generate --messages for the same conversation, with history, system message and
# adapter; commands; end tokens of generation_config.json; errors; Ctrl-C in a terminal stops the answer only.
source "$(dirname "$0")/../tools/command_line.sh" "$1"
cp -r "$root/tests/golden/llama3/model" model && cp "$root"/tests/support/tiny_tokenizer/* model/ && chmod -R u+w model
cat >model/chat_template.jinja <<'END'
{% for m in messages %}{{ '<' + m.role + '> ' + m.content + '</s>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}
END
adapter=$root/tests/golden/llama3/adapter_random
settings=(--model_name_or_path model --adapter_name_or_path "$adapter" --max_new_tokens 12)

# talk CODE LINE...: a conversation over a pipe; its output is in `printed` and `err`.
talk() {
    local code=$1 got=0
    shift
    printf '%s\n' "$@" | "$trimtab" chat "${settings[@]}" "${more[@]}" >printed 2>err || got=$?
    [ $got -eq "$code" ] || fail "chat -> exit $got (wanted $code):" "$(cat err)"
}
# answer MESSAGES [flags]: what generate says.
answer() {
    "$trimtab" generate --model_name_or_path model --max_new_tokens 12 --messages "$1" "${@:2}" 2>/dev/null
}
with=(--adapter_name_or_path "$adapter")
more=()
talk 0 'abc' '/quit' 'never'
answer '[{"role": "user", "content": "abc"}]' "${with[@]}" >wanted
cmp printed wanted || fail "another first answer"
[ -s wanted ] || fail "an empty answer proves nothing"
answer '[{"role": "user", "content": "abc"}]' >without
cmp -s wanted without && fail "the adapter changes nothing, which proves nothing"

# A conversation that is answered already is continued all the same.
expect 0 "ends with an answer of the assistant" generate --model_name_or_path model --max_new_tokens 2 \
    --messages '[{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "2"}]'

if command -v python3 >/dev/null; then
    talk 0 'abc' 'def'
    python3 - wanted >rows.jsonl <<'END'
import json, sys
first = [{"role": "user", "content": "abc"}]
said = {"role": "assistant", "content": open(sys.argv[1], newline="").read()[:-1]}
for messages in first, first + [said, {"role": "user", "content": "def"}]: print(json.dumps({"messages": messages}))
END
    "$trimtab" generate --model_name_or_path model --max_new_tokens 12 --messages rows.jsonl --batch_size 1 "${with[@]}" \
        2>/dev/null | python3 -c 'import json, sys; [print(json.loads(row)["completion"]) for row in sys.stdin]' | cmp printed - ||
        fail "another second answer"
else
    echo "skipped: the second turn: no python3"
fi

talk 0 '/adapter off' 'abc' '/reset' '/adapter on' 'abc' '' '  ' '/reset' '/system be brief' 'abc'
answer '[{"role": "system", "content": "be brief"}, {"role": "user", "content": "abc"}]' "${with[@]}" >brief
cat without wanted brief | cmp printed - || fail "adapter, reset or system message:" "$(cat printed err)"
more=(--system 'be brief')
talk 0 'abc' '/reset' 'abc' '/reset' '/system' 'abc'
cat brief brief wanted | cmp printed - || fail "--system:" "$(cat printed err)"
more=()
talk 0 '//abc'
answer '[{"role": "user", "content": "/abc"}]' "${with[@]}" | cmp printed - || fail "a message that begins with /"
talk 0 '/help'
grep -q '/adapter on|off' err || fail "/help:" "$(cat err)"
# What cannot be obeyed ends a conversation of a pipe: answers behind it would be those of another conversation.
for line in '/nonsense' '/systematic' '/adapter neither'; do
    talk 2 'abc' "$line" 'abc'
    cmp printed wanted || fail "$line: answers" "$(cat printed)"
    grep -qE '^error: (unknown command|/adapter on)' err || fail "$line:" "$(cat err)"
done
printf '/adapter off\n' | "$trimtab" chat --model_name_or_path model >printed 2>err && fail "/adapter without one"
grep -q '^error: no adapter is loaded' err || fail "/adapter without one:" "$(cat err)"

# Every end token of generation_config.json ends an answer.
talk 0 'abc'
if command -v python3 >/dev/null; then
    python3 - <<'END'
import json
end = json.load(open("model/generation_config.json"))
end["eos_token_id"] = list(range(263))
json.dump(end, open("model/generation_config.json", "w"))
END
    talk 0 'abc'
    [ "$(cat printed)" = "" ] || fail "no end token ends the answer:" "$(cat printed)"
    grep -q 'was cut' err && fail "an ended answer counts as cut"
    more=(--ignore_eos)
    talk 0 'abc'
    cmp printed wanted || fail "--ignore_eos"
    grep -q 'cut after 12 tokens' err || fail "nothing says that the answer was cut:" "$(cat err)"
    more=()
fi

# A conversation that is too long, a byte that no text holds, a template that fails: errors of a pipe end it.
more=(--context_length 24)
talk 2 "$(printf 'a%.0s' {1..300})"
grep -q 'no room for an answer in 24' err || fail "a long conversation:" "$(cat err)"
more=()
printf 'a\0b\n' | "$trimtab" chat "${settings[@]}" >printed 2>err && fail "a 0 byte is accepted"
grep -q 'holds a 0 byte' err || fail "a 0 byte:" "$(cat err)"
head -c 1100000 /dev/zero | tr '\0' a | "$trimtab" chat "${settings[@]}" >printed 2>err && fail "a long line is accepted"
grep -q 'more than 1048576 bytes' err || fail "a long line:" "$(cat err)"
echo 'abc' | "$trimtab" chat "${settings[@]}" >/dev/full 2>err && fail "a full disk is not noticed"
mv model/chat_template.jinja saved
expect 0 '' chat "${settings[@]}"
echo abc | "$trimtab" chat "${settings[@]}" >printed 2>err && fail "no template, and an answer"
grep -q 'the tokenizer has none' err || fail "no template:" "$(cat err)"
mv saved model/chat_template.jinja
expect 2 'context_length' chat "${settings[@]}" --context_length 1

if ! command -v python3 >/dev/null; then
    echo "skipped: the terminal: no python3"
    finish
fi
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 200000/' model/config.json
sed -i "1s/^/{% for m in messages if 'refuse this' in m.content %}{{ raise_exception('REFUSED[' + m.content + ']') }}{% endfor %}/" \
    model/chat_template.jinja
cat >terminal.py <<'END'
import os, pty, select, sys, time
child, master = pty.fork()
if child == 0:
    os.execv(sys.argv[1], [sys.argv[1], "chat", "--model_name_or_path", "model", "--ignore_eos", "--max_new_tokens",
                           "100000", "--context_length", "120000"])
seen = b""
def wait(text, since=0):
    global seen
    end = time.monotonic() + 60
    while text not in seen[since:]:
        if time.monotonic() > end: sys.exit(f"no {text!r} in {seen[since:]!r}")
        if select.select([master], [], [], 1)[0]:
            try: seen += os.read(master, 65536)
            except OSError: sys.exit(f"the program ended: {seen[since:]!r}")
    return len(seen)
def wait_for_text(since):
    end = time.monotonic() + 60
    global seen
    while len(seen) < since + 30:
        if time.monotonic() > end: sys.exit("no answer")
        if select.select([master], [], [], 1)[0]: seen += os.read(master, 65536)
wait(b"> ")
for turn in range(2): # the conversation goes on
    at = len(seen)
    os.write(master, b"abc\n")
    wait_for_text(at + 5)
    os.write(master, b"\x03")
    at = wait(b"(stopped)", at)
    wait(b"> ", at - 9)
at = len(seen)
os.write(master, b"half a line\x03") # at the prompt: a hint
wait(b"Ctrl-D ends", at)
at = len(seen)
os.write(master, b"/reset\n")
wait(b"(a new conversation)", at)
wait(b"> ", len(seen) - 2)
at = len(seen)
os.write(master, b"x" * 5000 + b"\n") # more than a line of a terminal holds: not sent in part
wait(b"the terminal cuts lines after 4095 bytes", at)
wait(b"> ", len(seen) - 2)
# A pasted text of several lines is one message: the template that refuses it shows it, and what is typed behind the paste.
at = len(seen)
os.write(master, b"\x1b[200~/first \x1b[31m line\nrefuse this\n\x1b[201~ end\n")
wait(b"REFUSED[/first ", at)
wait(b"refuse this", at)
check = wait(b" end]", at)
if seen[at:].count(b"REFUSED[") != 1: sys.exit(f"a paste is several messages: {seen[at:]!r}")
if b"^[[200~" in seen[at:]: sys.exit("the marks are shown")
wait(b"> ", len(seen) - 2)
os.write(master, b"\x04")
end = time.monotonic() + 60
while time.monotonic() < end:
    if select.select([master], [], [], 0.1)[0]:
        try:
            if not os.read(master, 65536): break
        except OSError: break
_, status = os.waitpid(child, 0)
sys.exit(None if status == 0 else f"exit status {status}")
END
python3 terminal.py "$trimtab" 2>why || fail "in a terminal:" "$(cat why)"
finish
