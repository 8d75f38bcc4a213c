"use strict";
/* Texts of runs are set as text, never as markup. Curves come thinned from the server: at most some 1000 points. */
const NS = "http://www.w3.org/2000/svg";
const PHASES = [["data_seconds", "data"], ["gather_seconds", "gather"], ["forward_seconds", "forward"],
  ["backward_seconds", "backward"], ["reduce_seconds", "reduce"], ["queue_seconds", "queueing"],
  ["device_wait_seconds", "device"], ["rank_wait_seconds", "wait for ranks"], ["optimizer_seconds", "optimizer"],
  ["save_wait_seconds", "wait for a save"]];
const logarithmic = new Set(), hidden = new Set(), sorting = new Map(); /* hidden: indices of runs; sorting: of tables */
const SHOWN = 8; /* runs that a chart names at once */
let board = null, chosen = 0, skew = 0, quiet = 0, pointed = null, charts = [];

/* Of up to ten runs the colours of the style; of more, twelve hues a round, each round of another lightness and between
   the hues of the one before. Rounds: lightness, chroma, turn. */
const ROUNDS = [[0.6, 0.17, 0], [0.74, 0.13, 15], [0.46, 0.15, 8], [0.67, 0.09, 22], [0.53, 0.1, 4], [0.8, 0.1, 26]];
const phaseColour = i => `var(--p${i})`;
function colour(i) {
  if (board.runs.length <= 10) return phaseColour(i);
  const [lightness, chroma, turn] = ROUNDS[Math.floor(i / 12) % ROUNDS.length];
  return `oklch(calc(${lightness} + var(--lift)) ${chroma} ${(i * 150 + turn) % 360})`;
}
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "style") Object.assign(element.style, value);
    else if (key === "on") element.addEventListener("click", value);
    else element.setAttribute(key, value);
  }
  for (const child of children) if (child !== null && child !== undefined) element.append(child);
  return element;
}
function draw(tag, attributes, text) {
  const element = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
function short(value, digits = 4) {
  if (typeof value !== "number" || !isFinite(value)) return "\u2013";
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(Math.min(3, digits - 1));
  return String(Number(value.toPrecision(digits)));
}
function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (value >= 1024 && i < 4) { value /= 1024; i++; }
  return typeof value === "number" ? short(value, 3) + " " + units[i] : "\u2013";
}
function seconds(value) {
  if (typeof value !== "number") return "\u2013";
  if (value < 0.1) return short(value * 1e3, 3) + " ms";
  if (value < 100) return short(value, 3) + " s";
  if (value < 6000) return short(value / 60, 3) + " min";
  return short(value / 3600, 3) + " h";
}
const percent = value => short(100 * value, 3) + " %";
function nameOf(run) {
  const given = r => r.run && typeof r.run.name === "string" && r.run.name !== "" ? r.run.name : r.folder, name = given(run);
  return name === run.folder || !board.runs.some(r => r !== run && given(r) === name) ? name : `${name} (${run.folder})`;
}
function lastStep(run) {
  let step = 0;
  for (const curve of Object.values(run.curves)) step = Math.max(step, curve.steps[curve.steps.length - 1] || 0);
  return Math.max(step, run.last && run.last.step || 0);
}
/* A run that was killed never wrote its end: it is known by its silence. */
function stateOf(run) {
  const record = run.run || {}, age = board.now - run.changed;
  if (run.ended || record.state === "ended") return ["ended", "good"];
  if (record.state === "failed") return ["failed", "bad"];
  if (record.state === "stopped") return ["stopped, may be resumed", ""];
  const row = run.last && run.last.wall_seconds ? run.last.wall_seconds * 10 : 0;
  if (run.changed > 0 && age > Math.max(120, 5 * row))
    return ["no row for " + seconds(age) + ": killed, or it hangs", "bad"];
  return [run.changed > 0 ? "running" : "has no row yet", "good"];
}

function niceTicks(low, high, count) {
  const raw = (high - low) / count || 1, base = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map(x => x * base).find(x => x >= raw * 0.999);
  const ticks = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step) ticks.push(Math.abs(t) < step * 1e-6 ? 0 : t);
  return ticks;
}

