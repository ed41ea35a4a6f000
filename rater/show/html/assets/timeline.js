// Who ran when: how long each bracket was and what of it slow copies cost, then the bars of one.
let timelineRun = runs[0];
let timelineAt = 0;
let worstBracket = 0; // of the run: what is shown at first
let tracksView = null, trackLabel = null;
let timelineView = null, bracketsView = null, timelineBars = [], bracketOrder = [], barNow = null;

function bracketName(bracket) {
  const tune = bracket.tune && new Set(timelineRun.timeline.brackets.map((b) => b.tune)).size > 1 ? ' ' + bracket.tune : '';
  const name = bracket.benchmark === null ? 'all benchmarks' : bracket.benchmark + tune;
  return name + (bracket.iteration === null ? '' : ', iteration ' + bracket.iteration) + (bracket.counted ? '' : ' (not counted)');
}

function placeOf(run) {
  const places = new Map(run.names.map((name, place) => [name, place]));
  return (copy, cpu) => run.axis === 'CPU' && cpu !== null ? places.get(cpu) : places.get(copy);
}

async function drawBrackets() {
  const room = document.getElementById('brackets'), key = document.getElementById('brackets-key');
  const brackets = timelineRun.timeline.brackets.map((bracket, place) => ({...bracket, place}))
    .filter((bracket) => bracket.benchmark !== null && bracket.whole);
  if (bracketsView) { bracketsView.finalize(); bracketsView = null; }
  room.replaceChildren();
  key.textContent = '';
  if (brackets.length < 2) return;
  const rows = new Map();
  for (const bracket of brackets) {
    const name = bracketName({...bracket, iteration: null, counted: true});
    if (!rows.has(name)) rows.set(name, []);
    rows.get(name).push(bracket);
  }
  const worst = (of) => Math.max(...of.map((b) => b.counted ? b.lost || 0 : 0));
  const failures = (of) => of.reduce((n, b) => n + b.bars.bad.length, 0);
  const sorted = [...rows].sort((a, b) => worst(b[1]) - worst(a[1]));
  const loses = brackets.some((b) => b.lost);
  key.append('A bar is the bracket of a benchmark and iteration, from the first start to the last finish',
    ...(loses ? ['; its last part is ', make('b', {class: 'slow', text: 'what slow copies cost'}), ' (score lost)'] : []),
    '. ', make('span', {class: 'screened', text: 'A click, or the list below, shows the copies of one: '}), make('span', {class: 'printed', text: 'The one shown below: '}),
    make('b', {class: 'pick', text: 'it is green, with an edge'}), '.',
    ...(brackets.some((b) => b.bars.bad.length) ? [' \u00d7: copies failed; without a valid result there is no score lost.'] : []));
  // Rows of many iterations grow: a bar that is less than two pixels high is no bar.
  const deepest = Math.max(...sorted.map(([, of]) => of.length)), gap = 6;
  const pitch = Math.max(2.4, Math.min(4, 900 / (sorted.length * deepest)));
  const rowHeight = Math.max(13, Math.min(22, 7 * deepest), pitch * deepest + gap);
  const barsShare = Math.max(0.72, 1 - gap / rowHeight);
  const thick = (of) => barsShare / of.length;
  const bars = sorted.flatMap(([, of], row) => of.map((b, i) => ({
    place: b.place, row, whole: b.whole, lost: Math.max(0, b.lost || 0), top: (1 - barsShare) / 2 + i * thick(of), thick: thick(of) * (of.length > 1 ? 0.85 : 1),
  })));
  const titles = sorted.map(([text, of], row) => ({
    text, row, most: Math.max(...of.map((b) => b.whole)), lost: (worst(of) >= 0.0005 ? (worst(of) * 100).toFixed(1) + ' %' : '') + (failures(of) ? ' \u00d7' : ''),
  }));
  const view = await drawView(room, 'brackets', room.clientWidth - 10, {
    signals: {
      rows: sorted.length, row: rowHeight, most: Math.max(...titles.map((t) => t.most)), chosen: timelineAt,
      names: Math.min(room.clientWidth * 0.36, 12 + 6.4 * Math.max(...sorted.map(([name]) => name.length))),
    },
    data: {bars, titles},
  });
  if (!view) return;
  bracketsView = view;
  bracketOrder = bars.map((bar) => bar.place);
  const placeAt = (item) => item && item.datum && item.datum.place !== undefined ? item.datum.place : null;
  bracketsView.addEventListener('click', (event, item) => {
    if (placeAt(item) === null) return;
    showBracket(placeAt(item));
    showCard(bracketLines(placeAt(item)), {x: event.clientX, y: event.clientY});
  });
  bracketsView.addEventListener('pointermove', (event, item) => {
    if (placeAt(item) === null) hideCard(); else showCard(bracketLines(placeAt(item)), {x: event.clientX, y: event.clientY});
  });
}

