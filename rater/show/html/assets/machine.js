// The machine that the page holds, coloured by slowdown: of all benchmarks, or of one.
function machineMap(room, run) {
  const order = [...room.querySelectorAll('.cpu')], numberOf = (chip) => Number(chip.dataset.cpu);
  if (!order.length) return;
  const select = make('select', {'aria-label': 'benchmark that colours the machine'}, make('option', {value: '', text: 'all benchmarks (median)'}),
    ...run.panels.map((panel, i) => make('option', {value: String(i), text: panel.title})));
  const rises = page.measure && page.measure.rises; // more is better: less is orange
  const scale = make('span', {class: 'scale'}), over = run.over || ' to the median copy';
  const panelOf = () => run.panels[select.selectedIndex - 1];
  // The copies whose rows, of those that count or those that failed, were on a CPU.
  const copiesOn = (cpu, rows) => {
    const list = [...new Set((panelOf() ? [panelOf()] : run.panels).flatMap((panel) => panel[rows].filter((row) => row.cpu === cpu).map((row) => row.copy)))].sort((a, b) => a - b);
    return list.length ? (list.length === 1 ? 'copy ' : 'copies ') + (list.length > 8 ? list.slice(0, 8).join(', ') + ', \u2026' : list.join(', ')) : null;
  };
  const cpuLines = (chip) => {
    const cpu = numberOf(chip), {core, in: node} = chip.dataset, share = run.slowdowns[select.selectedIndex].cpus[cpu];
    const good = copiesOn(cpu, 'rows'), bad = copiesOn(cpu, 'bad');
    return [
      'CPU ' + cpu + (core === undefined ? '' : ' \u00b7 core ' + core) + (node === undefined ? '' : ' \u00b7 NUMA node ' + node),
      good || (bad ? null : !run.over ? 'no copy was placed here' : share === undefined ? 'no copy in both runs' : null),
      bad ? 'failed: ' + bad : null,
      share === undefined ? null : percentText(share) + over + ', ' + select.selectedOptions[0].textContent,
    ];
  };
  const colour = () => {
    const seen = run.slowdowns[select.selectedIndex], span = (run.spans || page.spans)[panelOf() ? panelOf().title : ''];
    const failed = new Set(seen.failed);
    for (const chip of order) {
      const cpu = numberOf(chip), share = seen.cpus[cpu], bad = failed.has(cpu);
      chip.classList.toggle('idle', share === undefined && !bad);
      chip.classList.toggle('failed', bad);
      chip.classList.toggle('quick', rises ? share > 1 : share < 1);
      chip.style.setProperty('--heat', (share === undefined ? 0 : Math.min(100, 100 * Math.abs(share - 1) / span)) + '%');
      chip.setAttribute('aria-label', 'CPU ' + cpu + (share === undefined ? bad ? '' : ', not used' : ', ' + percentText(share)) + (bad ? ', a copy failed' : ''));
    }
    for (const button of room.querySelectorAll('[data-node]')) {
      const text = button.querySelector('.share'), share = seen.nodes[button.dataset.node];
      text.textContent = share === undefined ? '' : percentText(share);
      text.classList.toggle('slow', rises ? share <= 0.985 : share >= 1.015);
    }
    const far = (span * 100).toFixed(0) + ' %', by = panelOf() ? [make('b', {class: 'printed', text: panelOf().title})] : [];
    scale.replaceChildren(...by, make('span', {text: (rises ? '+' : '\u2212') + far}), make('span', {class: 'ramp'}), make('span', {text: (rises ? '\u2212' : '+') + far + over + (failed.size ? '; struck out: a copy failed there' : '')}));
  };
  const pick = (chip) => { choose({field: 'cpu', values: [numberOf(chip)], text: 'CPU ' + numberOf(chip)}); showChip(chip); };
  const showChip = (chip) => showCard(cpuLines(chip), chip.getBoundingClientRect());
  for (const chip of order) {
    chip.addEventListener('pointerenter', () => showChip(chip));
    chip.addEventListener('focus', () => showChip(chip));
    chip.addEventListener('pointerleave', hideCard);
    chip.addEventListener('blur', hideCard);
    chip.addEventListener('click', () => pick(chip));
  }
  order[0].setAttribute('tabindex', 0);
  room.addEventListener('keydown', (event) => {
    const at = order.indexOf(document.activeElement);
    const to = keyTarget(event.key, at, order.length - 1);
    if (at < 0) return;
    if (event.key === 'Enter' || event.key === ' ') {
      pick(order[at]);
    } else if (to !== undefined && order[to]) {
      order[at].setAttribute('tabindex', -1); order[to].setAttribute('tabindex', 0); order[to].focus();
    } else {
      return;
    }
    event.preventDefault();
  });
  for (const button of room.querySelectorAll('[data-node]')) {
    button.addEventListener('click', () => choose({field: 'node', values: [Number(button.dataset.node)], text: 'NUMA node ' + button.dataset.node}));
    button.addEventListener('keydown', (event) => { if (event.key === 'Enter' || event.key === ' ') { button.dispatchEvent(new Event('click')); event.preventDefault(); } });
  }
  const first = run.over ? 1 : 0, kept = 'map-' + room.dataset.run; // of two runs the benchmark that changed most
  select.addEventListener('change', () => { colour(); keep(kept, select.selectedIndex === first ? '' : String(select.selectedIndex)); });
  const asked = Number(address.set.get(kept) || first);
  select.selectedIndex = asked in select.options ? asked : first;
  room.prepend(make('div', {class: 'tools'}, make('label', {text: 'coloured by '}, select), scale));
  colour();
  listeners.push((now) => {
    const cpus = new Set();
    if (now) for (const panel of run.panels) for (const row of [...panel.rows, ...panel.bad]) if (isChosen(row)) cpus.add(row.cpu);
    if (now && now.run === undefined && now.field === 'cpu') for (const cpu of now.values) cpus.add(cpu);
    for (const chip of order) chip.classList.toggle('chosen', cpus.has(numberOf(chip)));
  });
}

// The map of differences of two runs: of all their benchmarks, or of one of those that are drawn.
function differenceMap() {
  const {runs: [first, second], panels, maps: slowdowns, spans} = page.pair;
  return {panels: panels.map(({title}) => ({title, rows: [], bad: []})), slowdowns, spans, over: ', run ' + second + ' over run ' + first};
}

function startMachines() {
  for (const room of document.querySelectorAll('.map')) {
    machineMap(room, room.dataset.run === 'pair' ? differenceMap() : runs.find((run) => String(run.run) === room.dataset.run));
  }
}