/* The steps of all shown runs: every chart has the same range. */
function stepRange(curvesOf) {
  let first = Infinity, last = -Infinity;
  for (const curves of curvesOf) for (const c of curves) if (c.steps.length > 0) {
    first = Math.min(first, c.steps[0]);
    last = Math.max(last, c.steps[c.steps.length - 1]);
  }
  return first < last ? [first, last] : [first - 0.5, last + 0.5];
}
const dot = colour_ => make("i", { class: "dot", style: { background: colour_ } });
const by = (points, step) => points.reduce((a, b) => Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a);

/* One chart: curves = [{run, name, colour, steps, values}]. It is drawn in pixels of the screen, once it has a width. */
function chart(key, title, curves, range) {
  const H = 208, L = 58, R = 10, T = 8, B = 24, log = logarithmic.has(key), to = log ? Math.log10 : x => x;
  const kept = curves.map(c => {
    const points = [];
    c.steps.forEach((s, i) => { const v = c.values[i]; if (v !== null && (!log || v > 0)) points.push([s, v]); });
    return { ...c, points };
  }).filter(c => c.points.length > 0);
  const svg = draw("svg", { class: "plot", height: H, role: "img", "aria-label": title }), tip = make("div", { class: "tip", hidden: "" });
  const toggle = make("button", { "aria-pressed": String(log), title: "logarithmic", on: () => {
    if (log) logarithmic.delete(key); else logarithmic.add(key);
    render();
  } }, "log");
  const last = c => short(c.points[c.points.length - 1][1]);
  const value = make("span", { class: "value" }, kept.length === 1 ? last(kept[0]) : kept.length === 0 ? (curves.length ? "no value above 0" : "all runs are hidden") : "");
  const names = kept.length > 1 && kept.length <= SHOWN ? make("div", { class: "key" }, ...kept.map(c => runButton(c.run, c.name, last(c)))) : null;
  const section = make("section", { "data-chart": key }, make("div", { class: "head" }, make("h2", {}, title), value, toggle),
    make("div", { class: "frame" }, svg, tip), names);
  const shown = { key, section, paint: () => {}, leave: () => {} };
  if (kept.length === 0) return shown;
  const [x0, x1] = range;
  let y0 = Infinity, y1 = -Infinity;
  for (const c of kept) for (const [, v] of c.points) { y0 = Math.min(y0, to(v)); y1 = Math.max(y1, to(v)); }
  const room = (y1 - y0) * 0.05 || Math.abs(y1) * 0.05 || 0.5;
  y0 -= room; y1 += room;
  let W = 0;
  const px = s => L + (s - x0) / (x1 - x0) * (W - L - R), py = v => T + (y1 - to(v)) / (y1 - y0) * (H - T - B);
  const cross = draw("line", { y1: T, y2: H - B, class: "cross", visibility: "hidden" });
  shown.paint = () => {
    W = Math.max(L + R + 60, Math.floor(svg.getBoundingClientRect().width));
    svg.replaceChildren();
    for (const t of niceTicks(y0, y1, 4)) {
      const y = T + (y1 - t) / (y1 - y0) * (H - T - B);
      svg.append(draw("line", { x1: L, x2: W - R, y1: y, y2: y, class: "grid" }));
      svg.append(draw("text", { x: L - 6, y: y + 4, "text-anchor": "end" }, short(log ? Math.pow(10, t) : t, 3)));
    }
    for (const t of niceTicks(x0, x1, Math.max(2, Math.floor((W - L - R) / 75)))) if (Number.isInteger(t))
      svg.append(draw("text", { x: Math.min(px(t), W - R - 14), y: H - 6, "text-anchor": "middle" }, short(t, 6)));
    for (const c of kept) {
      const d = c.points.map(([s, v], i) => (i ? "L" : "M") + px(s).toFixed(1) + " " + py(v).toFixed(1)).join("");
      c.drawn = draw("g", { style: `stroke:${c.colour};fill:${c.colour}` });
      if (c.points.length > 1) c.drawn.append(draw("path", { d, class: "curve" }));
      if (c.points.length < 40) for (const [s, v] of c.points) c.drawn.append(draw("circle", { cx: px(s), cy: py(v), r: 2.5 }));
      svg.append(c.drawn);
    }
    svg.append(cross);
    if (pointed !== null && pointed.key === key) point(pointed.x, pointed.y);
  };
  /* x, y: of the svg. The curves nearest to the pointer are named, in the order in which they are drawn. */
  const point = (x, y) => {
    const wanted = x0 + (x - L) / (W - L - R) * (x1 - x0), step = by(kept.map(c => by(c.points, wanted)), wanted)[0];
    const near = kept.map(c => ({ c, at: by(c.points, step) })).map(n => ({ ...n, far: Math.abs(py(n.at[1]) - y), aside: Math.abs(px(n.at[0]) - px(step)) }))
      .filter(n => n.aside < 40).sort((a, b) => a.far - b.far);
    const nearest = near[0].c, named = near.slice(0, SHOWN).sort((a, b) => b.at[1] - a.at[1]), more = kept.length - named.length;
    cross.setAttribute("x1", px(step)); cross.setAttribute("x2", px(step)); cross.setAttribute("visibility", "visible");
    tip.replaceChildren(make("p", {}, `step ${short(step, 9)}`), ...named.map(n => make("div", n.c === nearest ? { class: "nearest" } : {},
      dot(n.c.colour), make("span", {}, n.c.name), make("b", {}, short(n.at[1], 5) + (n.at[0] === step ? "" : ` at ${short(n.at[0], 9)}`)))));
    if (more > 0) tip.append(make("p", {}, `and ${more} more`));
    tip.hidden = false;
    const room = innerHeight - svg.getBoundingClientRect().bottom;
    tip.style.left = Math.max(0, Math.min(px(step) - tip.offsetWidth / 2, W - tip.offsetWidth)) + "px";
    tip.style.top = (room > tip.offsetHeight ? H : -tip.offsetHeight) + "px"; /* beside the curves, not over them */
    if (kept.length > 1) for (const c of kept) c.drawn.setAttribute("class", c === nearest ? "near" : "far");
  };
  shown.leave = () => {
    cross.setAttribute("visibility", "hidden");
    tip.hidden = true;
    for (const c of kept) if (c.drawn) c.drawn.removeAttribute("class");
  };
  const at = event => {
    const box = svg.getBoundingClientRect();
    for (const other of charts) if (other.key !== key) other.leave(); /* a finger leaves none */
    pointed = { key, x: event.clientX - box.left, y: event.clientY - box.top };
    point(pointed.x, pointed.y);
  };
  svg.addEventListener("pointermove", at);
  svg.addEventListener("pointerdown", at);
  svg.addEventListener("pointerleave", event => { if (event.pointerType !== "touch") { pointed = null; shown.leave(); } });
  return shown;
}

