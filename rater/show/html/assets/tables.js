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

function startTables() {
  for (const table of document.querySelectorAll('table')) {
    if (!table.tHead || table.tBodies[0].rows.length < 2) continue;
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make('button', {type: 'button', text: head.textContent || '\u00a0', title: 'sort'});
      head.replaceChildren(button);
      head.setAttribute('aria-sort', 'none');
      button.addEventListener('click', () => sortTable(table, column, heads));
    });
  }
}
