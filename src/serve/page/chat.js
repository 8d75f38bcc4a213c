"use strict";
/* A conversation is a list of turns: what the user said, and an answer of each model that was asked. Models see their own
   answers only. Texts of models are set as text, never as markup, and nothing is kept beyond the page. */
const FIELDS = [["temperature", "Temperature"], ["top_p", "Top p"], ["top_k", "Top k"], ["min_p", "Min p"],
  ["presence_penalty", "Presence penalty"], ["frequency_penalty", "Frequency penalty"],
  ["repetition_penalty", "Repetition penalty"], ["max_tokens", "Most new tokens"], ["seed", "Seed"]];
const ALTERNATIVES = 5, COLOURS = 8, SHOW_MS = 40;
const byId = id => document.getElementById(id);
const talk = byId("talk"), message = byId("message"), tip = byId("tip"), settings = byId("settings");
let key = "", turns = [], models = [], held = null;
const chosen = new Set(), runs = new Map(); /* names of models; runs: what aborts the model's request */
const tokens = new WeakMap(); /* of an element: the tokens that its text is made of */

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") element.addEventListener(tag === "form" ? "submit" : "click", value);
    else if (name === "hue") element.style.setProperty("--hue", `var(--p${value % COLOURS})`);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}
const hueOf = name => Math.max(0, models.indexOf(name));

/* ---- The server ---- */

class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}
async function refusalOf(answer) {
  const text = await answer.text();
  try { return new Refusal(answer.status, String(JSON.parse(text).error.message)); } catch { /* no JSON */ }
  return new Refusal(answer.status, text.trim() || `the server answered with the status ${answer.status}`);
}
async function ask(path, body, signal) {
  const headers = key === "" ? {} : { Authorization: `Bearer ${key}` };
  let answer;
  if (body) headers["Content-Type"] = "application/json";
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal,
      credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "the server does not answer");
  }
  if (!answer.ok) throw await refusalOf(answer);
  return answer;
}
async function* eventsOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const { value, done } = await reader.read().catch(error => {
      if (error.name === "AbortError") throw error;
      return { done: true };
    });
    if (done) throw new Refusal(0, "the connection ended before the answer");
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      if (part === "data: [DONE]") return;
      if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
    }
  }
}

/* ---- Texts with their tokens ---- */

/* A text that grows, and how much of it stands in elements of tokens; the rest is plain. */
class Woven {
  constructor(place) {
    this.place = place;
    this.text = "";
    this.at = 0;
    this.plain = document.createTextNode("");
    place.append(this.plain);
  }
  get left() { return this.text.length - this.at; }
  /* How many characters a token has here: -1: none; 0: more text must come to tell. */
  match(said) {
    const rest = this.text.slice(this.at, this.at + said.length);
    if (said !== "" && rest === said) return said.length;
    if (rest !== "" && said.startsWith(rest) && rest.length < said.length) return 0;
    const trimmed = said.trimStart(); /* a text may lose the white space that it begins with */
    return this.at === 0 && trimmed !== "" && this.text.startsWith(trimmed) ? trimmed.length : -1;
  }
  put(list, length) {
    const span = make("span", { class: "token" }, this.text.slice(this.at, this.at + length));
    span.style.setProperty("--seen", String(1 - Math.exp(Math.min(...list.map(token => token.logprob)))));
    tokens.set(span, list);
    this.place.insertBefore(span, this.plain);
    this.at += length;
  }
  show() { this.plain.data = this.text.slice(this.at); }
}

/* Places queued tokens in the texts of an answer. Marks of reasoning, calls and ends stand in no text. A character that
   is made of several tokens is one element, which ends where the next token is found. */
function weave(answer, over) {
  const places = [answer.thought, answer.content], open = () => places.filter(place => place.left > 0);
  while (answer.queue.length > 0) {
    const token = answer.queue[0], found = open().map(place => [place, place.match(token.token)]);
    const fits = found.find(([, length]) => length > 0);
    if (!fits && !over && (found.length === 0 || found.some(([, length]) => length === 0))) break;
    answer.queue.shift();
    if (fits && answer.pieces.length === 0) fits[0].put([token], fits[1]);
    else if (token.bytes === null || token.token === "") answer.pieces.push(token);
    else if (answer.pieces.length > 0) endPieces(answer, open(), token);
  }
  const last = open()[0];
  if (over && last && answer.pieces.length > 0 && last.left <= 4 * answer.pieces.length) last.put(answer.pieces, last.left);
  places.forEach(place => place.show());
}
function endPieces(answer, places, token) {
  const pieces = answer.pieces;
  answer.pieces = [];
  for (const place of places) {
    const next = token.token === "" ? -1 : place.text.indexOf(token.token, place.at);
    if (next < place.at || next > place.at + 4 * pieces.length) continue;
    if (next > place.at) place.put(pieces, next - place.at);
    place.put([token], token.token.length);
    return;
  }
}

