-- The entry with the prompt, of which `words` is the beginning. A turn without entries has none.
ALTER TABLE turns ADD COLUMN first_entry INTEGER;

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

-- As before, with these words.
DROP VIEW tool_conversations;
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
