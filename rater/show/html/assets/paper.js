// A picture as wide as a screen would have letters too small to read on paper: it is drawn as wide as it is there.
const paper = 700, paperGap = 16;
const widened = [];
function paperWidth(room) {
  const groups = document.querySelectorAll('#panels > .group').length;
  const columns = room.closest('#panels') ? (runs.length > 1 ? 2 : Math.min(3, groups)) : room.closest('.scaling') ? 2 : 1;
  return (paper - paperGap * (columns - 1)) / columns;
}

// What is folded is printed all the same.
window.addEventListener('beforeprint', () => {
  for (const [room, view] of views) {
    const sides = view.padding(), width = Math.round(paperWidth(room) - sides.left - sides.right);
    if (!room.isConnected || !room.querySelector('svg') || view.width() <= width) continue;
    widened.push([view, view.width(), view.height()]);
    if (room.closest('#panels')) view.height(heightFor(width));
    view.width(width).run();
  }
  for (const folded of document.querySelectorAll('details:not([open])')) { folded.open = true; folded.dataset.folded = 'yes'; }
});
window.addEventListener('afterprint', () => {
  for (const [view, width, height] of widened.splice(0)) view.width(width).height(height).run();
  for (const folded of document.querySelectorAll('details[data-folded]')) { folded.open = false; delete folded.dataset.folded; }
});