/* ---- Answers ---- */

function makeAnswer(model) {
  const answer = { model, state: "running", calls: [], count: 0, sum: 0, queue: [], pieces: [], began: performance.now() };
  const thought = make("div", { class: "text" }), content = make("div", { class: "text content" });
  answer.thoughts = make("details", { class: "thought", hidden: true }, make("summary", {}, "Reasoning"), thought);
  answer.note = make("span", { class: "note" }, "waiting");
  answer.again = make("button", { class: "quiet", type: "button", hidden: true, on: () => regenerate(answer) }, "Regenerate");
  answer.tools = make("div", {});
  answer.error = make("p", { class: "error", role: "alert", hidden: true });
  answer.thought = new Woven(thought);
  answer.content = new Woven(content);
  answer.cell = make("article", { class: "answer", "aria-label": `Answer of ${model}`, "data-model": model, hue: hueOf(model) },
    make("div", { class: "title" }, make("b", {}, model), answer.again, answer.note),
    answer.thoughts, content, answer.tools, answer.error);
  answer.cell.dataset.state = "running";
  return answer;
}
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const short = value => String(Number(value.toPrecision(3)));
function writeNote(answer) {
  const parts = [], count = answer.total || answer.count, seconds = ((answer.ended || performance.now()) - answer.first) / 1000;
  if (answer.state === "running" && !answer.first) parts.push("waiting");
  if (count > 0) parts.push(plural(count, "token"));
  if (count > 1 && seconds > 0.2) parts.push(`${short((count - 1) / seconds)} a second`);
  if (answer.count > 0) parts.push(`perplexity ${short(Math.exp(-answer.sum / answer.count))}`);
  if (answer.finish === "length") parts.push("cut at the most tokens");
  if (answer.state === "stopped") parts.push("stopped");
  answer.note.textContent = parts.join(" \u00b7 ");
}
function showCall(answer, call) {
  let text = call.function.arguments;
  try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* shown as it is */ }
  const result = make("textarea", { rows: "1", "aria-label": `Result of ${call.function.name}`, placeholder: "Result, sent with the next message" });
  result.addEventListener("input", () => { call.result = result.value; });
  result.addEventListener("keydown", event => {
    if (sends(event)) byId("composer").requestSubmit();
  });
  answer.tools.append(make("section", { class: "call" }, make("b", {}, call.function.name), make("pre", {}, text), result));
}
function take(answer, event) {
  const choice = event.choices[0];
  if (event.usage) answer.total = event.usage.completion_tokens;
  if (!choice) return;
  const { delta, logprobs } = choice;
  const says = delta.content || delta.reasoning_content || delta.tool_calls;
  if (says && !answer.first) answer.first = performance.now();
  answer.thought.text += delta.reasoning_content || "";
  answer.content.text += delta.content || "";
  for (const call of delta.tool_calls || []) {
    answer.calls.push({ id: call.id, type: "function", function: call.function, result: "" });
    showCall(answer, answer.calls.at(-1));
  }
  for (const token of (logprobs && logprobs.content) || []) {
    answer.queue.push(token);
    answer.count++;
    answer.sum += token.logprob;
  }
  if (choice.finish_reason) answer.finish = choice.finish_reason;
}
/* Shows what has come; the end of the conversation stays in sight if it was. */
function show(answer) {
  const low = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 60;
  answer.late = 0;
  if (answer.state !== "running") return;
  answer.thoughts.hidden = answer.thought.text === "";
  answer.thoughts.open = answer.thought.text !== "" && (answer.content.text === "" || answer.thoughts.open);
  weave(answer, false);
  writeNote(answer);
  if (low) talk.scrollTop = talk.scrollHeight;
}
function end(answer, state, error) {
  show(answer);
  answer.state = answer.cell.dataset.state = state;
  answer.ended = performance.now();
  weave(answer, true);
  answer.error.hidden = !error;
  answer.error.textContent = error || "";
  answer.again.hidden = false;
  writeNote(answer);
}

/* ---- The conversation ---- */

