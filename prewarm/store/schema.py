"""The tables of ``prewarm.db``, as a list of migrations that are applied in order.

Owns every CREATE and ALTER; the statements that use a table stand in the file named for it. Written
for people too: ``sqlite-utils rows prewarm.db entries`` and Datasette show it as it is. JSON stands
in text columns, booleans are 0 and 1, times are ISO-8601 text.

- A migration that was released never changes; add one at the end.
- Event rows are written by triggers, so no move of an entry, by whomever, can lack one. They are
  bounded by a trigger too, so that no entry can have more than the last of them.
"""

from __future__ import annotations

#: Marks the file as ours (``PrWm``), so that another program's database is not taken over.
APPLICATION_ID = 0x5072576D

_FIRST = """
CREATE TABLE checkpoints (
  name TEXT PRIMARY KEY,
  path TEXT NOT NULL,
  digest TEXT,
  architecture TEXT,
  aliases TEXT NOT NULL DEFAULT '[]',
  size_bytes INTEGER NOT NULL DEFAULT 0,
  first_seen_at TEXT NOT NULL,
  seen_at TEXT NOT NULL,
  retired_at TEXT
);

CREATE TABLE entries (
  id INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  environment_id TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN (
    'settling', 'queued', 'building', 'proving', 'warm',
    'partial', 'uncacheable', 'failed', 'stale', 'retired'
  )),
  reason TEXT,
  code TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  next_try_at TEXT,
  checkpoint_digest TEXT,
  architecture TEXT,
  build_key TEXT,
  own_graph INTEGER NOT NULL DEFAULT 0 CHECK (own_graph IN (0, 1)),
  bundle_sha256 TEXT,
  record TEXT,
  log TEXT,
  lease TEXT,
  lease_owner TEXT,
  lease_until TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  UNIQUE (model, environment_id),
  CHECK (reason IS NOT NULL OR status IN ('queued', 'building', 'proving', 'warm')),
  CHECK (lease IS NULL OR status IN ('building', 'proving'))
);
CREATE INDEX entries_by_status ON entries (status, updated_at);

CREATE TABLE builds (
  id INTEGER PRIMARY KEY,
  entry_id INTEGER NOT NULL REFERENCES entries (id),
  build_key TEXT NOT NULL,
  started_at TEXT NOT NULL,
  ended_at TEXT,
  outcome TEXT,
  reason TEXT,
  mode TEXT,
  peak_memory_bytes INTEGER,
  log TEXT
);
CREATE INDEX builds_by_entry ON builds (entry_id);

CREATE TABLE bundles (
  build_key TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  architecture TEXT NOT NULL,
  environment_id TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  unpacked_bytes INTEGER NOT NULL,
  files INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  quarantined_at TEXT,
  quarantine_reason TEXT,
  PRIMARY KEY (build_key, sha256)
);
CREATE INDEX bundles_by_architecture ON bundles (architecture, environment_id);

CREATE TABLE environments (
  id TEXT PRIMARY KEY,
  facts TEXT NOT NULL,
  seen_at TEXT NOT NULL
);

CREATE TABLE probes (
  fingerprint TEXT PRIMARY KEY,
  environment_id TEXT NOT NULL REFERENCES environments (id),
  probe TEXT NOT NULL,
  at TEXT NOT NULL
);

CREATE TABLE files (
  path TEXT PRIMARY KEY,
  size_bytes INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  ctime_ns INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  digest TEXT NOT NULL
);

CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  at TEXT NOT NULL,
  entry_id INTEGER NOT NULL REFERENCES entries (id),
  model TEXT NOT NULL,
  from_status TEXT,
  to_status TEXT NOT NULL,
  reason TEXT,
  code TEXT
);
CREATE INDEX events_by_model ON events (model, id);

CREATE TRIGGER entry_added AFTER INSERT ON entries BEGIN
  INSERT INTO events (at, entry_id, model, from_status, to_status, reason, code)
  VALUES (NEW.updated_at, NEW.id, NEW.model, NULL, NEW.status, NEW.reason, NEW.code);
END;

CREATE TRIGGER entry_moved AFTER UPDATE OF status ON entries BEGIN
  INSERT INTO events (at, entry_id, model, from_status, to_status, reason, code)
  VALUES (NEW.updated_at, NEW.id, NEW.model, OLD.status, NEW.status, NEW.reason, NEW.code);
END;
"""

# What is known of a bundle outlives the entries that stand on it.
_BUNDLE_RECORDS = """
ALTER TABLE bundles ADD COLUMN record TEXT;
UPDATE bundles SET record = (
  SELECT entries.record FROM entries
  WHERE entries.bundle_sha256 = bundles.sha256 AND entries.build_key = bundles.build_key
  ORDER BY entries.id LIMIT 1
);
"""

# What deployments wait for, and what their starts really did.
_DEPLOYMENTS = """
CREATE TABLE requests (
  id INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  environment_id TEXT,
  asked_at TEXT NOT NULL,
  until TEXT NOT NULL
);
CREATE INDEX requests_by_model ON requests (model);

CREATE TABLE reports (
  id INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  environment_id TEXT NOT NULL,
  bundle_sha256 TEXT,
  at TEXT NOT NULL,
  uid INTEGER,
  first_answer_s REAL,
  compiled INTEGER CHECK (compiled IN (0, 1)),
  report TEXT NOT NULL
);
CREATE INDEX reports_by_model ON reports (model, id);
"""

# What a service writes for years stays within bounds: of each entry the last events, and of builds
# that are forgotten their number. The last failure tells when the next try is due.
_BOUNDS = """
CREATE INDEX events_by_entry ON events (entry_id, id);

CREATE TRIGGER event_added AFTER INSERT ON events BEGIN
  DELETE FROM events
  WHERE entry_id = NEW.entry_id
    AND id <= (
      SELECT id FROM events WHERE entry_id = NEW.entry_id ORDER BY id DESC LIMIT 1 OFFSET 50
    )
    AND id IS NOT (
      SELECT max(id) FROM events WHERE entry_id = NEW.entry_id AND to_status = 'failed'
    );
END;

CREATE TABLE forgotten_builds (
  outcome TEXT PRIMARY KEY,
  count INTEGER NOT NULL
);

CREATE TRIGGER build_forgotten AFTER DELETE ON builds WHEN OLD.outcome IS NOT NULL BEGIN
  INSERT INTO forgotten_builds (outcome, count) VALUES (OLD.outcome, 1)
  ON CONFLICT (outcome) DO UPDATE SET count = count + 1;
END;
"""

# The summary stands before the report, so that reading it does not read through the report's pages.
_STARTS = """
ALTER TABLE reports RENAME TO former_reports;

CREATE TABLE reports (
  id INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  environment_id TEXT NOT NULL,
  bundle_sha256 TEXT,
  builder TEXT,
  at TEXT NOT NULL,
  uid INTEGER,
  first_answer_s REAL,
  compiled INTEGER CHECK (compiled IN (0, 1)),
  summary TEXT NOT NULL,
  report TEXT NOT NULL
);

INSERT INTO reports
SELECT id, model, environment_id, bundle_sha256, NULL, at, uid, first_answer_s, compiled, '{}',
  report
FROM former_reports;

DROP TABLE former_reports;
CREATE INDEX reports_by_model ON reports (model, id);
"""

MIGRATIONS: tuple[str, ...] = (_FIRST, _BUNDLE_RECORDS, _DEPLOYMENTS, _BOUNDS, _STARTS)

SCHEMA_VERSION = len(MIGRATIONS)
