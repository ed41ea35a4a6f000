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
  if (row.node !== null) parts.push('lgroup ' + row.node);
  return parts.join(' \u00b7 ');
}

function dotLines(row) {
  const of = row.panel.median ? ' (' + percentText(row.s / row.panel.median) + ' to the median copy)' : '';
  const times = row.start === null ? null :
    row.fastest !== row.slowest ? 'first start ' + secondText(row.start) :
      'ran from ' + secondText(row.start) + ' to ' + secondText(row.start + row.s);
  return [
    placeText(row),
    row.panel.title + ', iteration ' + row.it,
    timeText(row.s) + of,
    row.fastest !== row.slowest ? 'its runs: ' + timeText(row.fastest) + ' to ' + timeText(row.slowest) : null,
    times,
    row.local === null ? null : 'memory ' + (row.local * 100).toFixed(1) + ' % on its lgroup',
  ];
}

function chooser() {
  const copies = new Set(), cpus = new Set(), nodes = new Set();
  for (const run of runs) {
    for (const panel of run.panels) {
      for (const row of panel.rows) {
        copies.add(row.copy);
        if (row.cpu !== null) cpus.add(row.cpu);
        if (row.node !== null) nodes.add(row.node);
      }
    }
  }
  const ascending = (of) => [...of].sort((a, b) => a - b);
  const options = make('datalist', {id: 'choices'});
  for (const [word, values] of [['lgroup', nodes], ['CPU', cpus], ['copy', copies]]) {
    for (const value of ascending(values)) options.append(make('option', {value: word + ' ' + value}));
  }
  const input = make('input', {id: 'choose', list: 'choices', autocomplete: 'off', placeholder: 'lgroup 1, CPU 5, copy 7', size: 20});
  const label = make('label', {text: 'highlight '}, input);
  const said = make('output', {id: 'chosen', 'aria-live': 'polite'});
  const clear = make('button', {type: 'button', id: 'clear', text: 'clear', hidden: true});
  const order = make('select', {id: 'order'},
    make('option', {value: 'worst', text: 'worst first'}), make('option', {value: 'suite', text: 'order of the suite'}));
  input.addEventListener('change', () => {
    const found = /^\s*(lgroup|cpu|copy)\s+(\d+)\s*$/i.exec(input.value);
    if (found) {
      const field = {lgroup: 'node', cpu: 'cpu', copy: 'copy'}[found[1].toLowerCase()];
      choose({field, values: [Number(found[2])], text: input.value.trim()});
    } else if (!input.value.trim()) {
      choose(null);
    }
  });
  clear.addEventListener('click', () => { choose(null); input.focus(); });
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape') { hideCard(); if (chosen) choose(null); } });
  order.addEventListener('change', () => orderPanels(order.value));
  document.getElementById('tools').append(label, options, clear, make('label', {text: 'panels '}, order), said);
  listeners.push(() => {
    clear.hidden = !chosen;
    if (!chosen) { input.value = ''; said.textContent = ''; return; }
    if (!/^divot/.test(chosen.text)) input.value = chosen.text;
    said.textContent = chosenText();
  });
}

function chosenText() {
  const told = [];
  for (const run of runs) {
    const shares = [], copies = new Set();
    for (const panel of run.panels) {
      for (const row of panel.rows) {
        if (isChosen(row)) { shares.push(row.s / panel.median); copies.add(row.copy); }
      }
    }
    const of = runs.length > 1 ? 'run ' + run.run + ': ' : '';
    const many = copies.size === 1 ? '1 copy' : copies.size + ' copies';
    told.push(of + (shares.length ? many + ', ' + percentText(median(shares)) + ' over all benchmarks (median)' : 'not in this run'));
  }
  return chosen.text + ': ' + told.join('; ');
}