function bracketLines(place) {
  const at = timelineRun.timeline.brackets[place], bad = at.bars.bad.length;
  return [bracketName(at), 'bracket ' + timeText(at.whole), at.median === null ? null : 'median copy ' + timeText(at.median),
    at.lost === null ? null : 'score lost ' + (at.lost * 100).toFixed(1) + ' %',
    bad ? bad + (bad === 1 ? ' copy run' : ' copy runs') + ' failed' : null];
}

// Brackets by key, in the order they stand in; of the timeline, bar by bar.
function timelineKeys() {
  const room = document.getElementById('brackets'), bars = document.getElementById('timeline');
  makeReadable(room, 'brackets; arrow keys show the copies of the next one');
  makeReadable(bars, 'who ran when; arrow keys move from run to run, Enter highlights a copy');
  room.addEventListener('pointerleave', hideCard);
  room.addEventListener('blur', hideCard);
  room.addEventListener('keydown', (event) => {
    const to = keyTarget(event.key, bracketOrder.indexOf(timelineAt), bracketOrder.length - 1);
    if (to === undefined) return;
    event.preventDefault();
    if (bracketOrder[to] === undefined) return;
    showBracket(bracketOrder[to]);
    const box = room.getBoundingClientRect();
    showCard(bracketLines(bracketOrder[to]), {x: box.x + box.width / 3, y: box.y});
  });
  bars.addEventListener('blur', () => pointBar(null));
  bars.addEventListener('keydown', (event) => {
    const along = {ArrowRight: 1, ArrowLeft: -1}[event.key], across = {ArrowUp: -1, ArrowDown: 1}[event.key];
    if (event.key === 'Enter' && barNow) choose({field: 'copy', values: [barNow.copy], text: 'copy ' + barNow.copy});
    else if (event.key === 'Home' || event.key === 'End' || along || across) pointBar(nextBar(event.key, along, across));
    else return;
    event.preventDefault();
  });
}

// Along time the run of the copy before or after; across, what the place above or below runs then.
function nextBar(key, along, across) {
  const ordered = [...timelineBars].sort((a, b) => a.place - b.place || a.from - b.from);
  if (!barNow || key === 'Home') return ordered[key === 'End' ? ordered.length - 1 : 0] || null;
  if (key === 'End') return ordered[ordered.length - 1];
  if (along) {
    const own = ordered.filter((bar) => bar.place === barNow.place);
    return own[own.indexOf(barNow) + along] || barNow;
  }
  const others = ordered.filter((bar) => (bar.place - barNow.place) * across > 0);
  const far = (bar) => Math.abs(bar.place - barNow.place) * 1e9 + Math.abs(bar.from - barNow.from);
  return others.reduce((best, bar) => best === null || far(bar) < far(best) ? bar : best, null) || barNow;
}

function pointBar(bar) {
  barNow = bar;
  if (!timelineView) return;
  timelineView.data('at', bar ? [{place: bar.place, from: bar.from, to: bar.to}] : []).run();
  if (!bar) { hideCard(); return; }
  const svg = document.querySelector('#timeline svg').getBoundingClientRect(), sides = page.specs.timeline.padding;
  showCard(barLines(bar), {x: svg.left + sides.left + timelineView.scale('x')((bar.from + bar.to) / 2), y: svg.top + sides.top + timelineView.scale('y')(bar.place)});
}

