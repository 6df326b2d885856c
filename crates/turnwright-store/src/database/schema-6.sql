-- JSON: the state of the project when the session began, as far as it is known.
ALTER TABLE sessions ADD COLUMN start TEXT;
-- JSON: what the turn has done, in numbers.
ALTER TABLE turns ADD COLUMN facts TEXT;
-- The model as the server names it.
ALTER TABLE usage ADD COLUMN served TEXT;
