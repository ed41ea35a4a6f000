// Divots choose their copies as they lead to their picture.
for (const link of pickLinks()) {
  link.addEventListener('click', () => {
    const pick = JSON.parse(link.dataset.pick);
    if (!samePick(chosen, pick)) choose(pick);
  });
}
const began = performance.now();
chooser();
startTables();
startMachines();
startCharts().then(startPanels).then(startTimeline).then(drawPair).then(() => {
  chooseFromAddress();
  const place = address.place && document.getElementById(address.place);
  if (place && String(address.set)) place.scrollIntoView(); // the browser knows no place with more behind it
  document.documentElement.dataset.drawnMs = String(Math.round(performance.now() - began));
});