function barsOf(bracket) {
  const run = timelineRun, at = placeOf(run), b = bracket.bars, bad = new Map(b.bad), kinds = new Map(b.kind);
  return b.s.map((s, i) => ({
    place: at(b.copy[i], b.cpu[i]), copy: b.copy[i], cpu: b.cpu[i], core: b.core[i], node: b.node[i],
    name: bracket.benchmark === null ? b.name[i] : -2, of: run.timeline.names[b.name[i]], from: b.from[i], to: b.from[i] + s, s, bad: bad.get(i) || null,
    it: b.it ? b.it[i] : bracket.iteration, tune: b.tune ? b.tune[i] : bracket.tune, kind: kinds.get(i) || 0,
    odd: bracket.benchmark === null && b.name[i] % 2,
  })).filter((bar) => bar.place !== undefined);
}

// What is coloured above the bars: what is chosen, else the benchmark that the reader has named.
function pickedBars() {
  const name = Number(document.getElementById('benchmark').value);
  let isPicked = (bar) => bar.name === name;
  if (chosen && timelineRun.timeline.brackets[timelineAt].folded) { // a bar is all runs of its copy
    const copies = new Set(timelineRun.panels.flatMap((panel) => [...panel.rows, ...panel.bad].filter(isChosen).map((row) => row.copy)));
    isPicked = (bar) => copies.has(bar.copy);
  } else if (chosen) {
    isPicked = (bar) => isPart(timelineRun, bar.of, bar.tune, bar);
  }
  return timelineBars.filter(isPicked).map(({place, from, to}) => ({place, from, to}));
}

async function showBracket(place) {
  timelineAt = place;
  keep('when', place === worstBracket ? '' : timelineRun.run + '.' + place);
  const run = timelineRun, bracket = run.timeline.brackets[place];
  const room = document.getElementById('timeline'), key = document.getElementById('timeline-key');
  if (timelineView) { timelineView.finalize(); timelineView = null; }
  barNow = null;
  room.replaceChildren();
  if (!bracket) { key.textContent = 'Nothing is stored of when copies ran.'; return; }
  document.getElementById('bracket').value = String(place);
  timelineBars = barsOf(bracket);
  const places = run.names.length;
  const sides = page.specs.timeline.padding;
  const view = await drawView(room, 'timeline', room.clientWidth - sides.left - sides.right, {
    signals: {places, height: Math.max(28, Math.min(430, places * (places > 40 ? 4 : places > 8 ? 9 : 14)))},
    data: {
      groups: run.groups.map((g) => ({...g})), bars: timelineBars, marks: bracket.half ? [{...bracket.half}] : [],
      edges: bracket.window.map((at) => ({at})), picked: pickedBars(),
    },
  });
  if (!view) return;
  timelineView = view;
  if (bracketsView) bracketsView.signal('chosen', place).run();
  const named = (runs.length > 1 ? 'Run ' + run.run + ', ' : '') + bracketName(bracket);
  key.replaceChildren(make('b', {class: 'printed', text: named + '. '}), (bracket.known ? 'A bar is a run of a copy from its start to its end'
    : 'Start times are not known: the bars begin together, their lengths are the times of the copies') +
    (bracket.folded ? ' (more than can be drawn: from its first start to its last end)' : '') +
    (bracket.window.length ? '; completions count between the upright lines, the shaded window' : '') +
    (bracket.benchmark === null ? '; light and dark take turns' : ''),
    ...(bracket.benchmark === null ? [make('span', {class: 'screened', text: ', a benchmark chosen above is green'})] : []),
    make('span', {class: 'printed', id: 'timeline-green'}),
    ...(timelineBars.some((bar) => bar.kind === 1) ? ['; ', make('b', {class: 'slow', text: 'orange: a divot'})] : []),
    ...(timelineBars.some((bar) => bar.kind === 2) ? ['; ', make('b', {class: 'explained', text: 'blue: slow, as the layout explains'})] : []),
    ...(timelineBars.some((bar) => bar.bad) ? ['; pink with an edge and a \u00d7: did not end well'] : []), '. Below: how many copies were running.');
  showGreen();
  timelineRoom(room);
  await drawTracks(bracket);
}

