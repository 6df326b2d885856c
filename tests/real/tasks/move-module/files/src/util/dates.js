import { pad } from './pad.js';

export function parse(text) {
  return new Date(`${text}T00:00:00Z`);
}

export function format(date) {
  return `${pad(date.getUTCDate())}.${pad(date.getUTCMonth() + 1)}.${date.getUTCFullYear()}`;
}
