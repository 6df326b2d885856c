import { format } from "./util/dates.js";

export function week(date) {
  const days = [];
  for (let day = 1; day <= 7; day++) {
    const next = new Date(date);
    next.setUTCDate(date.getUTCDate() + day);
    days.push(format(next));
  }
  return days;
}
