// A panel a benchmark: each a Vega view of its own, so that they flow like words on any screen.
const pad = page.specs.panel.padding;
const panels = [];
// Of all runs together: one key tells the shades of every panel.
const iterations = [...new Set(runs.flatMap((run) => run.iterations))].sort((a, b) => a - b);

function shadeOf(it) {
  return Math.min(3, iterations.length - 1 - iterations.indexOf(it));
}

function makePanel(panel, place) {
  const run = panel.run;
  const name = runs.length > 1 ? panel.title + ', run ' + run.run : panel.title;
  const labels = panel.labels.map((label) => make('button', {
    type: 'button', class: label.explained ? 'label explained' : 'label', text: label.text, 'data-copies': label.copies.join(' '),
  }));
  const words = [...panel.outside, panel.failedText, panel.notKnown].filter(Boolean).map((text) => make('span', {class: 'label', text}));
  const drawn = make('div', {class: 'drawn', tabindex: 0, role: 'application',
    'aria-label': (page.measure ? page.measure.name : 'times') + ' of the copies in ' + name + '; arrow keys move from copy to copy, Enter highlights one'});
  const head = make('figcaption', {}, make('b', {text: name}),
    make('span', {class: 'dim', text: panel.rows.length ? '' : 'no copy ran well'}), ...labels.slice(0, 3), ...words);
  if (labels.length > 3) head.append(make('span', {class: 'dim', text: 'and ' + (labels.length - 3) + ' more'}));
  const figure = make('figure', {id: 'panel-' + run.run + '-' + place, class: 'panel'}, head, drawn);
  const shown = {panel, figure, drawn, view: null, spots: null, at: -1, place, all: [...panel.rows, ...panel.bad]};
  labels.forEach((button, i) => button.addEventListener('click', () => {
    const copies = panel.labels[i].copies.length ? panel.labels[i].copies : [...new Set(panel.rows.map((row) => row.copy))];
    choose({field: 'copy', values: copies, text: 'divot: ' + panel.labels[i].text, run: run.run,
      ...(panel.labels[i].its.length ? {benchmarks: [panel.benchmark], tune: panel.tune, its: panel.labels[i].its} : {})});
  }));
  panels.push(shown);
  listenPanel(shown);
  return shown;
}

// Few panels are wide: as high as they need to be read from afar, not more than half a screen.
function heightFor(width) {
  return Math.round(Math.max(92, Math.min(240, width * .3)));
}

async function drawPanel(shown, width) {
  const {panel} = shown, run = panel.run;
  if (!shown.view) {
    for (const row of panel.rows) row.shade = shadeOf(row.it);
    const copies = run.names.length;
    const view = await drawView(shown.drawn, 'panel', width, {
      signals: {places: copies, low: panel.low, high: panel.high, median: panel.median, dot: copies > 200 ? 4 : copies > 60 ? 7 : copies > 16 ? 12 : 34},
      data: {
        groups: run.groups.map((g) => ({...g})), rows: panel.rows, failed: panel.bad.map(({place}) => ({place})), picked: picked(shown),
        ticks: panel.ticks.map(([value, seconds, share]) => ({value, seconds, share})),
      },
    });
    if (!view) return;
    shown.view = view;
  }
  if (shown.view.width() !== width || shown.view.height() !== heightFor(width)) {
    await shown.view.width(width).height(heightFor(width)).runAsync();
  }
  shown.spots = null;
}

// What is chosen of a panel, drawn above its dots: those that failed where their crosses are.
function picked(shown) {
  if (!chosen) return [];
  const {panel} = shown;
  return [...panel.rows.filter(isChosen).map((row) => ({place: row.place, s: row.s})),
    ...panel.bad.filter(isChosen).map((row) => ({place: row.place, s: panel.low}))];
}

