-- Times are milliseconds since 1970. A column `refs` beside a JSON text lists the strings of it
-- that are stored in `blobs`: [["$.\"path\"[0]", id], …]; the text has an empty string in their
-- place.

PRAGMA application_id = 0x54575253;

-- usable_from: the lowest program version that may still use the database; a migration that older
-- ones could not cope with raises it. swept_at: the time of the last cleanup. unswept: a session
-- was deleted since then.
CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO meta VALUES ('usable_from', 1), ('swept_at', 0);

CREATE TABLE sessions (
  key INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  cwd TEXT NOT NULL,
  -- `cwd` without links.
  real_cwd TEXT NOT NULL DEFAULT '',
  -- JSON: the folders besides `cwd`.
  folders TEXT NOT NULL DEFAULT '[]',
  title TEXT,
  -- A person has chosen it.
  title_is_final INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  archived INTEGER NOT NULL DEFAULT 0,
  -- The id of the session that it was forked from.
  parent TEXT,
  mode TEXT,
  model TEXT,
  effort TEXT,
  -- The last number that an identifier was made of.
  minted INTEGER NOT NULL DEFAULT 0,
  cost REAL,
  -- JSON: what the client asked for when it opened the session, if anything.
  client_options TEXT,
  -- The id of the session whose helper has had this conversation. Lists leave it out.
  helper_of TEXT,
  -- JSON: as much as is known of the state of the project when the session began.
  start TEXT
);
-- It finds the sessions of a folder, too.
CREATE INDEX sessions_by_time ON sessions (updated_at DESC, key DESC);

CREATE TRIGGER session_deleted AFTER DELETE ON sessions BEGIN
  INSERT OR REPLACE INTO meta VALUES ('unswept', 1);
END;

CREATE TABLE turns (
  session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  -- prompt, command, undo, redo
  kind TEXT NOT NULL,
  -- The beginning of what the user has typed.
  words TEXT NOT NULL DEFAULT '',
  begun_at INTEGER NOT NULL,
  -- Neither is there if the process ended first.
  ended_at INTEGER,
  stop TEXT,
  -- JSON: the numbers of the turns that this one undoes or does again.
  about TEXT,
  -- The entry with the prompt, of which `words` is the beginning. A turn without entries has none.
  first_entry INTEGER,
  -- JSON: the work of the turn in numbers.
  facts TEXT,
  PRIMARY KEY (session, number)
) WITHOUT ROWID;

-- The conversation in its order.
CREATE TABLE entries (
  session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  -- The identifier of the message, where it has one.
  message_id TEXT,
  -- JSON
  body TEXT NOT NULL,
  refs TEXT,
  PRIMARY KEY (session, seq)
);
CREATE INDEX words_by_time ON entries (at) WHERE kind IN ('message', 'note');

-- Pieces of an answer that is still streaming. They are deleted when its entry is written.
CREATE TABLE drafts (
  id INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
  seq INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  at INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  is_thought INTEGER NOT NULL,
  words TEXT NOT NULL
);
CREATE INDEX drafts_by_seq ON drafts (session, seq);

-- The tool calls of the answers in `entries`.
CREATE TABLE calls (
  id INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
  call TEXT NOT NULL,
  -- The answer that it is a part of, and its place in that.
  seq INTEGER NOT NULL,
  position INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  tool_name TEXT NOT NULL,
  -- JSON
  arguments TEXT NOT NULL,
  arguments_refs TEXT,
  -- pending, running, success, error
  status TEXT NOT NULL DEFAULT 'pending',
  -- What the model reads.
  result TEXT,
  -- In `blob_uses` as well. No reference: nothing here is looked up by it.
  result_blob INTEGER,
  -- JSON: pictures of the result, and what the user sees of the call.
  card TEXT,
  card_refs TEXT,
  asked_at INTEGER NOT NULL,
  -- When it began to do something.
  begun_at INTEGER,
  ended_at INTEGER,
  duration_ms REAL,
  -- JSON: the helper that the call has started: description, type, session_id, background.
  spawn_task TEXT,
  UNIQUE (session, call)
);
-- Each row that is written changes a page of every index of its table, so there are few.
CREATE INDEX calls_by_time ON calls (asked_at);
CREATE INDEX calls_of_tool ON calls (tool_name, asked_at);
-- It serves all queries about one session.
CREATE INDEX calls_by_seq ON calls (session, seq);
CREATE INDEX calls_with_errors ON calls (asked_at) WHERE status = 'error';

