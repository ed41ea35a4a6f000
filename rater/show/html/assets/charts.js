// Several runs: speedups over the baseline, and throughput against copies.
// Each room's picture as it is drawn now: `spots` are its points, course by course
// or from the top, and where they are.
const charted = new WeakMap();

function listenCards(view, room, label, spots) {
  const show = (event, item) => {
    if (item && item.datum && item.datum.card) showCard(item.datum.card, {x: event.clientX, y: event.clientY});
    else if (spots.length && spots[0].mark) pointSpot(room, nearestSpot(room, event)); // dots too small to be hit
    else hideCard();
  };
  view.addEventListener('pointermove', show);
  view.addEventListener('click', show);
  const known = charted.has(room);
  charted.set(room, {view, spots, at: -1});
  if (known) return;
  makeReadable(room, label + '; arrow keys move from point to point');
  room.addEventListener('pointerleave', hideCard);
  room.addEventListener('blur', () => pointSpot(room, -1));
  room.addEventListener('keydown', (event) => {
    const {at, spots: now} = charted.get(room), last = now.length - 1;
    const to = keyTarget(event.key, at, last);
    if (event.key === 'Escape') pointSpot(room, -1);
    if (to === undefined) return;
    pointSpot(room, Math.max(0, Math.min(last, to)));
    event.preventDefault();
  });
}

function nearestSpot(room, event) {
  const {view, spots} = charted.get(room), svg = room.querySelector('svg').getBoundingClientRect(), {left, top} = view.padding();
  const far = spots.map((spot) => Math.hypot(event.clientX - svg.left - left - spot.x, event.clientY - svg.top - top - spot.y));
  const least = far.indexOf(Math.min(...far));
  return far[least] < 30 ? least : -1;
}

function pointSpot(room, at) {
  const now = charted.get(room), spot = now.spots[at];
  now.at = at;
  now.view.data('at', spot ? [spot.mark || {x: spot.x, y: spot.y}] : []).run();
  if (!spot) { hideCard(); return; }
  const svg = room.querySelector('svg').getBoundingClientRect(), {left, top} = now.view.padding();
  showCard(spot.card, {x: svg.left + left + spot.x, y: svg.top + top + spot.y});
}

async function drawComparison() {
  const room = document.getElementById('comparison'), data = page.comparison;
  if (!room || !data) return;
  const view = await drawView(room, 'comparison', Math.min(900, room.clientWidth - 10), data);
  if (!view) return;
  const x = view.scale('x'), row = view.signal('row'), high = view.signal('line');
  listenCards(view, room, 'speedups over the baseline', data.data.lines.map((line) =>
    ({x: x(line.ratio), y: line.row * row + line.side * high + high / 2, card: line.card})).sort((a, b) => a.y - b.y));
}

// Panels beside each other, each with its title and words: a list of what `spec` draws.
async function drawPanels(id, spec, panels, label, spots = dotSpots) {
  const room = document.getElementById(id);
  if (!room || !panels) return;
  const figures = panels.map((panel) => {
    const drawn = make('div', {class: 'drawn'});
    const words = (panel.words || []).map((text) => make('span', {class: 'label', text}));
    return [panel, drawn, make('figure', {class: 'panel'}, make('figcaption', {}, make('b', {text: panel.title}), ...words), drawn)];
  });
  // What is there stays until the same is drawn anew: a page may be printed meanwhile.
  if (room.children.length !== figures.length) room.replaceChildren(...figures.map(([, , figure]) => figure));
  const turn = (turns.get(room) || 0) + 1, sides = page.specs[spec].padding;
  turns.set(room, turn);
  for (const [place, [panel, drawn, figure]] of figures.entries()) {
    const width = room.children[place].querySelector('.drawn').clientWidth;
    const view = await drawView(drawn, spec, Math.max(100, width - sides.left - sides.right), panel);
    if (!view || turns.get(room) !== turn) return;
    if (room.children[place] !== figure) room.children[place].replaceWith(figure);
    const found = spots(panel, view.scale('x'), view.scale('y'));
    if (found.length) listenCards(view, drawn, label + ', ' + panel.title, found);
    await breath();
  }
}

