-- The id of the session whose helper has had this conversation. Lists leave it out.
ALTER TABLE sessions ADD COLUMN helper_of TEXT;

-- JSON: the helper that the call has started: description, type, session_id, background.
ALTER TABLE calls ADD COLUMN spawn_task TEXT;

-- As before, with that column.
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
  turns.words AS user_message,
  calls.message_id AS message_id,
  calls.spawn_task AS spawn_task
FROM calls
JOIN sessions ON sessions.key = calls.session
LEFT JOIN turns ON turns.session = calls.session AND turns.number = calls.turn;
