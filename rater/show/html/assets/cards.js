// The card that tells of what is under the pointer or the keyboard, and the line of what is chosen.
const card = document.getElementById('card');

function showCard(lines, box) {
  card.replaceChildren(...lines.filter(Boolean).map((text, i) => make('div', {text, class: i ? null : 'lead'})));
  card.hidden = false;
  const {width, height} = card.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  const left = Math.max(4, Math.min(box.x + 14, room - width - 4));
  const below = box.y + 16 + height < window.innerHeight;
  card.style.left = left + 'px';
  card.style.top = (below ? box.y + 16 : Math.max(4, box.y - height - 12)) + 'px';
}

function hideCard() {
  card.hidden = true;
}

function placeText(row) {
  const parts = ['copy ' + row.copy];
  if (row.cpu !== null) parts.push('CPU ' + row.cpu);
  if (row.core !== null) parts.push('core ' + row.core);
  if (row.node !== null) parts.push('NUMA node ' + row.node);
  return parts.join(' \u00b7 ');
}

function dotLines(row) {
  const of = row.panel.median > 0 ? ' (' + percentText(row.s / row.panel.median) + ' to the median copy)' : '';
  if (row.what) return [placeText(row), row.panel.title + ', iteration ' + row.it, row.what, 'after ' + timeText(row.s) + '; it does not count'];
  const times = row.start === null ? null : page.measure ? 'started ' + secondText(row.start) + ' after the run' :
    row.fastest !== row.slowest ? 'first start ' + secondText(row.start) + ' after the start of the run' :
      'ran from ' + secondText(row.start) + ' to ' + secondText(row.start + row.s) + ' of the run';
  return [
    placeText(row),
    row.panel.title + ', iteration ' + row.it,
    (page.measure ? page.measure.name + ' ' : '') + valueText(row.s) + of,
    row.fastest !== row.slowest ? 'its runs: ' + valueText(row.fastest) + ' to ' + valueText(row.slowest) : null,
    times,
    row.more || null,
    row.local === null ? null : 'memory ' + (row.local * 100).toFixed(1) + ' % on its NUMA node',
  ];
}

// What a reader writes: `copy 7`, `NUMA node 1`, `node1`, `core 1`, `CPUs 0-3,8`, `7` alone. null: nothing; undefined: who knows.
function understood(text) {
  if (!text.trim()) return null;
  const found = /^\s*((?:numa\s*)?nodes?|lgroups?|cpus?|cores?|cop(?:y|ies))?\s*(\d{1,7}(?:\s*-\s*\d{1,7})?(?:[\s,]+\d{1,7}(?:\s*-\s*\d{1,7})?)*)\s*$/i.exec(text);
  if (!found) return undefined;
  const word = (found[1] || 'copy').toLowerCase();
  const field = word.startsWith('l') || word.startsWith('n') ? 'node' : word.startsWith('cp') ? 'cpu' : word.startsWith('cor') ? 'core' : 'copy';
  const there = new Set(runs.flatMap((run) => run.panels.flatMap((panel) => [...panel.rows, ...panel.bad].map((row) => row[field]))));
  const wanted = found[2].replace(/\s*-\s*/g, '-').split(/[\s,]+/).map((part) => part.split('-').map(Number));
  const values = wanted.flatMap(([first, last]) => last === undefined ? [first] : [...there].filter((v) => v !== null && v >= first && v <= last));
  const list = wanted.map((ends) => ends.join('-')).join(',');
  const several = /[-,]/.test(list);
  const name = {node: 'NUMA node', cpu: 'CPU', core: 'core', copy: several ? 'copie' : 'copy'}[field];
  return {field, values: [...new Set(values)].sort((a, b) => a - b), text: name + (several ? 's ' : ' ') + list};
}

