// Tables sort by a click on a heading, or Enter on it: up, then down.
function sortKey(text) {
  const number = /^[(<+\s]*([\u2212-]?\d[\d,]*\.?\d*(?:e[+-]?\d+)?)/i.exec(text);
  return number ? Number(number[1].replace('\u2212', '-').replace(/,/g, '')) : null;
}

function sortTable(table, column, heads, down) {
  heads.forEach((head, i) => head.setAttribute('aria-sort', i === column ? (down ? 'descending' : 'ascending') : 'none'));
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row, i) => {
    const text = row.cells[column].textContent;
    return {row, i, text, number: heads[column].classList.contains('r') ? sortKey(text) : null, empty: text === '' || text === '-'};
  });
  rows.sort((a, b) => {
    if (a.empty !== b.empty) return a.empty ? 1 : -1; // what is not known stays below
    const by = a.number !== null && b.number !== null ? a.number - b.number : a.text.localeCompare(b.text, undefined, {numeric: true});
    return (down ? -by : by) || a.i - b.i;
  });
  body.append(...rows.map(({row}) => row));
  table.classList.add('sorted');
}

// The rows that are shown, as text for a spreadsheet; what begins like a formula is made no one.
function csvText(table) {
  const rows = [table.tHead.rows[0], ...[...table.tBodies[0].rows].filter((row) => !row.hidden)];
  const cell = (text) => {
    const signed = text.trim().replace(/\u2212/g, '-');
    const plain = /^[=@]|^[+-](?![\d.,]+(e[+-]?\d+)?( %)?$)/i.test(signed) ? "'" + signed : signed;
    return /[",\n]/.test(plain) ? `"${plain.replace(/"/g, '""')}"` : plain;
  };
  return rows.map((row) => [...row.cells].map((one) => cell(one.textContent)).join(',')).join('\n') + '\n';
}

function saveCsv(table, at) {
  const link = make('a', {download: `rater-table-${at + 1}.csv`});
  link.href = URL.createObjectURL(new Blob([csvText(table)], {type: 'text/csv'}));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Panels and rows with these words, and of them those that stand out or differ, if these alone are asked for.
function filterTools(id, text) {
  const words = make('input', {type: 'search', id, class: 'words-of-rows', placeholder: 'mcf peak', autocomplete: 'off', size: 14});
  const only = make('input', {type: 'checkbox', class: 'only-differing'});
  words.value = address.set.get('rows') || '';
  only.checked = address.set.get('only') === '1';
  words.addEventListener('input', () => { keep('rows', words.value); showFiltered(); });
  only.addEventListener('change', () => { keep('only', only.checked ? '1' : ''); showFiltered(); });
  const several = runs.length > 1;
  const title = several ? 'better or worse by the verdict above (of one run each: by 1 %), or a slow part in one of the runs' : 'benchmarks with a slow part or failed copies';
  return [make('label', {text}, words), make('label', {title}, only, several ? ' only what differs' : ' only what stands out')];
}

// Benchmarks in which a part is slow, copies failed, or the runs differ by the verdict above.
function outstanding() {
  const differing = new Set(page.differing.map(([benchmark, tune]) => benchmark + ' ' + tune));
  return new Set(runs.flatMap((run) => run.panels)
    .filter((panel) => panel.labels.some((label) => !label.explained) || panel.bad.length || differing.has(panel.benchmark + ' ' + panel.tune))
    .flatMap((panel) => [panel.title, panel.benchmark]));
}

// Facts that all runs have alike: a name and value in as many tables as there are runs.
function sharedFacts() {
  const times = new Map();
  for (const row of document.querySelectorAll('#results .pairs tr')) times.set(row.textContent, (times.get(row.textContent) || 0) + 1);
  return runs.length > 1 ? new Set([...times].filter(([, n]) => n >= runs.length).map(([text]) => text)) : new Set();
}

function showFiltered() {
  const text = address.set.get('rows') || '', only = address.set.get('only') === '1';
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  const isWanted = (words) => wanted.every((word) => words.toLowerCase().includes(word));
  const known = new Set(runs.flatMap((run) => run.panels).flatMap((panel) => [panel.title, panel.benchmark]));
  const out = outstanding(), shared = sharedFacts();
  for (const table of document.querySelectorAll('table')) {
    for (const row of table.tBodies[0].rows) {
      const name = row.cells[0].textContent, isFact = !table.tHead;
      const isAlike = isFact ? shared.has(row.textContent) : known.has(name) && !out.has(name);
      row.hidden = !(isFact || isWanted(row.textContent)) || (only && isAlike);
    }
  }
  for (const {panel, figure} of panels) figure.hidden = !isWanted(panel.title) || (only && !out.has(panel.title));
  for (const group of document.querySelectorAll('#panels .group')) group.hidden = [...group.children].every((figure) => figure.hidden);
  for (const input of document.querySelectorAll('.words-of-rows')) if (input.value !== text) input.value = text;
  for (const box of document.querySelectorAll('.only-differing')) box.checked = only;
  document.documentElement.classList.toggle('filtered', Boolean(wanted.length || only));
}

function startTables() {
  const room = document.getElementById('results');
  if (room) room.prepend(make('div', {class: 'tools'}, ...filterTools('rows', 'rows with ')));
  for (const [at, table] of [...document.querySelectorAll('table')].entries()) {
    if (!table.tHead || table.tBodies[0].rows.length < 2) continue;
    const save = make('button', {type: 'button', class: 'csv', text: 'CSV', title: 'save the rows that are shown'});
    save.addEventListener('click', () => saveCsv(table, at));
    (table.closest('.scroll') || table).after(save);
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make('button', {type: 'button', text: head.textContent || '\u00a0', title: 'sort'});
      head.replaceChildren(button);
      head.setAttribute('aria-sort', 'none');
      button.addEventListener('click', () => {
        const down = head.getAttribute('aria-sort') === 'ascending';
        sortTable(table, column, heads, down);
        keep('sort', [at, column, down ? 'down' : 'up'].join('.'));
      });
    });
    const [sorted, column, way] = (address.set.get('sort') || '').split('.');
    if (sorted === String(at) && heads[column]) sortTable(table, Number(column), heads, way === 'down');
  }
}
