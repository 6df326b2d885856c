export function pad(number) {
  return String(number).padStart(2, '0');
}