/* Shows or hides a run; with Shift that run alone. */
function runButton(i, name, value) {
  return make("button", { class: "run", "aria-pressed": String(!hidden.has(i)), title: "click: show or hide; Shift: this one alone", on: event => {
    if (event.shiftKey) board.runs.forEach((_, r) => { if (r === i) hidden.delete(r); else hidden.add(r); });
    else if (!hidden.delete(i)) hidden.add(i);
    render();
  } }, dot(colour(i)), make("span", {}, name), value === undefined ? null : make("b", {}, value));
}

const textOf = cell => typeof cell === "string" ? cell : cell.textContent;
function compare(a, b) {
  const x = parseFloat(a), y = parseFloat(b), numbers = [x, y].map(v => !isNaN(v));
  if (numbers[0] && numbers[1] && x !== y) return x - y;
  if (numbers[0] !== numbers[1]) return numbers[0] ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
}
/* heads: "#" a number, "~" a text that is broken; key: a table that is sorted by a click at a head. Cells without a
   number come last, whichever way. */
function table(heads, rows, key) {
  const order = sorting.get(key), plain = heads.map(h => h.replace(/^[#~]/, ""));
  if (order !== undefined && order.column < heads.length) {
    const none = row => textOf(row[order.column]) === "\u2013";
    rows = [...rows].sort((a, b) => none(a) - none(b) || (order.down ? -1 : 1) * compare(textOf(a[order.column]), textOf(b[order.column])));
  }
  const sort = i => make("button", { class: "sort", on: () => {
    sorting.set(key, { column: i, down: order !== undefined && order.column === i && !order.down });
    render();
  } }, plain[i], order !== undefined && order.column === i ? (order.down ? " \u25be" : " \u25b4") : "");
  return make("div", { class: "scroll tall" }, make("table", key ? { "data-table": key } : {},
    make("thead", {}, make("tr", {}, ...heads.map((h, i) => make("th", { ...(h.startsWith("#") ? { class: "number" } : {}),
      ...(order !== undefined && order.column === i ? { "aria-sort": order.down ? "descending" : "ascending" } : {}) }, key ? sort(i) : plain[i])))),
    make("tbody", {}, ...rows.map(row => make("tr", {}, ...row.map((cell, i) =>
      make("td", heads[i].startsWith("#") ? { class: "number" } : heads[i].startsWith("~") ? { class: "text" } : {}, cell)))))));
}
const card = (title, wide, ...children) => make("section", wide ? { class: "wide" } : {}, make("h2", {}, title), ...children);

function runsCard() {
  const rows = board.runs.map((run, i) => {
    const [state, mood] = stateOf(run), total = run.run && run.run.steps && run.run.steps.total, step = lastStep(run);
    const latest = key => { const c = run.curves[key]; return c ? c.values[c.values.length - 1] : undefined; };
    return [board.runs.length > 1 ? runButton(i, nameOf(run)) : nameOf(run),
      make("span", { class: "state " + mood }, state), total ? `${step} of ${total}` : String(step), short(latest("loss")),
      short(latest("eval_loss")), short(latest(run.curves.images_per_second ? "images_per_second" : "tokens_per_second")), run.mfu > 0 ? percent(run.mfu) : "\u2013", String(run.saves)];
  });
  const images = board.runs.filter(r => r.curves.images_per_second).length;
  const unit = images === 0 ? "#Tokens/s" : images === board.runs.length ? "#Images/s" : "#Tokens or images/s";
  const heads = ["Run", "State", "#Step", "#Loss", "#Evaluation", unit, "#MFU", "#Saves"];
  if (board.runs.length < 2) return card("Run", true, table(heads, rows));
  const all = hide => make("button", { on: () => { board.runs.forEach((_, i) => { if (hide) hidden.add(i); else hidden.delete(i); }); render(); } }, hide ? "hide all" : "show all");
  return make("section", { class: "wide" }, make("div", { class: "head" }, make("h2", {}, `Runs: ${board.runs.length}`),
    make("span", {}, all(false), " ", all(true))), table(heads, rows, "runs"));
}

function factsCard(run) {
  const record = run.run || {}, ranks = record.ranks || {}, parameters = record.parameters || {}, facts = [];
  const add = (name, value) => { if (value !== undefined && value !== null && value !== "") facts.push(make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))); };
  const total = record.steps && record.steps.total, step = lastStep(run), wall = run.time.wall_seconds && run.time.wall_seconds.mean;
  if (total && wall && step < total && stateOf(run)[0] === "running") add("left, about", seconds((total - step) * wall));
  add("model", record.model);
  if (parameters.all) add("trainable", `${short(parameters.trainable)} of ${short(parameters.all)} (${percent(parameters.trainable / parameters.all)})`);
  if (ranks.count) add("ranks", `${ranks.count} on ${ranks.machines} machine${ranks.machines > 1 ? "s" : ""}, ${ranks.strategy}`);
  add("device", ranks.device);
  add("recompute", typeof ranks.recompute === "string" ? ranks.recompute.replace(/^recompute /, "") : undefined);
  if (record.begun) add("begun", new Date(record.begun * 1e3).toLocaleString());
  if (record.restarts) add("restarts", record.restarts);
  if (record.begun && record.ended) add("took", seconds(record.ended - record.begun));
  if (run.broken) add("torn rows, left out", run.broken);
  add("program", record.program);
  return facts.length ? card("About " + nameOf(run), true, make("dl", { class: "facts" }, ...facts)) : null;
}

function errorCard(run) {
  const error = run.run && run.run.error;
  return typeof error === "string" ? card("How it ended", true, make("pre", { class: "bad" }, error)) : null;
}

function timeCard(run) {
  const time = run.time, step = time.step_seconds;
  if (!step || !(step.mean > 0)) return null;
  const parts = PHASES.map(([key, name], i) => ({ name, mean: time[key] ? time[key].mean : 0, values: time[key] && time[key].values, i })).filter(p => p.mean > 5e-4 * step.mean);
  const bar = make("div", { class: "bar" }, ...parts.map(p => make("i", { style: { width: 100 * p.mean / step.mean + "%", background: phaseColour(p.i) } })));
  const keys = make("div", { class: "key" }, ...parts.map(p => make("span", {}, dot(phaseColour(p.i)),
    `${p.name} ${percent(p.mean / step.mean)}`)));
  const W = 560, H = 120, svg = draw("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img", "aria-label": "shares of a step" });
  svg.style.height = "7rem";
  svg.style.marginTop = ".5rem";
  const n = time.steps.length;
  if (n > 1) {
    const base = new Array(n).fill(0);
    for (const p of parts) {
      if (!p.values) continue;
      const top = base.map((b, i) => b + (step.values[i] > 0 ? p.values[i] / step.values[i] : 0));
      const line = (a, reverse) => a.map((v, i) => [(i / (n - 1) * W).toFixed(1), (H - Math.min(1, v) * H).toFixed(1)]).map(q => q.join(" "))[reverse ? "reverse" : "slice"]().join("L");
      svg.append(draw("path", { d: `M${line(top)}L${line(base, true)}Z`, style: `fill:${phaseColour(p.i)}` }));
      top.forEach((v, i) => { base[i] = v; });
    }
  }
  const rest = [["save_stall_seconds", "saves"], ["evaluate_seconds", "evaluations"]].filter(([key]) => time[key]);
  const wall = time.wall_seconds ? time.wall_seconds.mean : 0;
  const besides = wall > 0 && rest.length ? make("p", { class: "soft" }, "besides steps: ", rest.map(([key, name]) => `${name} ${percent(time[key].mean / wall)}`).join(", "), " of the wall time") : null;
  const ops = Object.entries(run.last || {}).filter(([key]) => /^op_.*_seconds$/.test(key)).sort((a, b) => b[1] - a[1]).slice(0, 12)
    .map(([key, value]) => [key.slice(3, -8), seconds(value), percent(value / run.last.step_seconds)]);
  const sensors = [["watts", "W"], ["clock_mhz", "MHz"], ["celsius", "\u00b0C"]].filter(([key]) => run.last && typeof run.last[key] === "number")
    .map(([key, unit]) => short(run.last[key]) + " " + unit).join(", ");
  return card(`Time of a step: ${seconds(step.mean)}`, false, bar, keys, n > 1 ? svg : null, besides,
    sensors ? make("p", { class: "soft" }, "device: " + sensors) : null, ops.length ? table(["Op", "#Time", "#Of the step"], ops) : null);
}

