import assert from 'node:assert';
import { format, parse } from './src/time/dates.js';
import { week } from './src/week.js';

assert.equal(format(parse('2024-02-29')), '29.02.2024');
assert.equal(week(parse('2024-02-28'))[0], '29.02.2024');
