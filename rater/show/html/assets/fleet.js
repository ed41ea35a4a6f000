// The map of a fleet: rows with names (the first of them), all rows as lines of a canvas, and the
// story of the host that is chosen. Values are time over the others' median, less 1, in thousandths.
const data = await unpacked();
const MOST_NAMED = 40;
const hosts = new Map(data.hosts.map((host) => [host.name, host]));
const state = {by: '', only: false, find: '', chosen: ''};

function make(name, attributes = {}, ...children) {
  const it = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'text') it.textContent = value;
    else if (value !== null && value !== undefined && value !== false) it.setAttribute(key, value === true ? '' : value);
  }
  it.append(...children);
  return it;
}

function percent(value) {
  if (value === null || value === undefined) return '-';
  const size = value / 10;
  return `${size > 0 ? '+' : size < 0 ? '\u2212' : ''}${Math.abs(size).toFixed(1)} %`;
}

function heat(value) { return Math.min(1, Math.abs(value) / data.span); }

function paint(it, value) {
  if (value === null || value === undefined) { it.classList.add('none'); return; }
  it.style.setProperty('--heat', `${(heat(value) * 100).toFixed(0)}%`);
  it.classList.toggle('quick', value < 0);
}

function middle(values) {
  const known = values.filter((it) => it !== null).sort((a, b) => a - b);
  return known.length ? known[Math.floor(known.length / 2)] : -Infinity;
}

// In the order asked for: the worst first, by name, or by one benchmark; kind after kind.
function ordered() {
  const column = data.benchmarks.indexOf(state.by);
  const wanted = state.find.trim().toLowerCase();
  const shown = data.hosts.filter((host) => (!state.only || host.slow) && (!wanted || host.name.toLowerCase().includes(wanted)));
  const value = (host) => (host.values[column] ?? -Infinity);
  return shown
    .map((host, place) => ({host, place}))
    .sort((a, b) => a.host.kind - b.host.kind
      || (state.by === 'name' ? a.host.name.localeCompare(b.host.name, undefined, {numeric: true}) : column >= 0 ? value(b.host) - value(a.host) : 0)
      || a.place - b.place)
    .map(({host}) => host);
}

function row(host) {
  const name = make('button', {type: 'button', text: host.name, title: `${host.name}: more`});
  const cells = host.values.map((value, column) => {
    const cell = make('td', {title: `${host.name}, ${data.benchmarks[column]}: ${percent(value)}`});
    paint(cell, value);
    if (host.found.includes(column)) cell.classList.add('found');
    return cell;
  });
  const line = make('tr', {class: [host.slow && 'is-slow', host.name === state.chosen && 'chosen'].filter(Boolean).join(' '), 'data-host': host.name}, make('th', {scope: 'row'}, name), ...cells);
  line.addEventListener('click', () => choose(host.name));
  return line;
}

function sortButton(by, text) {
  const button = make('button', {type: 'button', text, title: `sort by ${by || 'the worst'}`});
  button.addEventListener('click', () => { state.by = state.by === by ? '' : by; draw(); });
  return button;
}

function drawRows(shown) {
  const heads = [['name', 'host'], ...data.benchmarks.map((name) => [name, name])];
  const head = make('tr', {}, ...heads.map(([by, text]) => make('th', {scope: 'col', class: state.by === by ? 'by' : null, 'aria-sort': state.by === by ? (by === 'name' ? 'ascending' : 'descending') : 'none'}, sortButton(by, text))));
  const body = [];
  let kind = shown.length ? shown[0].kind : 0;
  if (kind) body.push(heading(kind));
  for (const host of shown.slice(0, MOST_NAMED)) {
    if (host.kind !== kind) { kind = host.kind; body.push(heading(kind)); }
    body.push(row(host));
  }
  const left = shown.length > MOST_NAMED ? [make('p', {class: 'how', text: `${MOST_NAMED} of ${shown.length}; all of them at the right, or find one by its name`})] : [];
  document.getElementById('rows').replaceChildren(
    shown.length ? make('table', {}, make('thead', {}, head), make('tbody', {}, ...body)) : make('p', {text: 'No such host.'}), ...left);
}

function heading(kind) {
  return make('tr', {}, make('th', {class: 'other', colspan: data.benchmarks.length + 1, text: data.kinds[kind]}));
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const context = make('canvas').getContext('2d');
  return ['--even', '--hot', '--cool', '--page'].map((name) => {
    context.fillStyle = style.getPropertyValue(name);
    context.fillRect(0, 0, 1, 1);
    return context.getImageData(0, 0, 1, 1).data;
  });
}

let lines = {shown: [], height: 1};
function drawOverview(shown) {
  const figure = document.getElementById('overview');
  figure.hidden = shown.length <= MOST_NAMED;
  if (figure.hidden) return;
  const height = Math.max(1, Math.min(8, Math.floor(1600 / shown.length)));
  const wide = Math.max(6, Math.min(18, Math.floor(320 / data.benchmarks.length)));
  const canvas = figure.querySelector('canvas');
  const context = canvas.getContext('2d');
  canvas.width = wide * data.benchmarks.length;
  canvas.height = height * shown.length;
  const [even, hot, cool, page] = colours();
  const image = context.createImageData(canvas.width, canvas.height);
  shown.forEach((host, place) => {
    host.values.forEach((value, column) => {
      const share = value === null ? 0 : heat(value);
      const from = value === null ? page : even, to = value !== null && value < 0 ? cool : hot;
      for (let y = place * height; y < (place + 1) * height; y++) {
        for (let x = column * wide; x < (column + 1) * wide; x++) {
          const at = 4 * (y * canvas.width + x);
          for (let c = 0; c < 3; c++) image.data[at + c] = from[c] + (to[c] - from[c]) * share;
          image.data[at + 3] = 255;
        }
      }
    });
  });
  context.putImageData(image, 0, 0);
  const order = state.by === 'name' ? 'by name' : state.by ? `the slowest in ${state.by} first` : 'the worst first';
  figure.querySelector('figcaption').textContent = `all ${shown.length.toLocaleString('en')}, a row each, ${order}`;
  lines = {shown, height, wide};
}