function memoryCard(run) {
  const plan = run.run && run.run.plan, last = run.last || {}, planned = plan && plan.bytes || {}, names = new Set(Object.keys(planned));
  for (const key of Object.keys(last)) if (key.endsWith("_bytes") && key !== "device_bytes" && key !== "host_bytes") names.add(key.slice(0, -6));
  if (names.size === 0) return null;
  const used = name => last[name + "_bytes"], counted = [...names].filter(n => planned[n] || !plan), most = Math.max(1, ...counted.map(n => Math.max(planned[n] || 0, used(n) || 0)));
  const meter = (now, plan_) => {
    const m = make("div", { class: "meter" }, make("i", { style: { width: Math.min(100, 100 * (now || 0) / most) + "%" } }));
    if (plan_) m.append(make("b", { style: { left: `min(100% - 2px, ${100 * plan_ / most}%)` } }));
    return m;
  };
  const rows = [...names].sort((a, b) => (used(b) || 0) - (used(a) || 0)).map(n => [n.replace(/_/g, " "), bytes(used(n)), bytes(planned[n]), meter(used(n), planned[n])]);
  const whole = plan ? `, planned ${bytes(plan.device_bytes)}${plan.limit_bytes > 0 ? " of " + bytes(plan.limit_bytes) : ""}` : "";
  return card("Memory of a rank: " + bytes(last.device_bytes) + whole, false, table(["Purpose", "#Peak", "#Plan", ""], rows));
}