// What the machine did meanwhile, on the same axis: a row for each quantity, as high as its share of the most.
async function drawTracks(bracket) {
  const room = document.getElementById('tracks'), key = document.getElementById('tracks-key');
  if (tracksView) { tracksView.finalize(); tracksView = null; }
  room.replaceChildren();
  key.textContent = '';
  if (!bracket.tracks.length) return;
  const most = Math.max(...timelineBars.map((bar) => bar.to)), sides = page.specs.tracks.padding;
  const steps = bracket.tracks.flatMap((track, row) => track.v.map((v, i) => ({row, v: v === null ? null : v / track.most, from: Math.max(0, track.edges[i]), to: Math.min(most, track.edges[i + 1])})))
    .filter((step) => step.v !== null && step.from < step.to);
  const view = await drawView(room, 'tracks', room.clientWidth - sides.left - sides.right, {
    signals: {tracks: bracket.tracks.length, most, bands: bracket.bands.length, band: 6},
    data: {steps, names: bracket.tracks.map((track, row) => ({row, text: track.name, most: track.text})), bands: bracket.bands.map((band, row) => ({row, from: Math.max(0, band.from), to: Math.min(most, band.to)}))},
  });
  if (!view) return;
  tracksView = view;
  key.replaceChildren('What CPUs, disks and memory did meanwhile, by samples once a second; at the left the most of each. Shares are of the CPUs that copies had.',
    ...(bracket.bands.length ? [' ', make('b', {class: 'slow', text: 'Orange, from the top'}), ': ' + bracket.bands.map((band) => band.text).join('; ') + '.'] : []));
  const label = (at) => {
    const seconds = view.scale('x').invert(at);
    return ['at ' + secondText(seconds), ...bracket.bands.filter((band) => band.from <= seconds && seconds < band.to).map((band) => band.text), ...bracket.tracks.map((track) => {
      const place = track.edges.findIndex((edge, i) => edge <= seconds && seconds < track.edges[i + 1]);
      return place < 0 || track.v[place] === null ? null : track.name + ' ' + Number(track.v[place].toPrecision(3)) + ' ' + track.unit;
    })];
  };
  trackLabel = label;
  if (room.dataset.listens) return;
  room.dataset.listens = 'yes';
  let at = -1;
  const point = (x, event) => {
    if (!tracksView) return;
    at = Math.max(0, Math.min(x, tracksView.width()));
    const svg = room.querySelector('svg').getBoundingClientRect();
    tracksView.data('at', [{x: at}]).run();
    showCard(trackLabel(at), event || {x: svg.left + sides.left + at, y: svg.top});
  };
  const leave = () => { at = -1; if (tracksView) tracksView.data('at', []).run(); hideCard(); };
  makeReadable(room, 'what the machine did over time; arrow keys move along it');
  room.addEventListener('pointermove', (event) => point(event.clientX - room.querySelector('svg').getBoundingClientRect().left - sides.left, {x: event.clientX, y: event.clientY}));
  room.addEventListener('pointerleave', leave);
  room.addEventListener('blur', leave);
  room.addEventListener('keydown', (event) => {
    const by = {ArrowRight: 0.02, ArrowLeft: -0.02}[event.key];
    if (by === undefined || !tracksView) return;
    point((at < 0 ? 0 : at) + by * tracksView.width());
    event.preventDefault();
  });
}

// On paper there are no tools that say what is green.
function showGreen() {
  const note = document.getElementById('timeline-green'), select = document.getElementById('benchmark');
  if (!note) return;
  const mixed = timelineRun.timeline.brackets[timelineAt].benchmark === null && select.value !== '-1';
  note.textContent = chosen ? '; green: ' + chosen.text : mixed ? '; green: ' + select.selectedOptions[0].textContent : '';
}

function pickBars() {
  if (!timelineView) return;
  timelineView.data('picked', pickedBars()).run();
  showGreen();
}

function barAt(room, event) {
  const svg = room.querySelector('svg').getBoundingClientRect(), sides = page.specs.timeline.padding;
  const at = timelineView.scale('x').invert(event.clientX - svg.left - sides.left);
  const place = Math.floor(timelineView.scale('y').invert(event.clientY - svg.top - sides.top));
  return timelineBars.find((bar) => bar.place === place && bar.from <= at && at <= bar.to) || null;
}

function barLines(bar) {
  return [placeText(bar), bar.of, bar.bad, timelineRun.timeline.brackets[timelineAt].known ? 'ran from ' + secondText(bar.from) + ' to ' + secondText(bar.to) + ' of this bracket' : null, 'it took ' + timeText(bar.s)];
}