function under(event) {
  const host = lines.shown[Math.floor(event.offsetY / lines.height)];
  const column = Math.floor(event.offsetX / lines.wide);
  return host && column >= 0 && column < data.benchmarks.length ? {host, column} : null;
}

const card = document.getElementById('card');
function point(event) {
  const at = under(event);
  card.hidden = !at;
  if (!at) return;
  card.textContent = `${at.host.name}: ${data.benchmarks[at.column]} ${percent(at.host.values[at.column])}; all ${percent(middle(at.host.values))}`;
  card.style.left = `${Math.min(event.clientX + 14, innerWidth - card.offsetWidth - 8)}px`;
  card.style.top = `${Math.min(event.clientY + 14, innerHeight - card.offsetHeight - 8)}px`;
}

// What is known of a host: the finding, what is slow inside, what is set otherwise, every benchmark.
function tell(host) {
  const story = document.getElementById('story');
  const close = make('button', {type: 'button', class: 'close', text: 'close'});
  close.addEventListener('click', () => choose(''));
  const bars = data.benchmarks.map((name, column) => {
    const tile = make('span', {class: 'tile'});
    paint(tile, host.values[column]);
    return make('div', {class: host.found.includes(column) ? 'found' : null}, tile, make('span', {text: name}), make('b', {text: percent(host.values[column])}));
  });
  const word = `fleet:${data.fleet}/${host.name}`;
  const text = host.text.length ? host.text : [`${percent(middle(host.values))} in all benchmarks (median): nothing beyond chance`];
  story.replaceChildren(close, make('h3', {text: host.name}),
    ...text.map((line, place) => make('p', {text: line, class: place ? 'how' : host.slow ? 'lead' : null})),
    make('div', {class: 'bars'}, ...bars),
    make('p', {class: 'how', text: host.about}),
    make('p', {class: 'how'}, 'next: ', make('code', {text: `rater divots ${word}`}), ', ', make('code', {text: `rater report ${word}`}), ', ', make('code', {text: `rater history ${host.name}`})));
}

function choose(name, look = true) {
  state.chosen = name === state.chosen ? '' : name;
  const story = document.getElementById('story');
  const host = hosts.get(state.chosen);
  story.hidden = !host;
  for (const line of document.querySelectorAll('#rows tr.chosen')) line.classList.remove('chosen');
  if (!host) { history.replaceState(null, '', location.pathname + location.search); return; }
  tell(host);
  for (const line of document.querySelectorAll('#rows tr[data-host]')) line.classList.toggle('chosen', line.dataset.host === host.name);
  history.replaceState(null, '', `#${encodeURIComponent(host.name)}`);
  if (look) { story.focus({preventScroll: true}); story.scrollIntoView({block: 'nearest'}); }
}

function draw() {
  const shown = ordered();
  drawRows(shown);
  drawOverview(shown);
}

function tools() {
  const find = make('input', {type: 'search', id: 'find', placeholder: data.hosts.length ? data.hosts[0].name : '', autocomplete: 'off'});
  find.addEventListener('input', () => { state.find = find.value; draw(); });
  find.addEventListener('keydown', (event) => {
    const first = event.key === 'Enter' && ordered()[0];
    if (first) { state.chosen = ''; choose(first.name); }
  });
  const only = make('input', {type: 'checkbox', id: 'only'});
  only.addEventListener('change', () => { state.only = only.checked; draw(); });
  const sort = make('select', {id: 'sort'}, make('option', {value: '', text: 'the worst first'}), make('option', {value: 'name', text: 'by name'}), ...data.benchmarks.map((name) => make('option', {value: name, text: `by ${name}`})));
  sort.addEventListener('change', () => { state.by = sort.value; draw(); });
  const ramp = make('span', {class: 'scale'}, `${percent(-data.span)} faster`, make('span', {class: 'ramp'}), `slower ${percent(data.span)}`);
  document.getElementById('map-tools').append(
    make('label', {for: 'find', text: 'host'}), find, make('label', {for: 'sort', text: 'order'}), sort,
    ...(data.hosts.some((host) => host.slow) ? [make('label', {}, only, ' slow ones only')] : []), ramp);
}

const began = performance.now();
tools();
draw();
const canvas = document.querySelector('#overview canvas');
canvas.addEventListener('mousemove', point);
canvas.addEventListener('mouseleave', () => { card.hidden = true; });
canvas.addEventListener('click', (event) => { const at = under(event); if (at) { state.chosen = ''; choose(at.host.name); } });
for (const link of document.querySelectorAll('a[data-host]')) {
  link.addEventListener('click', (event) => { event.preventDefault(); state.chosen = ''; choose(link.dataset.host); });
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
const asked = decodeURIComponent(location.hash.slice(1));
if (hosts.has(asked)) choose(asked);
document.documentElement.dataset.drawnMs = String(Math.round(performance.now() - began));
