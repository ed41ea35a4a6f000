// Parse orders, index them, sort them, print them again: objects, maps, strings, a typed array.
"use strict";
const fs = require("fs");

const rounds = Number(process.argv[2]);
const lines = fs.readFileSync(process.argv[3], "utf8").trimEnd().split("\n");

function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

function report() {
  const cities = new Map();
  const words = new Map();
  const orders = lines.map((line) => JSON.parse(line));
  for (const order of orders) {
    const cents = order.ordered.quantity * order.ordered.cents;
    const city = cities.get(order.customer.city) ?? { cents: 0, customers: new Set() };
    city.cents += cents;
    city.customers.add(order.customer.number);
    cities.set(order.customer.city, city);
    for (const word of order.note.split(" ")) {
      words.set(word, (words.get(word) ?? 0) + 1);
    }
  }
  orders.sort((a, b) => compare(a.ordered.product, b.ordered.product) || a.id - b.id);
  const sums = new Uint32Array(256);
  let letters = 0;
  for (const order of orders) {
    const text = JSON.stringify(order).replace(/[aeiou]+/g, (vowels) => vowels.toUpperCase());
    letters += text.length;
    for (let i = 0; i < text.length; i++) {
      sums[text.charCodeAt(i) & 255] += i;
    }
  }
  const best = [...cities].sort((a, b) => b[1].cents - a[1].cents || compare(a[0], b[0]))[0];
  const word = [...words].sort((a, b) => b[1] - a[1] || compare(a[0], b[0]))[0];
  const check = sums.reduce((sum, value) => (sum * 31 + value) % 1000003, 0);
  return [
    `orders ${orders.length} first ${orders[0].id} letters ${letters} check ${check}`,
    `best ${best[0]} ${best[1].cents} ${best[1].customers.size} word ${word[0]} ${word[1]}`,
  ].join("\n");
}

const found = new Set();
for (let round = 0; round < rounds; round++) {
  found.add(report());
}
console.log([`rounds ${rounds}`, ...found].join("\n"));