const resultsOf = answer => answer ? answer.calls.filter(call => call.result !== "") : [];
/* The messages of a model up to a turn; null: the turn asks it nothing. */
function messagesOf(model, turn) {
  const system = byId("system").value, messages = system === "" ? [] : [{ role: "system", content: system }];
  let answer = null;
  for (const each of turns) {
    const results = resultsOf(answer);
    for (const call of results) messages.push({ role: "tool", tool_call_id: call.id, name: call.function.name, content: call.result });
    const asks = each.text !== "" || results.length > 0;
    if (each.text !== "") messages.push({ role: "user", content: each.text });
    if (each === turn) return asks ? messages : null;
    if (!asks) continue; /* a turn of results for other models */
    answer = each.answers.get(model);
    const said = { role: "assistant", content: answer.content.text };
    if (answer.calls.length > 0) said.tool_calls = answer.calls.map(({ id, type, function: called }) => ({ id, type, function: called }));
    messages.push(said);
  }
  return messages;
}
/* Members of a request by the settings. Throws where one is no value. */
function sampling() {
  const body = {};
  for (const [name, label] of FIELDS) {
    const text = byId(name).value.trim();
    if (text === "") continue;
    if (!isFinite(Number(text))) throw new Refusal(0, `${label}: "${text}" is no number`);
    body[name] = Number(text);
  }
  if (byId("logprobs").checked) Object.assign(body, { logprobs: true, top_logprobs: ALTERNATIVES });
  const tools = byId("tools").value.trim();
  if (tools === "") return body;
  try { body.tools = JSON.parse(tools); } catch (error) { throw new Refusal(0, `Tools: ${error.message}`); }
  return body;
}
async function generate(model, turn, signal) {
  const messages = messagesOf(model, turn);
  if (messages === null) return true;
  const answer = makeAnswer(model);
  turn.answers.set(model, answer);
  place(turn);
  try {
    const body = { model, messages, stream: true, stream_options: { include_usage: true }, ...sampling() };
    let shown = 0;
    for await (const event of eventsOf(await ask("v1/chat/completions", body, signal))) {
      take(answer, event);
      answer.late = answer.late || setTimeout(show, SHOW_MS, answer);
      if (performance.now() - shown < SHOW_MS) continue;
      await new Promise(go => setTimeout(go)); /* a fast server leaves the page time for keys and drawing */
      shown = performance.now();
    }
    end(answer, "ended");
  } catch (error) {
    const stopped = error.name === "AbortError";
    end(answer, stopped ? "stopped" : "failed", stopped ? null : error.message);
    if (error.status === 401) askKey(error.message);
  }
  return answer.state === "ended";
}
/* A model answers all turns that it has no answer to, or a failed one, one after the other. */
async function run(model) {
  if (runs.has(model)) return;
  const abort = new AbortController();
  runs.set(model, abort);
  showRunning();
  for (const turn of [...turns]) {
    const known = turn.answers.get(model), wanted = turns.includes(turn) && (!known || known.state === "failed");
    if (wanted && !(await generate(model, turn, abort.signal))) break;
  }
  if (runs.get(model) === abort) runs.delete(model);
  showRunning();
}
const runAll = () => models.filter(model => chosen.has(model)).forEach(run);
function stop(names = [...runs.keys()]) {
  for (const name of names) {
    if (runs.has(name)) runs.get(name).abort();
    runs.delete(name);
  }
  showRunning();
}
function showRunning() {
  byId("send").hidden = runs.size > 0;
  byId("stop").hidden = runs.size === 0;
  document.body.dataset.running = runs.size;
}
/* The turn and those behind it lose their answers of these models. */
function forget(turn, names) {
  stop(names);
  for (const each of turns.slice(turns.indexOf(turn))) {
    names.forEach(name => each.answers.delete(name));
    place(each);
  }
}
function regenerate(answer) {
  forget(turns.find(turn => turn.answers.get(answer.model) === answer), [answer.model]);
  run(answer.model);
}
function send(text) {
  const last = turns.at(-1), results = last && models.some(name => chosen.has(name) && resultsOf(last.answers.get(name)).length > 0);
  if (text.trim() === "" && !results) return false;
  if (chosen.size === 0 || runs.size > 0) return false;
  const turn = { text: text.trim() === "" ? "" : text, answers: new Map() };
  turns.push(turn);
  turn.asked = make("div", { class: "asked" });
  turn.row = make("div", { class: "answers" });
  turn.element = make("section", { class: "turn" }, turn.asked, turn.row);
  talk.append(turn.element);
  showAsked(turn);
  runAll();
  talk.scrollTop = talk.scrollHeight;
  return true;
}
function showAsked(turn) {
  turn.asked.replaceChildren(make("button", { class: "quiet", type: "button", on: () => edit(turn) }, "Edit"),
    make("div", { class: "said" }, turn.text));
  turn.asked.hidden = turn.text === "";
}
function edit(turn) {
  const text = make("textarea", { rows: String(Math.min(12, turn.text.split("\n").length + 1)), "aria-label": "Message" });
  const save = () => {
    if (text.value.trim() === "") return;
    stop();
    turn.text = text.value;
    for (const late of turns.splice(turns.indexOf(turn) + 1)) late.element.remove();
    turn.answers.clear();
    place(turn);
    showAsked(turn);
    runAll();
  };
  text.value = turn.text;
  text.addEventListener("keydown", event => {
    if (sends(event)) save();
    else if (event.key === "Escape") showAsked(turn);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  turn.asked.replaceChildren(text, make("button", { type: "button", on: () => showAsked(turn) }, "Cancel"),
    make("button", { class: "main", type: "button", on: save }, "Send"));
  text.focus();
}
/* The answers of the chosen models, in the order of the models. */
function place(turn) {
  const cells = models.filter(name => chosen.has(name)).map(name => turn.answers.has(name) ? turn.answers.get(name).cell :
    make("article", { class: "answer", "data-model": name, "data-state": "none", hue: hueOf(name) },
      make("div", { class: "title" }, make("b", {}, name),
        make("button", { class: "quiet", type: "button", on: () => run(name) }, "Answer"))));
  turn.row.replaceChildren(...cells);
  hideTip();
}

/* ---- Models and keys ---- */

async function readModels() {
  let list;
  try {
    list = (await (await ask("v1/models")).json()).data.map(model => model.id);
  } catch (error) {
    if (error.status === 401) askKey(key === "" ? "" : error.message);
    else if (models.length === 0) showStart(error.message, true);
    return;
  }
  if (turns.length === 0 && talk.childElementCount === 0) showStart();
  if (list.join("\n") === models.join("\n")) return;
  if (chosen.size === 0) list.slice(0, 2).forEach(name => chosen.add(name)); /* the base, and the first adapter */
  for (const name of chosen) if (!list.includes(name)) chosen.delete(name);
  models = list;
  showModels();
  turns.forEach(place);
  if (turns.length === 0) showStart();
}
function showModels() {
  byId("models").replaceChildren(...models.map(name => make("button", { class: "model", type: "button", hue: hueOf(name),
    "aria-pressed": String(chosen.has(name)), on: () => {
      if (!chosen.delete(name)) chosen.add(name);
      showModels();
      turns.forEach(place);
    } }, make("i", { class: "dot" }), make("span", {}, name))));
}
function showStart(text, failed) {
  if (document.querySelector(".key") !== null) return;
  talk.replaceChildren(make("p", { class: failed ? "start error" : "start" },
    text || "Each model that is chosen above answers beside the others."));
  if (failed) talk.append(make("p", { class: "start" }, make("button", { type: "button", on: readModels }, "Try again")));
}
function askKey(text) {
  if (document.querySelector(".key") !== null) return;
  const input = make("input", { type: "password", autocomplete: "off", "aria-label": "API key" });
  const form = make("form", { class: "key", on: event => {
    event.preventDefault();
    key = input.value.trim();
    form.remove();
    readModels().then(runAll);
  } }, make("h2", {}, "API key"), make("p", {}, "This server has keys. It is kept until the page is closed, and nowhere else."),
  make("div", {}, input, make("button", { class: "main", type: "submit" }, "Use")),
  text ? make("p", { class: "error" }, text) : null);
  for (const start of talk.querySelectorAll(".start")) start.remove();
  talk.append(form);
  input.focus();
}

/* ---- Tokens under the pointer ---- */

/* White space and control characters are shown by signs. */
const visible = text => text === "" ? "\u2205" : text.replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5").replace(/ /g, "\u00b7")
  .replace(/[\u0000-\u001f\u007f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, sign => `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`);
const percent = logprob => {
  const p = 100 * Math.exp(logprob);
  return p < 0.01 ? "< 0.01 %" : `${p < 1 ? p.toFixed(2) : p.toFixed(1)} %`;
};
function row(token, taken) {
  const bar = make("i", {});
  bar.style.width = `${100 * Math.exp(token.logprob)}%`;
  return make("div", { class: taken ? "row taken" : "row" }, bar, make("code", {}, visible(token.token)), make("b", {}, percent(token.logprob)));
}
function showTip(span) {
  const list = tokens.get(span), token = list[0], rows = [];
  if (list.length > 1) rows.push(make("p", {}, `${list.length} tokens make this text`), ...list.map(each => row(each, true)));
  else {
    const others = token.top_logprobs || [], same = others.findIndex(each => each.token === token.token && each.logprob === token.logprob);
    rows.push(make("p", {}, `log p ${token.logprob.toFixed(3)}`), ...others.map((each, i) => row(each, i === same)));
    if (same < 0) rows.push(row(token, true));
  }
  tip.replaceChildren(...rows);
  tip.hidden = false;
  const box = span.getClientRects()[0], own = tip.getBoundingClientRect();
  const below = box.bottom + own.height + 10 < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - own.width - 8))}px`;
  tip.style.top = `${below ? box.bottom + 6 : Math.max(8, box.top - own.height - 6)}px`;
}
function hideTip() {
  if (held) held.classList.remove("held");
  held = null;
  tip.hidden = true;
}
function hold(span) {
  hideTip();
  held = span;
  span.classList.add("held");
  span.scrollIntoView({ block: "nearest" });
  showTip(span);
}
const tokenAt = event => event.target instanceof Element ? event.target.closest(".token") : null;
talk.addEventListener("pointerover", event => {
  const span = tokenAt(event);
  if (held) return;
  if (span) showTip(span);
  else tip.hidden = true;
});
talk.addEventListener("pointerleave", () => { if (!held) tip.hidden = true; });
talk.addEventListener("scroll", () => { if (!held) tip.hidden = true; });
talk.addEventListener("click", event => {
  const span = tokenAt(event);
  if (span && span !== held && String(getSelection()) === "") hold(span);
  else hideTip();
});
/* A token that is held gives way to its neighbours by the arrows. */
function moveHeld(step) {
  const all = [...held.closest(".text").querySelectorAll(".token")], next = all[all.indexOf(held) + step];
  if (next) hold(next);
}

/* ---- The page ---- */

const sends = event => event.key === "Enter" && !event.shiftKey && !event.isComposing;
function fit() {
  message.style.height = "auto";
  message.style.height = `${message.scrollHeight + 2}px`;
}
function buildSettings() {
  const field = (id, label, input) => make("label", {}, make("span", {}, label), Object.assign(input, { id }));
  const flag = (id, label) => make("label", { class: "flag" }, make("input", { id, type: "checkbox", checked: true }), label);
  settings.append(make("div", { class: "title" }, make("h2", {}, "Settings"), make("button", { class: "quiet", type: "button", on: toggleSettings }, "Close")),
    field("system", "System prompt", make("textarea", { rows: "3" })),
    make("div", { class: "pair" }, ...FIELDS.map(([id, label]) => field(id, label,
      make("input", { inputmode: "decimal", autocomplete: "off", placeholder: id === "seed" ? "random" : "server's" })))),
    flag("logprobs", "Probabilities of tokens"), flag("tinted", "Unlikely tokens in colour"),
    field("tools", "Tools, a list of functions in JSON", make("textarea", { rows: "4", spellcheck: "false" })));
  byId("tinted").addEventListener("change", event => talk.classList.toggle("tinted", event.target.checked));
  talk.classList.add("tinted");
}
function toggleSettings() {
  settings.hidden = !settings.hidden;
  byId("tune").setAttribute("aria-expanded", String(!settings.hidden));
}
byId("composer").addEventListener("submit", event => {
  event.preventDefault();
  for (const start of talk.querySelectorAll(".start")) start.remove();
  if (send(message.value)) message.value = "";
  fit();
});
message.addEventListener("input", fit);
message.addEventListener("keydown", event => {
  if (!sends(event)) return;
  event.preventDefault();
  byId("composer").requestSubmit();
});
document.addEventListener("keydown", event => {
  if (held && (event.key === "ArrowRight" || event.key === "ArrowLeft") && !/^(TEXTAREA|INPUT)$/.test(event.target.tagName)) {
    event.preventDefault();
    moveHeld(event.key === "ArrowRight" ? 1 : -1);
  } else if (event.key === "Escape") {
    if (held) hideTip();
    else if (runs.size > 0) stop();
    else if (!settings.hidden) toggleSettings();
  }
});
settings.addEventListener("submit", event => event.preventDefault());
byId("stop").addEventListener("click", () => stop());
byId("tune").addEventListener("click", toggleSettings);
byId("new").addEventListener("click", () => {
  stop();
  turns = [];
  showStart();
  message.focus();
});
addEventListener("focus", readModels);
addEventListener("resize", fit);
buildSettings();
showRunning();
message.focus();
readModels();
