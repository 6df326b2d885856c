// Splits a list into pages, which are counted from 1.

function bounds(items, number, size) {
  const first = (number - 1) * size;
  const last = Math.min(first + size - 1, items.length);
  return { first, last };
}

function page(items, number, size) {
  const { first, last } = bounds(items, number, size);
  return items.slice(first, last);
}

function label(items, number, size) {
  const { first, last } = bounds(items, number, size);
  return `${first + 1}-${last} of ${items.length}`;
}

function pageCount(items, size) {
  return Math.ceil(items.length / size);
}

module.exports = { page, label, pageCount };
