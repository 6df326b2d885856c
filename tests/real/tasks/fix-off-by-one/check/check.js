const assert = require('node:assert');
const { page, label, pageCount } = require('./src/pages.js');

const numbers = (length) => Array.from({ length }, (_, index) => index + 1);
for (const [length, size] of [[25, 10], [20, 10], [1, 1], [7, 3], [5, 9]]) {
  const items = numbers(length);
  const shown = [];
  for (let number = 1; number <= pageCount(items, size); number++) {
    const part = page(items, number, size);
    assert.ok(part.length >= 1 && part.length <= size, 'a page is too long or empty');
    assert.equal(label(items, number, size), `${part[0]}-${part[part.length - 1]} of ${length}`);
    shown.push(...part);
  }
  assert.deepEqual(shown, items, `${length} entries, ${size} a page`);
}
assert.deepEqual(page(numbers(25), 2, 10), [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
assert.equal(label(numbers(25), 3, 10), '21-25 of 25');
assert.equal(pageCount(numbers(20), 10), 2);
assert.deepEqual(page([], 1, 10), []);
