import { format, parse } from './util/dates.js';

const [text, option] = process.argv.slice(2);
const date = parse(text);
console.log(format(date));

if (option === '--next') {
  const { week } = await import('./week.js');
  console.log(week(date).join('\n'));
}
