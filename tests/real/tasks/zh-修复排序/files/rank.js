// 打印排行榜：node rank.js 文件
const fs = require('node:fs');

// 每行是“名字 分数”。
function parse(text) {
  const players = [];
  for (const line of text.split('\n')) {
    const [name, score] = line.trim().split(/\s+/);
    if (name) {
      players.push({ name, score });
    }
  }
  return players;
}

// 返回按分数排好的新数组，不改动原来的数组。
function rank(players) {
  return [...players].sort((a, b) => (a.score > b.score ? 1 : -1)).reverse();
}

if (require.main === module) {
  const players = rank(parse(fs.readFileSync(process.argv[2], 'utf8')));
  players.forEach((player, index) => console.log(`${index + 1}. ${player.name} ${player.score}`));
}

module.exports = { parse, rank };