function chooser() {
  const rows = runs.flatMap((run) => run.panels.flatMap((panel) => panel.rows));
  const options = make('datalist', {id: 'choices'});
  for (const [word, field] of [['NUMA node', 'node'], ['CPU', 'cpu'], ['copy', 'copy']]) {
    const values = new Set(rows.map((row) => row[field]).filter((value) => value !== null));
    for (const value of [...values].sort((a, b) => a - b)) options.append(make('option', {value: word + ' ' + value}));
  }
  const input = make('input', {id: 'choose', type: 'text', list: 'choices', autocomplete: 'off', placeholder: 'NUMA node 1, CPU 5', size: 20});
  const label = make('label', {text: 'highlight '}, input);
  const output = make('output', {id: 'chosen', 'aria-live': 'polite'});
  const clear = make('button', {type: 'button', id: 'clear', text: 'clear', hidden: true});
  const order = make('select', {id: 'order'},
    make('option', {value: 'worst', text: 'worst first'}), make('option', {value: 'suite', text: 'order of the suite'}));
  if (address.set.get('order') === 'suite') order.value = 'suite';
  input.addEventListener('change', () => {
    const found = understood(input.value);
    input.setAttribute('aria-invalid', String(found === undefined));
    if (found === undefined) output.textContent = '\u201c' + input.value.trim().slice(0, 40) + '\u201d is not understood: write copy 7, CPU 5, core 2 or NUMA node 1, or lists as in CPU 0-3,8';
    else if (found && !samePick(found, chosen)) choose(found);
    else if (!found && chosen) choose(null);
    else if (!found) output.textContent = '';
  });
  clear.addEventListener('click', () => { choose(null); input.focus(); });
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape') { hideCard(); if (chosen) choose(null); } });
  order.addEventListener('change', () => { orderPanels(order.value); keep('order', order.value === 'suite' ? 'suite' : ''); });
  document.getElementById('tools').append(label, options, clear, make('label', {text: 'panels '}, order), ...filterTools('panels-with', 'with '), output);
  listeners.push(() => {
    clear.hidden = !chosen;
    const link = chosen ? pickLinks().findIndex((one) => samePick(JSON.parse(one.dataset.pick), chosen)) : -1;
    keep('divot', link < 0 ? '' : String(link + 1));
    keep('chosen', chosen && understood(chosen.text) ? chosen.text : '');
    if (!chosen) { input.value = ''; output.textContent = ''; return; }
    input.value = /^divot/.test(chosen.text) ? '' : chosen.text;
    input.setAttribute('aria-invalid', 'false');
    output.textContent = chosenText();
  });
  // A link's place is scrolled to right after its click, before an observer would know.
  listeners.push(setToolsHeight);
  new ResizeObserver(setToolsHeight).observe(document.getElementById('tools'));
}

function pickLinks() {
  return [...document.querySelectorAll('a[data-pick]')];
}

// What the address says is chosen: a part of the machine, or a divot by its place among the links.
function chooseFromAddress() {
  const link = pickLinks()[Number(address.set.get('divot')) - 1];
  const part = understood(address.set.get('chosen') || '');
  if (link) choose(JSON.parse(link.dataset.pick)); else if (part) choose(part);
}

// What a link leads to stands below the tools, which stay at the top of the window.
function setToolsHeight() {
  document.documentElement.style.setProperty('--tools', document.getElementById('tools').getBoundingClientRect().height + 'px');
}

// A divot's size is that in its own benchmarks and iterations, wherever its copies are shown.
function isOwn(row) {
  const own = chosen.own;
  return !own || ((!own.benchmarks || own.benchmarks.includes(row.panel.benchmark)) &&
    (own.tune === undefined || own.tune === row.panel.tune) && (!own.its || own.its.includes(row.it)));
}

// The iterations that a divot is about, where it is about some of them.
function partText() {
  const its = chosen.turns ? Object.keys(chosen.turns) : chosen.own ? chosen.own.its : chosen.its;
  const every = new Set(runs.flatMap((run) => run.iterations));
  if (chosen.own && its && its.length === every.size) return '';
  if (!its || !its.length) return '';
  return ', iteration' + (its.length > 1 ? 's ' : ' ') + its.join(', ') + (chosen.turns ? ', the NUMA nodes that were slow in each' : ' alone');
}

function chosenText() {
  const parts = [];
  for (const run of runs) {
    if (chosen.run !== undefined && chosen.run !== run.run) continue;
    const shares = [], copies = new Set(), names = new Set();
    for (const panel of run.panels) {
      for (const row of panel.rows) {
        if (!isChosen(row)) continue;
        copies.add(row.copy);
        if (!isOwn(row) || !(panel.median > 0)) continue;
        shares.push(row.s / panel.median);
        names.add(panel.title);
      }
    }
    const of = runs.length > 1 ? 'run ' + run.run + ': ' : '';
    const many = copies.size === 1 ? '1 copy' : copies.size + ' copies';
    parts.push(of + (shares.length ? many + ', ' + percentText(median(shares)) + ' to the median copy over ' + (names.size === run.panels.length && names.size > 1 ? 'all benchmarks' : names.size > 3 ? names.size + ' benchmarks' : [...names].join(', ')) + partText() + ' (median)' : 'not in this run'));
  }
  return chosen.text + ': ' + parts.join('; ');
}
