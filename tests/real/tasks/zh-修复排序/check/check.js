const assert = require('node:assert');
const { parse, rank } = require('./rank.js');

const names = (text) => rank(parse(text)).map((player) => player.name).join(' ');
assert.equal(names('a 9\nb 10\nc -1\nd -20\ne 0\n'), 'b a e c d');
assert.equal(names('a 1.5\nb 1.25\nc 10\n'), 'c a b');
assert.equal(names('a 7\nb 7\nc 7\nd 8\ne 7\n'), 'd a b c e');
assert.equal(names('a 7\nb 7.0\nc 8\nd 07\n'), 'c a b d');
assert.equal(names(''), '');
const players = parse('a 1\nb 2\n');
rank(players);
assert.equal(players.map((player) => player.name).join(' '), 'a b', '原来的数组被改动了');
