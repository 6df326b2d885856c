-- JSON: what the client asked for when it opened the session, if anything.
ALTER TABLE sessions ADD COLUMN client_options TEXT;
