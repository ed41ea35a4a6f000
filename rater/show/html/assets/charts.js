// Several runs: speedups over the baseline, and throughput against copies.
// Each room's picture as it is drawn now: `spots` are its points, course by course
// or from the top, and where they are.
const charted = new WeakMap();

function listenCards(view, room, label, spots) {
  const show = (event, item) => {
    if (item && item.datum && item.datum.card) showCard(item.datum.card, {x: event.clientX, y: event.clientY}); else hideCard();
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

function pointSpot(room, at) {
  const now = charted.get(room), spot = now.spots[at];
  now.at = at;
  now.view.data('at', spot ? [{x: spot.x, y: spot.y}] : []).run();
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

// Panels beside each other, each with its title: a list of what `spec` draws.
async function drawPanels(id, spec, panels, label) {
  const room = document.getElementById(id);
  if (!room || !panels) return;
  const figures = panels.map((panel) => {
    const drawn = make('div', {class: 'drawn'});
    return [panel, drawn, make('figure', {class: 'panel'}, make('figcaption', {}, make('b', {text: panel.title})), drawn)];
  });
  room.replaceChildren(...figures.map(([, , figure]) => figure));
  for (const [panel, drawn] of figures) {
    const sides = page.specs[spec].padding;
    const view = await drawView(drawn, spec, Math.max(100, drawn.clientWidth - sides.left - sides.right), panel);
    if (!view) return;
    const x = view.scale('x'), y = view.scale('y');
    listenCards(view, drawn, label + ', ' + panel.title, panel.data.dots.map((dot) => ({x: x(dot.x), y: y(dot.y), card: dot.card})));
  }
}

async function drawScaling() {
  await drawPanels('scaling', 'scaling', page.scaling, 'throughput against copies');
  await drawPanels('models', 'model', page.models, 'models of layouts');
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

async function startCharts() {
  await drawCpi();
  await drawComparison();
  await drawScaling();
  const room = document.getElementById('comparison') || document.getElementById('scaling') || document.getElementById('models') || document.getElementById('cpi');
  if (!room) return;
  let width = room.clientWidth;
  new ResizeObserver(() => {
    if (!room.clientWidth || room.clientWidth === width) return;
    width = room.clientWidth;
    drawCpi().then(drawComparison).then(drawScaling);
  }).observe(room);
}
