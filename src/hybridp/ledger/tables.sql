CREATE TABLE accounts (
    people TEXT PRIMARY KEY, neighbours TEXT NOT NULL,
    epsilon_total INTEGER NOT NULL, epsilon_spent INTEGER NOT NULL DEFAULT 0,
    delta_total INTEGER NOT NULL, delta_spent INTEGER NOT NULL DEFAULT 0,
    CHECK (0 <= epsilon_spent AND epsilon_spent <= epsilon_total AND 0 <= delta_spent AND delta_spent <= delta_total)
);
CREATE TABLE charges (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, people TEXT NOT NULL REFERENCES accounts(people),
    epsilon INTEGER NOT NULL, delta INTEGER NOT NULL, mechanism TEXT NOT NULL, purpose TEXT NOT NULL,
    collection TEXT, digest TEXT, noise TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('spent', 'void', 'refused'))
);
CREATE UNIQUE INDEX one_charge_per_collection ON charges (people, collection)
    WHERE collection IS NOT NULL AND state = 'spent';
CREATE UNIQUE INDEX one_charge_per_set_of_reports ON charges (people, digest)
    WHERE digest IS NOT NULL AND state = 'spent';
CREATE TABLE releases (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, purpose TEXT NOT NULL, entries TEXT NOT NULL, document TEXT NOT NULL
);
CREATE TABLE about (trial INTEGER NOT NULL CHECK (trial IN (0, 1)));