-- The state of each file before and after the call that changed it. An empty path says that it is not known
-- which files a command has changed.
CREATE TABLE file_versions (
  id INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
  turn INTEGER NOT NULL,
  call TEXT NOT NULL,
  -- Bytes where it is no UTF-8.
  path TEXT NOT NULL,
  -- JSON; `after` is not there if the process ended first.
  before TEXT NOT NULL,
  after TEXT,
  UNIQUE (session, turn, call, path)
);

CREATE TABLE permissions (
  id INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
  turn INTEGER NOT NULL,
  at INTEGER NOT NULL,
  -- JSON, as in permissions.jsonl
  entry TEXT NOT NULL
);
CREATE INDEX permissions_by_session ON permissions (session, turn);

CREATE TABLE usage (
  id INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
  turn INTEGER NOT NULL,
  at INTEGER NOT NULL,
  model TEXT NOT NULL,
  input INTEGER NOT NULL,
  output INTEGER NOT NULL,
  cached INTEGER NOT NULL,
  -- The model's window, and US dollars, where they are known.
  window INTEGER,
  cost REAL,
  -- The model as the server names it.
  served TEXT
);
CREATE INDEX usage_by_session ON usage (session, turn);

-- Long texts and file contents, stored once each by their SHA-256.
CREATE TABLE blobs (
  id INTEGER PRIMARY KEY,
  -- Of the bytes as they are read.
  hash BLOB NOT NULL UNIQUE,
  -- 1: they are compressed. Those that `tool_conversations` shows are not. 2: marks stand for keys.
  is_zlib INTEGER NOT NULL DEFAULT 0,
  bytes BLOB NOT NULL
);

-- Which sessions use which blobs.
CREATE TABLE blob_uses (
  session INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
  blob INTEGER NOT NULL REFERENCES blobs (id) ON DELETE CASCADE,
  PRIMARY KEY (session, blob)
) WITHOUT ROWID;
CREATE INDEX blob_uses_by_blob ON blob_uses (blob);

-- What the user has typed in each turn: all of it, or the beginning if a part of it is compressed or
-- from an older version. Each part has a blob or is in the entry.
CREATE VIEW prompts AS
SELECT
  turns.session AS session,
  turns.number AS number,
  coalesce((
    SELECT CASE WHEN max(blobs.is_zlib) IS NOT 1 THEN nullif(group_concat(
      coalesce(CAST(blobs.bytes AS TEXT), json_extract(part.value, '$.text')), ''), '')
    END
    FROM entries
    JOIN json_each(entries.body, '$.message.user.parts') AS part
    LEFT JOIN json_each(entries.refs) AS ref
      ON json_extract(ref.value, '$[0]') = '$."message"."user"."parts"[' || part.key || ']."text"'
    LEFT JOIN blobs ON blobs.id = json_extract(ref.value, '$[1]')
    WHERE entries.session = turns.session AND entries.seq = turns.first_entry
      AND entries.turn = turns.number AND json_type(part.value, '$.text') IS NOT NULL
  ), turns.words) AS words
FROM turns;

-- Every tool call with its arguments, its result and the prompt that it was made for.
CREATE VIEW tool_conversations AS
SELECT
  calls.id AS id,
  sessions.id AS session_id,
  calls.tool_name AS tool_name,
  CASE WHEN calls.arguments_refs IS NULL THEN calls.arguments ELSE (
    WITH RECURSIVE fill (step, body) AS (
      SELECT 0, calls.arguments
      UNION ALL
      SELECT step + 1, json_set(
        body,
        json_extract(calls.arguments_refs, '$[' || step || '][0]'),
        (SELECT CAST(bytes AS TEXT) FROM blobs
         WHERE blobs.id = json_extract(calls.arguments_refs, '$[' || step || '][1]'))
      )
      FROM fill WHERE step < json_array_length(calls.arguments_refs)
    )
    SELECT body FROM fill ORDER BY step DESC LIMIT 1
  ) END AS arguments,
  CASE WHEN calls.status <> 'error'
    THEN coalesce(calls.result, (SELECT CAST(bytes AS TEXT) FROM blobs WHERE id = calls.result_blob))
  END AS result,
  CASE WHEN calls.status = 'error'
    THEN coalesce(calls.result, (SELECT CAST(bytes AS TEXT) FROM blobs WHERE id = calls.result_blob))
  END AS error,
  calls.duration_ms AS duration_ms,
  strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(calls.ended_at, calls.asked_at) / 1000.0, 'unixepoch')
    AS timestamp,
  prompts.words AS user_message,
  calls.message_id AS message_id,
  calls.spawn_task AS spawn_task
FROM calls
JOIN sessions ON sessions.key = calls.session
LEFT JOIN prompts ON prompts.session = calls.session AND prompts.number = calls.turn;
