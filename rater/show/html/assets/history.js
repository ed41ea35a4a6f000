// The points of each history, one after the other, with the levels between their steps.
const dateWidth = 72; // of the text below a point

function fitted(chart, width) {
  const most = Math.max(2, Math.floor(Math.min(width, paper) / dateWidth)), texts = chart.data.copies; // on paper, too
  const step = Math.ceil(texts.length / most);
  return {...chart, data: {...chart.data, copies: texts.filter((text, place) => place % step === 0)}};
}

async function drawHistories() {
  for (const [place, chart] of page.histories.entries()) {
    const room = document.getElementById('history-' + place);
    if (room && chart) await drawPanels(room.id, 'scaling', [fitted(chart, room.clientWidth)], 'history');
  }
}

async function startHistories() {
  await drawHistories();
  const main = document.querySelector('main');
  let width = main.clientWidth;
  new ResizeObserver(() => {
    if (main.clientWidth === width) return;
    width = main.clientWidth;
    drawHistories();
  }).observe(main);
}

const began = performance.now();
startTables();
startHistories().then(() => { document.documentElement.dataset.drawnMs = String(Math.round(performance.now() - began)); });