function dotSpots(panel, x, y) {
  return panel.data.dots.map((dot) => ({x: x(dot.x), y: y(dot.y), card: dot.card}));
}

async function drawScaling() {
  await drawPanels('scaling', 'scaling', page.scaling, 'throughput against copies');
  await drawPanels('models', 'model', page.models, 'models of layouts');
}

// Two runs over one axis of places: a dot is a copy's median time in one of them.
async function drawPair() {
  const pair = page.pair;
  if (!pair) return;
  const named = (name, node) => pair.axis + ' ' + name + (node === null ? '' : ' \u00b7 NUMA node ' + node);
  const groups = pair.groups.map(([name, first, size], place) => ({name, first, size, place}));
  const panels = pair.panels.map((panel) => {
    const d = panel.dots;
    const rows = d.s.map((s, i) => ({s, place: d.place[i], kind: d.kind[i], it: d.it[i], shade: pair.shades[d.it[i] - 1],
      card: [named(pair.axis === 'CPU' ? d.cpu[i] : d.copy[i], d.node[i]), 'run ' + pair.runs[d.it[i] - 1] + ': ' + valueText(s), panel.title]}));
    return {title: panel.title, words: [...panel.labels.map((one) => one.text), ...panel.outside, panel.failedText, panel.notKnown].filter(Boolean),
      signals: {places: pair.places, low: panel.low, high: panel.high, median: panel.median, dot: pair.places > 200 ? 4 : pair.places > 60 ? 7 : 12},
      data: {rows, groups: groups.map((one) => ({...one})), failed: panel.failed.map(([place]) => ({place})), ticks: panel.ticks.map(([value, seconds, share]) => ({value, seconds, share}))}};
  });
  await drawPanels('pair-places', 'panel', panels, (page.measure ? page.measure.name : 'times') + ' of the copies in both runs', ({signals, data}, x, y) =>
    data.rows.map((row) => ({x: x(row.place), y: y(Math.min(signals.high, Math.max(signals.low, row.s))), card: row.card, mark: {place: row.place, s: row.s}})));
  for (const {data} of pair.scatter) {
    for (const dot of data.dots) {
      dot.card = [named(dot.name, dot.node), 'run ' + pair.runs[0] + ': ' + valueText(dot.x), 'run ' + pair.runs[1] + ': ' + valueText(dot.y), percentText(dot.y / dot.x)];
    }
  }
  await drawPanels('pair-scatter', 'model', pair.scatter, 'each copy, after over before');
  await drawPanels('pair-ranks', 'model', pair.ranks, 'copies in their order');
}

async function drawCpi() {
  const room = document.getElementById('cpi'), data = page.cpi;
  if (!room || !data) return;
  const view = await drawView(room, 'cpi', Math.min(900, room.clientWidth - 10), data);
  if (!view) return;
  const x = view.scale('x'), line = view.signal('line');
  listenCards(view, room, 'cycles per instruction and their parts', data.data.bars.map((bar) =>
    ({x: (x(bar.from) + x(bar.to)) / 2, y: bar.row * line + line / 2, card: bar.card})));
}

async function drawCharts() {
  await drawCpi();
  await drawComparison();
  await drawScaling();
}

async function startCharts() {
  await drawCharts();
  const room = document.getElementById('comparison') || document.getElementById('scaling') || document.getElementById('models') || document.getElementById('cpi');
  if (!room) return;
  let width = room.clientWidth;
  new ResizeObserver(() => {
    if (!room.clientWidth || room.clientWidth === width) return;
    width = room.clientWidth;
    drawCharts().then(drawPair);
  }).observe(room);
}
