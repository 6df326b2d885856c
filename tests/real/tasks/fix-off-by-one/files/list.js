// Shows one page of a list of numbers: node list.js LENGTH SIZE PAGE
const { page, label, pageCount } = require('./src/pages.js');

const [length, size, number] = process.argv.slice(2).map(Number);
const items = Array.from({ length }, (_, index) => index + 1);
for (const item of page(items, number, size)) {
  console.log(item);
}
console.log(`${label(items, number, size)}, page ${number} of ${pageCount(items, size)}`);
