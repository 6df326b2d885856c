-- Each row that is written changes a page of every index of its table.

-- `calls_by_seq` serves all queries about one session.
DROP INDEX calls_of_session;
DROP INDEX calls_by_seq;
CREATE INDEX calls_by_seq ON calls (session, seq);

-- Every call was in it while it ran.
DROP INDEX calls_that_failed;
CREATE INDEX calls_with_errors ON calls (asked_at) WHERE status = 'error';

-- `sessions_by_time` finds the sessions of a folder, too.
DROP INDEX sessions_by_folder;