function spotsOf(shown) {
  if (!shown.spots) {
    const x = shown.view.scale('x'), y = shown.view.scale('y'), {low, high} = shown.panel;
    shown.spots = shown.all.map((row) => [x(row.place), y(row.what ? low : Math.min(high, Math.max(low, row.s)))]);
  }
  return shown.spots;
}

// Where in its plot a panel is pointed at.
function placeIn(shown, event) {
  const svg = shown.drawn.querySelector('svg').getBoundingClientRect();
  const scale = svg.width / (shown.view.width() + pad.left + pad.right);
  return [(event.clientX - svg.left) / scale - pad.left, (event.clientY - svg.top) / scale - pad.top];
}

// Where the names of the NUMA nodes stand; dots on the lowest line reach a little below it.
function isBelow(shown, event) {
  return placeIn(shown, event)[1] > shown.view.height() + 4;
}

function nearest(shown, event) {
  if (isBelow(shown, event)) return -1;
  const [px, py] = placeIn(shown, event);
  let best = -1, least = 30 * 30;
  spotsOf(shown).forEach(([x, y], i) => {
    const far = (x - px) ** 2 + (y - py) ** 2;
    if (far < least) { least = far; best = i; }
  });
  return best;
}

function point(shown, i) {
  if (shown.at === i) return;
  shown.at = i;
  const row = i < 0 ? null : shown.all[i];
  shown.view.data('at', row ? [{place: row.place, s: row.what ? shown.panel.low : row.s}] : []).run();
  if (i < 0) { hideCard(); return; }
  const svg = shown.drawn.querySelector('svg').getBoundingClientRect();
  const [x, y] = spotsOf(shown)[i];
  showCard(dotLines(row), {x: svg.left + pad.left + x, y: svg.top + pad.top + y});
}

function pickDot(shown, i) {
  const row = shown.all[i];
  choose({field: 'copy', values: [row.copy], text: 'copy ' + row.copy});
}

function listenPanel(shown) {
  const {drawn} = shown;
  drawn.addEventListener('pointermove', (event) => { if (shown.view) point(shown, nearest(shown, event)); });
  drawn.addEventListener('pointerleave', () => { if (shown.view) point(shown, -1); });
  drawn.addEventListener('click', (event) => {
    if (!shown.view) return;
    const i = nearest(shown, event);
    if (i >= 0) { point(shown, i); pickDot(shown, i); return; }
    if (!isBelow(shown, event)) return;
    const at = shown.view.scale('x').invert(placeIn(shown, event)[0]);
    const group = shown.panel.run.groups.find((g) => at >= g.first - 0.5 && at < g.first + g.size - 0.5);
    if (group && group.name !== '-') choose({field: 'node', values: [Number(group.name)], text: 'NUMA node ' + group.name});
  });
  drawn.addEventListener('blur', () => { if (shown.view) point(shown, -1); });
  drawn.addEventListener('keydown', (event) => {
    const rows = shown.all;
    if (!shown.view || !rows.length) return;
    const now = shown.at < 0 ? null : rows[shown.at];
    const along = {ArrowRight: 1, ArrowLeft: -1}[event.key], across = {ArrowUp: 1, ArrowDown: -1}[event.key];
    if (event.key === 'Enter' && now) {
      pickDot(shown, shown.at);
    } else if (event.key === 'Home' || event.key === 'End' || along || across) {
      point(shown, step(rows, now, event.key, along, across));
    } else {
      return;
    }
    event.preventDefault();
  });
}

// To the next place with the same iteration, or at the same place to the next slower or faster dot.
function step(rows, now, key, along, across) {
  const order = rows.map((row, i) => i);
  const ends = order.sort((a, b) => rows[a].place - rows[b].place || rows[a].it - rows[b].it);
  if (!now || key === 'Home') return key === 'End' ? ends[ends.length - 1] : ends[0];
  if (key === 'End') return ends[ends.length - 1];
  const i = rows.indexOf(now);
  const others = along ? order.filter((o) => rows[o].it === now.it && (rows[o].place - now.place) * along > 0)
    : order.filter((o) => rows[o].place === now.place && (rows[o].s - now.s) * across > 0);
  const far = (o) => along ? Math.abs(rows[o].place - now.place) : Math.abs(rows[o].s - now.s);
  return others.reduce((best, o) => best === i || far(o) < far(best) ? o : best, i);
}

