const assert = require('node:assert');
const { mean, range } = require('../src/stats.js');

assert.strictEqual(mean([1, 2, 6]), 3);
assert.strictEqual(mean([]), null);

assert.strictEqual(range([4, 9, 2]), 7);
assert.strictEqual(range([]), null);

console.log('all tests passed');
