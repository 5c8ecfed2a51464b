CREATE TABLE meta ("key" TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO meta ("key", value) VALUES ('version', '1');
CREATE TABLE analysts (
    id {number}, name TEXT NOT NULL, key_hash {bytes} NOT NULL UNIQUE, created BIGINT NOT NULL, revoked BIGINT
);
CREATE TABLE studies (
    number {number}, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, kind TEXT NOT NULL, "plan" TEXT NOT NULL,
    created BIGINT NOT NULL, analyst INTEGER
);
CREATE TABLE progress (
    study INTEGER NOT NULL PRIMARY KEY, state TEXT NOT NULL, phase SMALLINT NOT NULL, taken BIGINT NOT NULL,
    raw TEXT NOT NULL, tokens_made BIGINT NOT NULL, tokens_used BIGINT NOT NULL, ended BIGINT,
    CHECK (state IN ('open', 'closed', 'released', 'deleted')), CHECK (raw IN ('kept', 'deleting', 'deleted'))
);
CREATE TABLE study_keys (study INTEGER NOT NULL PRIMARY KEY, sealed {bytes} NOT NULL);
CREATE TABLE invitations (
    study INTEGER NOT NULL, token {bytes} NOT NULL, used BOOLEAN NOT NULL, PRIMARY KEY (study, token)
) {by_key};
CREATE TABLE reports (
    study INTEGER NOT NULL, id {bytes} NOT NULL, at BIGINT NOT NULL, grp SMALLINT NOT NULL, epsilon FLOAT,
    body {bytes} NOT NULL, PRIMARY KEY (study, id)
) {by_key};
CREATE TABLE participation (
    study INTEGER NOT NULL, start BIGINT NOT NULL, grp SMALLINT NOT NULL, people BIGINT NOT NULL,
    PRIMARY KEY (study, start, grp)
) {by_key};
CREATE TABLE batches (
    study INTEGER NOT NULL, id {bytes} NOT NULL, people BIGINT NOT NULL, last BOOLEAN NOT NULL, PRIMARY KEY (study, id)
) {by_key};
CREATE TABLE accounts (
    study INTEGER NOT NULL, people TEXT NOT NULL, neighbours TEXT NOT NULL, epsilon_total BIGINT NOT NULL,
    delta_total BIGINT NOT NULL, epsilon_spent BIGINT NOT NULL, delta_spent BIGINT NOT NULL,
    PRIMARY KEY (study, people), CHECK (0 <= epsilon_spent AND epsilon_spent <= epsilon_total),
    CHECK (0 <= delta_spent AND delta_spent <= delta_total)
);
CREATE TABLE charges (
    id {number}, study INTEGER NOT NULL, people TEXT NOT NULL, epsilon BIGINT NOT NULL, delta BIGINT NOT NULL,
    mechanism TEXT NOT NULL, purpose TEXT NOT NULL, collection TEXT, digest TEXT, noise TEXT NOT NULL,
    at BIGINT NOT NULL, state TEXT NOT NULL, CONSTRAINT one_charge_per_collection UNIQUE (study, people, collection)
);
CREATE TABLE releases (
    id {number}, study INTEGER NOT NULL, "key" TEXT NOT NULL, kind TEXT NOT NULL, created BIGINT NOT NULL,
    document TEXT NOT NULL, CONSTRAINT one_release_per_key UNIQUE (study, "key")
);