function ranksCard(run) {
  if (run.ranks.length < 2) return null;
  const most = Math.max(...run.ranks.map(r => r.step_seconds), 1e-9);
  const slowest = run.ranks.reduce((a, b) => b.rank_wait_seconds < a.rank_wait_seconds ? b : a);
  const rows = run.ranks.map(r => [String(r.rank), String(r.step), seconds(r.step_seconds), seconds(r.rank_wait_seconds), bytes(r.device_bytes),
    make("div", { class: "meter", title: "wait for the others" }, make("i", { style: { width: 100 * Math.min(1, r.rank_wait_seconds / most) + "%" } }))
  ]);
  return card(`Ranks: ${run.ranks.length}`, false, table(["#Rank", "#Step", "#Time", "#Waits", "#Memory", ""], rows),
    make("p", { class: "soft" }, `Rank ${slowest.rank} waits the least: the others wait for it.`));
}

function eventsCard(run) {
  if (run.events.length === 0) return null;
  const rows = [...run.events].reverse().map(e => [String(e.event), String(e.step), String(e.folder), bytes(e.bytes), seconds(e.seconds !== undefined ? e.seconds : e.load_seconds), seconds(e.stall_seconds)]);
  return card("Checkpoints", false, table(["", "#Step", "~Folder", "#Size", "#Took", "#Paused"], rows));
}

