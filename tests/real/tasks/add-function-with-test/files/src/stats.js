// Statistics of a list of numbers. Each function returns null for an empty list, and none changes the list.

function mean(numbers) {
  if (numbers.length === 0) {
    return null;
  }
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}

function range(numbers) {
  if (numbers.length === 0) {
    return null;
  }
  return Math.max(...numbers) - Math.min(...numbers);
}

module.exports = { mean, range };
