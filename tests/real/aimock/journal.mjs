// Asks aimock what it has received: a turn with one tool call is two streamed requests to one
// path, both accepted, the second with the tool's result.
//
//     node journal.mjs URL PATH

const [url, path] = process.argv.slice(2);

function check(holds, what) {
  if (!holds) {
    console.error(`journal: ${what}`);
    process.exit(1);
  }
}

const journal = await (await fetch(`${url}/__aimock/journal`)).json();
const requests = journal.filter((entry) => entry.method === "POST");
const seen = requests.map((entry) => `${entry.path} ${entry.response.status}`).join(", ");
check(requests.length === 2, `2 requests were expected, not ${requests.length}: ${seen}`);
for (const { path: asked, body, response } of requests) {
  check(asked === path, `${asked} was asked, not ${path}`);
  check(response.status === 200, `${asked} answered ${response.status}`);
  check(body.stream === true, "a request was not streamed");
}
const [first, second] = requests.map(({ body }) => body.messages);
check(second.at(-1).role === "tool", "the second request does not end with a result");
// In the Responses API words and a call are two items.
const added = second.length - first.length;
check(added === 2 || added === 3, "the second request is not the first, a call and its result");
console.log(`journal: ${seen}`);
