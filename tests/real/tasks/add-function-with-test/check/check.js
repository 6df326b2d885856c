const assert = require('node:assert');
const { mean, range, median } = require('./src/stats.js');

assert.strictEqual(typeof median, 'function', 'there is no median');
assert.strictEqual(median([7]), 7);
assert.strictEqual(median([3, 1, 2]), 2);
assert.strictEqual(median([4, 1, 3, 2]), 2.5);
assert.strictEqual(median([10, 9, 1]), 9, 'numbers are no words');
assert.strictEqual(median([-5, -30, 100, 2]), -1.5);
assert.strictEqual(median([]), null, 'an empty list');
const numbers = [3, 1, 2];
median(numbers);
assert.deepStrictEqual(numbers, [3, 1, 2], 'the list was changed');
assert.strictEqual(mean([1, 2, 6]), 3);
assert.strictEqual(range([4, 9, 2]), 7);
