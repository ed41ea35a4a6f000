// What the page knows, and what the reader has chosen: one copy, core, CPU, NUMA node or divot.
const page = await unpacked();
const runs = page.runs;
const listeners = [];
let chosen = null; // {field, values, text}; of a divot also run, benchmarks, tune, its, turns

function choose(pick) {
  chosen = samePick(chosen, pick) ? null : pick;
  for (const listener of listeners) listener(chosen);
}

// What the reader has set stands in the address, to be sent along: `#panel-1-0&rows=mcf&order=suite`.
const address = readAddress();

function readAddress() {
  const parts = location.hash.slice(1).split('&');
  const place = parts[0].includes('=') ? '' : parts.shift();
  return {place, set: new URLSearchParams(parts.join('&'))};
}

function keep(name, value) {
  if (value) address.set.set(name, value); else address.set.delete(name);
  const hash = [address.place, String(address.set)].filter(Boolean).join('&');
  try { history.replaceState(null, '', hash ? '#' + hash : location.pathname + location.search); } catch (error) { /* a page without an address */ }
}

// A link within the page names a place alone: what is set stays.
window.addEventListener('hashchange', () => {
  const {place, set} = readAddress();
  if (String(set)) { location.reload(); return; }
  address.place = place;
  keep('', '');
});

function samePick(a, b) {
  return Boolean(a && b) && JSON.stringify(a) === JSON.stringify(b);
}

// Every pixel of text goes through textContent: names are other people's.
function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'text') node.textContent = value;
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children);
  return node;
}

// Where a key leads from a place of a list: to a neighbour, or an end; undefined for other keys.
function keyTarget(key, at, last) {
  return {ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last}[key];
}

// A picture that is read by keys.
function makeReadable(room, label) {
  for (const [name, value] of [['role', 'application'], ['tabindex', 0], ['aria-label', label]]) room.setAttribute(name, value);
}

// A view of one of the page's pictures, filled with a chart's signals and data; null where another
// was asked for there meanwhile. Vega's expressions are interpreted, not compiled: the page's policy
// lets no text become a script.
const turns = new Map(), views = new Map(); // by their rooms
async function drawView(room, kind, width, {signals, data}) {
  const turn = (turns.get(room) || 0) + 1;
  turns.set(room, turn);
  const spec = page.specs[kind];
  const shown = await vegaEmbed(room, {
    ...spec, width,
    signals: spec.signals.map((signal) => signal.name in signals ? {name: signal.name, value: signals[signal.name]} : signal),
    data: spec.data.map((set) => set.name in data ? {...set, values: data[set.name]} : set),
  }, {mode: 'vega', renderer: 'svg', actions: false, ast: true, defaultStyle: false, tooltip: false, hover: false});
  if (turns.get(room) === turn) { views.set(room, shown.view); return shown.view; }
  shown.view.finalize();
  return null;
}

// Room for the reader's clicks and the browser's painting, where drawing took a while.
let breathedAt = performance.now();
async function breath() {
  if (performance.now() - breathedAt < 80) return;
  await new Promise((go) => setTimeout(go));
  breathedAt = performance.now();
}

function median(values) {
  if (!values.length) return null;
  const sorted = Float64Array.from(values).sort();
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// Ascending numbers as people write them: 1-4,6.
function listText(numbers) {
  const spans = [];
  for (const number of numbers) {
    if (spans.length && spans[spans.length - 1][1] === number - 1) spans[spans.length - 1][1] = number; else spans.push([number, number]);
  }
  return spans.map(([first, last]) => first === last ? String(first) : first + '-' + last).join(',');
}

function percentText(share) {
  const size = (share - 1) * 100;
  const text = Math.abs(size).toFixed(Math.abs(size) < 10 ? 1 : 0);
  return (Number(text) === 0 ? '\u00b1' : size > 0 ? '+' : '\u2212') + text + ' %';
}

function timeText(seconds) {
  if (seconds >= 1000) return seconds.toFixed(0) + ' s';
  const [unit, size] = [['s', 1], ['ms', 1e-3], ['\u00b5s', 1e-6], ['ns', 1e-9]]
    .find(([, of]) => seconds >= of) || ['ns', 1e-9];
  const value = seconds / size;
  return value.toFixed(Math.max(0, 4 - String(Math.trunc(value)).length)) + ' ' + unit;
}

// What the pictures are of: times, or values of a metric, with four digits that tell copies apart.
function valueText(value) {
  const measure = page.measure;
  if (!measure || (measure.unit === 's' && value >= 0)) return timeText(value);
  const size = Math.abs(value), text = !size ? '0' : size < 1e-3 || size >= 1e6 ? value.toExponential(3) : value.toFixed(Math.max(0, size < 1 ? 4 : 4 - String(Math.trunc(size)).length));
  return (text + ' ' + measure.unit).trim();
}

// A time of the run: with as many decimals whether it is early or late.
function secondText(at) {
  const longest = page.measure ? 0 : Math.max(...runs.flatMap((run) => run.panels.map((panel) => panel.median || 0)));
  return at.toFixed(longest > 100 ? 1 : 3) + ' s';
}

// A run's dots as objects, made once; panels, map and cards share them.
for (const run of runs) {
  run.groups = run.groups.map(([name, first, size], place) => ({name, first, size, place}));
  for (const panel of run.panels) {
    panel.run = run;
    const d = panel.dots;
    panel.rows = d.s.map((s, i) => ({
      place: d.place[i], copy: d.copy[i], cpu: d.cpu[i], core: d.core[i], node: d.node[i],
      it: d.it[i], s, kind: d.kind[i], start: d.start[i], local: d.local[i], more: d.more[i],
      fastest: d.fastest ? d.fastest[i] : s, slowest: d.slowest ? d.slowest[i] : s, panel,
    }));
    panel.bad = panel.failed.map(([place, copy, it, cpu, node, s, what]) => ({
      place, copy, it, cpu, node, s, what, core: null, kind: 0, start: null, local: null, more: '', fastest: s, slowest: s, panel,
    }));
  }
}

// A divot is of its own run, and one that is not of a part of the machine of its own iterations.
function isPart(run, benchmark, tune, row) {
  if (!chosen || (chosen.run !== undefined && chosen.run !== run.run)) return false;
  if (chosen.benchmarks && !chosen.benchmarks.includes(benchmark)) return false;
  if (chosen.tune !== undefined && chosen.tune !== tune) return false;
  if (chosen.turns) return (chosen.turns[row.it] || []).includes(row.node);
  if (chosen.its && !chosen.its.includes(row.it)) return false;
  return chosen.values.includes(row[chosen.field]);
}

function isChosen(row) {
  return isPart(row.panel.run, row.panel.benchmark, row.panel.tune, row);
}