function generationsCard(run) {
  if (run.generations.length === 0) return null;
  const plain = v => typeof v === "string" ? v : JSON.stringify(v);
  const samples = [...run.generations].reverse().slice(0, 60).map(g => make("div", { class: "sample" },
    ...Object.entries(g).map(([key, v]) => key === "step" ? make("p", {}, "step " + v) :
      make("div", {}, make("p", {}, key), make("pre", {}, plain(v))))));
  return card("Generations", true, make("div", { class: "tall" }, ...samples));
}

function picturesCard(run, at) {
  if (run.pictures.length === 0) return null;
  const shown = [...run.pictures].reverse().map(p => make("figure", {},
    make("img", { loading: "lazy", width: p.width, height: p.height, alt: "", src: p.data ? "data:image/jpeg;base64," + p.data : `picture/${at}/${p.file}` }),
    make("figcaption", {}, `step ${p.step}: ${p.image}, ${p.boxes} annotated, ${p.detections} found`)));
  return card("Pictures of evaluations: annotated blue, found orange", true, make("div", { class: "tall pictures" }, ...shown));
}

function settingsOf(run) {
  const text = run.run && typeof run.run.config === "string" ? run.run.config : "", settings = new Map();
  let part = "", open = null;
  for (const line of text.split("\n")) {
    if (line.startsWith("# ")) { part = line.slice(2); continue; }
    const found = /^([A-Za-z0-9_]+):(?: (.*?))?(?:  # (.*))?$/.exec(line);
    if (found) { open = { part, value: found[2] || "", origin: found[3] || "" }; settings.set(found[1], open); }
    else if (open && line.trim() !== "") open.value += "\n" + line;
  }
  return settings;
}

let allSettings = false;
function settingsCard(run) {
  const settings = settingsOf(run);
  if (settings.size === 0) return null;
  const given = [...settings].filter(([, s]) => allSettings || s.origin !== "");
  const toggle = make("button", { "aria-pressed": String(allSettings), on: () => { allSettings = !allSettings; render(); } }, "defaults too");
  return make("section", { class: "wide" }, make("div", { class: "head" }, make("h2", {}, `Settings of ${nameOf(run)}`), toggle),
    table(["Setting", "~Value", "Origin", "Part"], given.map(([name, s]) => [name, s.value, s.origin || "default", s.part])));
}

function differencesCard() {
  if (board.runs.length < 2) return null;
  const all = board.runs.map(settingsOf), names = new Set();
  for (const s of all) for (const name of s.keys()) names.add(name);
  const valueOf = (settings, name) => settings.has(name) ? settings.get(name).value : "\u2013";
  const differing = [...names].filter(name => name !== "output_dir" && new Set(all.filter(s => s.size > 0).map(s => valueOf(s, name))).size > 1);
  if (differing.length === 0) return null;
  return card("Settings in which the runs differ", true, table(["Run", ...differing.map(name => "~" + name)],
    board.runs.map((run, i) => [runButton(i, nameOf(run)), ...differing.map(name => valueOf(all[i], name))]), "differences"));
}

function render() {
  const main = document.getElementById("main"), pick = document.getElementById("pick"), runs = board.runs;
  chosen = Math.min(chosen, Math.max(0, runs.length - 1));
  const run = runs[chosen], scrolls = [...main.querySelectorAll(".tall")].map(e => [e.scrollLeft, e.scrollTop]);
  const drawn = board.figures.filter(([key]) => runs.some(r => r.curves[key])).map(([key, title]) => [key, title[0].toUpperCase() + title.slice(1), runs.map((r, i) =>
    r.curves[key] && !hidden.has(i) && { run: i, name: nameOf(r), colour: colour(i), ...r.curves[key] }).filter(Boolean)]);
  const range = stepRange(drawn.map(([, , curves]) => curves));
  charts = drawn.map(([key, title, curves]) => chart(key, title, curves, range));
  const cards = run ? [runsCard(), errorCard(run), ...charts.map(c => c.section), timeCard(run), memoryCard(run), ranksCard(run), eventsCard(run),
    factsCard(run), picturesCard(run, chosen), generationsCard(run), differencesCard(), settingsCard(run)] : [card("No run", true)];
  main.replaceChildren(...cards.filter(Boolean));
  [...main.querySelectorAll(".tall")].forEach((e, i) => { if (scrolls[i]) [e.scrollLeft, e.scrollTop] = scrolls[i]; });
  for (const c of charts) c.paint();
  if (runs.length > 1 && pick.childElementCount === 0) {
    const select = make("select", { "aria-label": "run" }, ...runs.map((r, i) => make("option", { value: i }, nameOf(r))));
    select.addEventListener("change", () => { chosen = Number(select.value); render(); });
    pick.append(select);
  }
  if (!document.documentElement.dataset.painted) document.documentElement.dataset.painted = String(Math.round(performance.now()));
  if (runs.length > 0) document.title = (runs.length > 1 ? runs.length + " runs" : nameOf(run)) + " \u2013 Trimtab";
}

function note(text, bad) {
  const element = document.getElementById("note");
  element.textContent = text;
  element.className = bad ? "bad" : "";
}

async function poll() {
  if (document.hidden) return;
  try {
    const answer = await fetch(board === null ? "data" : "data/" + board.version, { cache: "no-store" });
    if (answer.status === 200) {
      board = await answer.json();
      skew = Date.now() / 1e3 - board.now;
      render();
    } else if (answer.status === 204) {
      board.now = Date.now() / 1e3 - skew;
      if (++quiet % 10 === 0) render(); /* a run that has become silent */
    }
    else throw new Error("status " + answer.status);
    note(board.live ? "live" : "from the folder; new rows appear");
  } catch (error) { note("no connection: " + error.message + "; showing what was last received", true); }
}

let width = 0;
new ResizeObserver(() => {
  const now = document.documentElement.clientWidth;
  if (now !== width) for (const c of charts) c.paint();
  width = now;
}).observe(document.documentElement);
const embedded = document.getElementById("data").textContent.trim();
if (embedded === "") {
  poll();
  setInterval(poll, 2000);
  document.addEventListener("visibilitychange", poll);
} else {
  board = JSON.parse(embedded);
  render();
  note("as of " + new Date(board.now * 1e3).toLocaleString());
}
