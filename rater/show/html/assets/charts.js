// Several runs: speedups over the baseline, and throughput against copies.
const verdictColour = {better: 'var(--good)', worse: 'var(--slow-text)', same: 'var(--faint)', unknown: 'var(--faint)'};

function comparisonTitles(data) {
  const several = data.sides.length > 1;
  return data.names.flatMap((name, row) => data.sides.map((side, at) => ({
    row, side: at, lead: !several || at === 0, text: several ? (at === 0 ? name + ': ' + side : side) : name,
  })));
}

// Each room's picture as it is drawn now: `spots` are its points, course by course
// or from the top, and where they are.
const charted = new WeakMap();

function listenCards(view, room, label, spots) {
  const tell = (event, item) => {
    if (item && item.datum && item.datum.card) showCard(item.datum.card, {x: event.clientX, y: event.clientY}); else hideCard();
  };
  view.addEventListener('pointermove', tell);
  view.addEventListener('click', tell);
  const known = charted.has(room);
  charted.set(room, {view, spots, at: -1});
  if (known) return;
  Object.entries({role: 'application', tabindex: 0, 'aria-label': label + '; arrow keys move from point to point'}).forEach(([k, v]) => room.setAttribute(k, v));
  room.addEventListener('pointerleave', hideCard);
  room.addEventListener('blur', () => pointSpot(room, -1));
  room.addEventListener('keydown', (event) => {
    const {at, spots: now} = charted.get(room), last = now.length - 1;
    const to = {
      ArrowRight: Math.min(last, at + 1), ArrowDown: Math.min(last, at + 1), ArrowLeft: Math.max(0, at - 1), ArrowUp: Math.max(0, at - 1),
      Home: 0, End: last, Escape: -1,
    }[event.key];
    if (to === undefined) return;
    pointSpot(room, to);
    if (event.key !== 'Escape') event.preventDefault();
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
  const titles = comparisonTitles(data);
  const longest = Math.max(...titles.map(({text}) => text.length));
  const view = await drawView(room, page.specs.comparison, Math.min(900, room.clientWidth - 10));
  if (!view) return;
  view.signal('names', Math.min(room.clientWidth * 0.4, 14 + 6.4 * longest)).signal('low', data.low).signal('high', data.high)
    .signal('rows', data.names.length).signal('sides', data.sides.length)
    .data('titles', titles).data('lines', data.lines.map((line) => ({...line, colour: verdictColour[line.kind]}))).run();
  const x = view.scale('x'), row = view.signal('row'), high = view.signal('line');
  listenCards(view, room, 'speedups over the baseline', data.lines.map((line) =>
    ({x: x(line.ratio), y: line.row * row + line.side * high + high / 2, card: line.card})).sort((a, b) => a.y - b.y));
}

// Numbers on an axis that have room for themselves, the last ones first.
function apart(places, room) {
  const kept = [];
  for (const one of [...places].reverse()) {
    if (kept.every((other) => Math.abs(other[0] - one[0]) >= room)) kept.push(one);
  }
  return kept;
}

async function drawScaling() {
  const room = document.getElementById('scaling');
  if (!room || !page.scaling) return;
  const figures = page.scaling.map((panel) => {
    const drawn = make('div', {class: 'drawn'});
    return [panel, drawn, make('figure', {class: 'panel'}, make('figcaption', {}, make('b', {text: panel.title})), drawn)];
  });
  room.replaceChildren(...figures.map(([, , figure]) => figure));
  for (const [panel, drawn] of figures) {
    const sides = page.specs.scaling.padding;
    const view = await drawView(drawn, page.specs.scaling, Math.max(100, drawn.clientWidth - sides.left - sides.right));
    if (!view) return;
    const shade = (n) => 'var(--dot' + n + ')';
    const top = Math.max(...panel.dots.map((dot) => dot.high)), high = top + 0.12 * (top - panel.bottom || 1);
    const first = panel.copies[0][0], last = panel.copies[panel.copies.length - 1][0];
    view.signal('bottom', panel.bottom).signal('top', high).signal('first', first).signal('last', last)
      .data('points', panel.lines.flatMap((line, i) => line.at.map(([x, y]) => ({line: i, x, y, colour: shade(line.shade)}))))
      .data('dots', panel.dots.map((dot) => ({...dot, colour: shade(dot.shade)})))
      .data('linear', panel.linear.map(([x, y]) => ({x, y}))).data('knees', panel.knees.map(([x, y, text]) => ({x, y, text})))
      .data('names', apart(panel.names.map(([, y, text, n]) => [y, text, n]), 0.08 * (high - panel.bottom)).map(([y, text, n]) => ({y, text, colour: shade(Math.min(3, n))})))
      .data('ends', apart(panel.ends, 0.08 * (high - panel.bottom)).map(([y, text]) => ({y, text})))
      .data('copies', apart(panel.copies, 0.09 * (last - first)).map(([x, text]) => ({x, text}))).run();
    const x = view.scale('x'), y = view.scale('y');
    listenCards(view, drawn, 'throughput against copies, ' + panel.title, panel.dots.map((dot) => ({x: x(dot.x), y: y(dot.y), card: dot.card})));
  }
}

async function startCharts() {
  await drawComparison();
  await drawScaling();
  const room = document.getElementById('comparison') || document.getElementById('scaling');
  if (!room) return;
  let width = room.clientWidth;
  new ResizeObserver(() => {
    if (!room.clientWidth || room.clientWidth === width) return;
    width = room.clientWidth;
    drawComparison().then(drawScaling);
  }).observe(room);
}
