// Tables sort by a click on a heading, or Enter on it: up, then down.
function sortKey(text) {
  const number = /^[(<+\s]*([\u2212-]?\d[\d,]*\.?\d*(?:e[+-]?\d+)?)/i.exec(text);
  return number ? Number(number[1].replace('\u2212', '-').replace(/,/g, '')) : null;
}

function sortTable(table, column, heads) {
  const down = heads[column].getAttribute('aria-sort') === 'ascending';
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
    const plain = text.trim().replace(/^[=@]/, "'$&").replace(/\u2212/g, '-');
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

// Rows with these words, in all tables; the words stand in the address, to be sent along.
const ROWS = '#rows=';
function showRows(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  for (const table of document.querySelectorAll('table')) {
    if (!table.tHead) continue;
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
    }
  }
}

function startRowFilter() {
  const room = document.getElementById('results');
  if (!room) return;
  const given = location.hash.startsWith(ROWS) ? decodeURIComponent(location.hash.slice(ROWS.length)) : '';
  const input = make('input', {type: 'search', id: 'rows', placeholder: 'mcf peak', value: given});
  room.prepend(make('div', {class: 'tools'}, make('label', {for: 'rows', text: 'rows with'}), input));
  input.addEventListener('input', () => {
    showRows(input.value);
    const hash = input.value ? ROWS + encodeURIComponent(input.value) : location.pathname;
    try { history.replaceState(null, '', hash); } catch (error) { /* a page without an address */ }
  });
  if (given) showRows(given);
}

function startTables() {
  startRowFilter();
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
      button.addEventListener('click', () => sortTable(table, column, heads));
    });
  }
}