function timelineRoom(room) {
  if (room.dataset.listens) return;
  room.dataset.listens = 'yes';
  room.addEventListener('pointermove', (event) => {
    if (!timelineView) return;
    const bar = barAt(room, event);
    timelineView.data('at', bar ? [{place: bar.place, from: bar.from, to: bar.to}] : []).run();
    if (bar) showCard(barLines(bar), {x: event.clientX, y: event.clientY}); else hideCard();
  });
  room.addEventListener('pointerleave', () => { if (timelineView) timelineView.data('at', []).run(); hideCard(); });
  room.addEventListener('click', (event) => {
    const bar = timelineView && barAt(room, event);
    if (!bar) return;
    choose({field: 'copy', values: [bar.copy], text: 'copy ' + bar.copy});
    showCard(barLines(bar), {x: event.clientX, y: event.clientY}); // a tap has no pointer to hover with
  });
}

async function fillBrackets() {
  const of = timelineRun.timeline;
  document.getElementById('bracket').replaceChildren(...of.brackets.map((bracket, i) => make('option', {value: String(i), text: bracketName(bracket)})));
  document.getElementById('benchmark').replaceChildren(make('option', {value: '-1', text: 'no benchmark'}),
    ...of.names.map((name, i) => make('option', {value: String(i), text: name})));
  const mixed = of.brackets.some((bracket) => bracket.benchmark === null);
  const divots = of.brackets.some((bracket) => bracket.bars.kind.length);
  document.getElementById('benchmark').value = mixed && !divots ? '0' : '-1'; // green would hide what is orange
  const [barsRun, bars] = (address.set.get('bars') || '').split('.');
  if (barsRun === String(timelineRun.run) && of.names[bars] !== undefined) document.getElementById('benchmark').value = bars;
  document.getElementById('benchmark').parentNode.hidden = !mixed;
  const lost = of.brackets.map((bracket) => bracket.counted ? bracket.lost || 0 : -1);
  const failed = of.brackets.findIndex((bracket) => bracket.bars.bad.length);
  worstBracket = failed >= 0 ? failed : Math.max(0, lost.indexOf(Math.max(...lost)));
  const [run, place] = (address.set.get('when') || '').split('.');
  timelineAt = run === String(timelineRun.run) && of.brackets[place] ? Number(place) : worstBracket;
  await drawBrackets();
  await showBracket(timelineAt);
}

async function startTimeline() {
  const tools = document.getElementById('timeline-tools');
  const bracket = make('select', {id: 'bracket'}), benchmark = make('select', {id: 'benchmark'});
  const which = make('select', {id: 'timeline-run'}, ...runs.map((run, i) => make('option', {value: String(i), text: 'run ' + run.run})));
  const button = (text, by, label) => {
    const node = make('button', {type: 'button', text, 'aria-label': label});
    node.addEventListener('click', () => showBracket(Math.max(0, Math.min(timelineRun.timeline.brackets.length - 1, timelineAt + by))));
    return node;
  };
  tools.append(...(runs.length > 1 ? [make('label', {text: 'run '}, which)] : []), make('label', {text: 'bracket '}, bracket),
    button('\u2190', -1, 'the bracket before'), button('\u2192', 1, 'the next bracket'), make('label', {text: 'coloured '}, benchmark));
  bracket.addEventListener('change', () => showBracket(Number(bracket.value)));
  benchmark.addEventListener('change', () => { pickBars(); keep('bars', benchmark.value === '-1' ? '' : timelineRun.run + '.' + benchmark.value); });
  which.addEventListener('change', () => { timelineRun = runs[Number(which.value)]; fillBrackets(); });
  timelineKeys();
  const at = runs.findIndex((run) => String(run.run) === (address.set.get('when') || '').split('.')[0]);
  if (at >= 0) { timelineRun = runs[at]; which.value = String(at); }
  await fillBrackets();
  let width = document.getElementById('timeline').clientWidth;
  new ResizeObserver(() => {
    const now = document.getElementById('timeline').clientWidth;
    if (now && now !== width) { width = now; drawBrackets().then(() => showBracket(timelineAt)); }
  }).observe(document.getElementById('timeline'));
  listeners.push(pickBars);
}
