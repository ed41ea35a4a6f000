const manyParts = 50;

// Of each CPU the median of its copies' times over their benchmark's median: of all, or of one.
function slowdowns(run, title) {
  const times = new Map(), nodes = new Map(), copies = new Map(), failed = new Map();
  const add = (map, key, value) => { if (!map.has(key)) map.set(key, []); map.get(key).push(value); };
  for (const panel of run.panels) {
    if (title !== null && panel.title !== title) continue;
    for (const row of panel.rows) {
      const value = row.s / panel.median;
      if (row.node !== null) add(nodes, row.node, value);
      if (row.cpu === null) continue;
      add(times, row.cpu, value);
      if (!copies.has(row.cpu)) copies.set(row.cpu, new Set());
      copies.get(row.cpu).add(row.copy);
    }
    for (const row of panel.bad) {
      if (row.cpu === null) continue;
      if (!failed.has(row.cpu)) failed.set(row.cpu, new Set());
      failed.get(row.cpu).add(row.copy);
    }
  }
  return {shares: new Map([...times].map(([cpu, of]) => [cpu, median(of)])), nodes, copies, failed};
}

// The machine: packages hold lgroups, those caches, those cores, those CPUs; coloured by slowdown.
function machineMap(room, run) {
  const chips = new Map(); // CPU -> its button
  const boards = new Map(); // lgroup -> the text beside its name
  const select = make('select', {'aria-label': 'benchmark that colours the machine'}, make('option', {value: '', text: 'all benchmarks (median)'}),
    ...run.panels.map((panel, i) => make('option', {value: String(i), text: panel.title})));
  const scale = make('span', {class: 'scale'});
  const box = make('div', {class: run.machine.length > 256 ? 'boxes dense' : 'boxes'});
  if (!run.machine.length) {
    room.append(make('p', {class: 'dim', text: 'It is not known where the copies ran.'}));
    return;
  }
  const level = (parent, cls, value, rows, title) => {
    const node = make('div', {class: cls});
    if (title) node.append(title(value, rows));
    parent.append(node);
    return node;
  };
  const split = (rows, at) => {
    const found = new Map();
    for (const row of rows) {
      const key = at === 4 && row[at] === null ? 'CPU ' + row[0] : row[at]; // of unknown cores each CPU is one
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(row);
    }
    return found;
  };
  const several = split(run.machine, 1).size > 1;
  // Packages hold lgroups; where one lgroup spans packages (memory alike from all), it holds them.
  const spans = [...split(run.machine, 2).values()].some((rows) => split(rows, 1).size > 1);
  const packageName = (v) => several && v !== null ? make('div', {class: 'name', text: 'package ' + v}) : '';
  const lgroupName = (v) => {
    const share = make('span', {class: 'share'});
    if (v === null) return make('div', {class: 'name', text: 'CPUs'});
    boards.set(v, share);
    const button = make('button', {type: 'button', class: 'name', 'data-node': v}, 'lgroup ' + v + ' ', share);
    button.addEventListener('click', () => choose({field: 'node', values: [v], text: 'lgroup ' + v}));
    return button;
  };
  for (const [whole, ofWhole] of split(run.machine, spans ? 2 : 1)) {
    const wholeBox = level(box, spans ? 'lgroup' : 'package', whole, ofWhole, spans ? lgroupName : packageName);
    const inner = make('div', {class: 'lgroups'});
    wholeBox.append(inner);
    for (const [part, ofPart] of split(ofWhole, spans ? 1 : 2)) {
      const node = spans ? whole : part;
      const partBox = level(inner, spans ? 'package' : 'lgroup', part, ofPart, spans ? packageName : lgroupName);
      for (const [, ofCache] of split(ofPart, 3)) {
        const cacheBox = level(partBox, 'llc', null, ofCache, null);
        const cores = split(ofCache, 4), widest = Math.max(...[...cores.values()].map((rows) => rows.length));
        cacheBox.style.setProperty('--columns', Math.max(4, widest, Math.ceil(Math.sqrt(3 * ofCache.length))));
        for (const [, ofCore] of cores) {
          const coreBox = level(cacheBox, 'core', null, ofCore, null);
          for (const [cpu, , , , core] of ofCore) {
            const chip = make('button', {type: 'button', class: 'cpu', tabindex: chips.size ? -1 : 0, 'data-cpu': cpu});
            chips.set(cpu, chip);
            coreBox.append(chip);
            const tell = () => showCard(cpuLines(cpu, core, node), chip.getBoundingClientRect());
            chip.addEventListener('pointerenter', tell);
            chip.addEventListener('focus', tell);
            chip.addEventListener('pointerleave', hideCard);
            chip.addEventListener('blur', hideCard);
            chip.addEventListener('click', () => { choose({field: 'cpu', values: [cpu], text: 'CPU ' + cpu}); tell(); });
          }
        }
      }
    }
  }
  const order = [...chips.values()];
  box.addEventListener('keydown', (event) => {
    const at = order.indexOf(document.activeElement);
    const to = {ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: order.length - 1}[event.key];
    if (at < 0 || to === undefined || !order[to]) return;
    order[at].tabIndex = -1; order[to].tabIndex = 0; order[to].focus();
    event.preventDefault();
  });
  let shares = new Map(), copies = new Map(), failed = new Map();
  const cpuLines = (cpu, core, node) => {
    const of = copies.get(cpu);
    const few = (set) => {
      const list = [...set].sort((a, b) => a - b);
      return (list.length === 1 ? 'copy ' : 'copies ') + (list.length > 8 ? list.slice(0, 8).join(', ') + ', \u2026' : list.join(', '));
    };
    const bad = failed.get(cpu);
    return [
      'CPU ' + cpu + (core === null ? '' : ' \u00b7 core ' + core) + (node === null ? '' : ' \u00b7 lgroup ' + node),
      of ? few(of) : bad ? null : 'no copy was placed here',
      bad ? 'failed: ' + few(bad) : null,
      shares.has(cpu) ? percentText(shares.get(cpu)) + ' to the median copy, ' + select.selectedOptions[0].textContent : null,
    ];
  };
  const colour = () => {
    const title = select.value === '' ? null : run.panels[Number(select.value)].title;
    const seen = slowdowns(run, title);
    copies = seen.copies;
    shares = seen.shares;
    failed = seen.failed;
    // One scale for all runs of the page: the same colour is the same slowdown.
    const sizes = runs.flatMap((one) => [...slowdowns(one, title).shares.values()]).map((share) => Math.abs(share - 1));
    sizes.sort((a, b) => a - b);
    // Among many CPUs a few that are far out may not take the colours from all the others.
    const most = sizes.length > manyParts ? sizes[Math.floor(0.98 * (sizes.length - 1))] : sizes[sizes.length - 1];
    const span = Math.max(0.05, most || 0);
    for (const [cpu, chip] of chips) {
      const share = shares.get(cpu);
      chip.classList.toggle('idle', share === undefined && !failed.has(cpu));
      chip.classList.toggle('failed', failed.has(cpu));
      chip.classList.toggle('quick', share < 1);
      chip.style.setProperty('--heat', share === undefined ? 0 : Math.min(100, 100 * Math.abs(share - 1) / span) + '%');
      chip.setAttribute('aria-label', 'CPU ' + cpu + (share === undefined ? failed.has(cpu) ? '' : ', not used' : ', ' + percentText(share)) + (failed.has(cpu) ? ', a copy failed' : ''));
    }
    for (const [node, text] of boards) {
      const of = seen.nodes.get(node);
      const share = of ? median(of) : null;
      text.textContent = share === null ? '' : percentText(share);
      text.classList.toggle('slow', share !== null && share >= 1.015);
    }
    const by = title === null ? [] : [make('b', {class: 'printed', text: title})];
    scale.replaceChildren(...by, make('span', {text: '\u2212' + (span * 100).toFixed(0) + ' %'}), make('span', {class: 'ramp'}), make('span', {text: '+' + (span * 100).toFixed(0) + ' % to the median copy' + (failed.size ? '; struck out: a copy failed there' : '')}));
  };
  select.addEventListener('change', colour);
  room.append(make('div', {class: 'tools'}, make('label', {text: 'coloured by '}, select), scale), box);
  colour();
  listeners.push((pick) => {
    const cpus = new Set();
    if (pick) for (const panel of run.panels) for (const row of [...panel.rows, ...panel.bad]) if (isChosen(row)) cpus.add(row.cpu);
    if (pick && pick.run === undefined && pick.field === 'cpu') for (const cpu of pick.values) cpus.add(cpu);
    for (const [cpu, chip] of chips) chip.classList.toggle('chosen', cpus.has(cpu));
  });
}

function startMachines() {
  for (const room of document.querySelectorAll('.map')) {
    machineMap(room, runs.find((run) => String(run.run) === room.dataset.run));
  }
}