// The panels of one benchmark stand side by side, a run each; benchmarks as the reader wants them.
function orderPanels(how) {
  const groups = new Map();
  for (const shown of panels) {
    const name = shown.panel.title;
    if (!groups.has(name)) groups.set(name, {worst: how === 'worst' ? worstOf(name) : 0, figures: []});
    groups.get(name).figures.push(shown.figure);
  }
  const room = document.getElementById('panels');
  room.style.setProperty('--runs', runs.length);
  room.replaceChildren(...[...groups.values()].sort((a, b) => b.worst - a.worst)
    .map(({figures}) => make('div', {class: 'group'}, ...figures)));
  showFiltered();
}

// What slow copies cost a benchmark; where that is not given, how far its slowest copy is out.
function worstOf(title) {
  return Math.max(...panels.filter((s) => s.panel.title === title).map(({panel}) =>
    panel.lost !== null ? panel.lost : panel.rows.length ? 1 - panel.median / Math.max(...panel.rows.map((r) => r.s)) : 0));
}

async function layOut() {
  const room = document.getElementById('panels');
  if (!panels.length) return;
  // Each its own: runs of other benchmarks than the first leave some of them wider.
  const widths = new Map(panels.map((shown) => [shown, Math.max(120, Math.floor(shown.drawn.clientWidth) - pad.left - pad.right)]));
  // From the top down, with room between for the reader's clicks: thousands of copies take a while.
  const order = [...room.querySelectorAll('figure')];
  const wanted = panels.filter((shown) => !shown.view || shown.view.width() !== widths.get(shown));
  wanted.sort((a, b) => order.indexOf(a.figure) - order.indexOf(b.figure));
  for (const shown of wanted) {
    await drawPanel(shown, widths.get(shown));
    await breath();
  }
}

async function startPanels() {
  const room = document.getElementById('panels');
  runs.forEach((run) => run.panels.forEach((panel, place) => makePanel(panel, place)));
  orderPanels(document.getElementById('order').value);
  if (!panels.length) room.append(make('p', {text: 'no copy has ended: there is nothing to draw'}));
  await layOut();
  let waiting = null;
  new ResizeObserver(() => {
    if (!waiting) waiting = requestAnimationFrame(() => { waiting = null; layOut(); });
  }).observe(room);
  const key = document.getElementById('panel-key');
  const words = [];
  if (runs.some((run) => run.repeated)) words.push(make('span', {text: 'A dot is the median run of a copy, the line all its runs. '}));
  if (iterations.length > 1) {
    const earlier = iterations.slice(0, -3); // of one shade
    const shaded = [...(earlier.length ? [listText(earlier)] : []), ...iterations.slice(-3)];
    words.push('Iterations: ', ...shaded.map((its, i) => make('b', {class: 'dot' + (shaded.length - 1 - i), text: ' ' + its + ' '})), '. ');
  }
  words.push(make('b', {class: 'slow', text: 'Divots'}), ' have their names above them');
  if (runs.some((run) => run.panels.some((p) => p.rows.some((r) => r.kind === 2)))) {
    words.push(', ', make('b', {class: 'explained', text: 'what the layout explains'}), ' too');
  }
  if (runs.some((run) => run.panels.some((p) => p.bad.length))) words.push('; \u00d7 a copy that failed');
  words.push('.');
  const green = make('span', {class: 'printed'});
  key.append(...words, green);
  listeners.push((pick) => {
    room.classList.toggle('picking', Boolean(pick));
    green.textContent = pick ? ' Green: ' + chosenText() + '.' : '';
    for (const shown of panels) if (shown.view) shown.view.data('picked', picked(shown)).run();
  });
}
