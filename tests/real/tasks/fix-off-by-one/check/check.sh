set -eu
node check.js
node list.js 25 10 1 | grep -qx '1-10 of 25, page 1 of 3'
