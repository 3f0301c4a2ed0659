-- Tables of a tlstax data set (version 2) for a ClickHouse server.
-- Made by `python -m tlstax.analysis.fleet.clickhouse_ddl`: change columns.py, not this file.
--
-- `make test-fleet-engines` runs every statement in ClickHouse embedded (chdb). On a cluster, add
-- ON CLUSTER and make the engines ReplicatedReplacingMergeTree: no server has run that form.
--
-- Load the files of one tier, for example:
--   INSERT INTO tlstax.`interval` SELECT '1h', * FROM file(
--     'fleet/tier=1h/table=interval/date=*/hour=*/compacted.parquet', 'Parquet');
-- Compact before loading, so that a recording is in one file. Loading a recording again replaces
-- its rows when parts merge; SELECT ... FINAL sees the last ones at once. Files of version 1 lack
-- the last column of `interval` and `handshake`: name the others, and load such files apart.

CREATE DATABASE IF NOT EXISTS tlstax;

-- Facts about a host and its server, one row for each recording and hour.
CREATE TABLE IF NOT EXISTS tlstax.`host` (
    host String,
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    source_id Int64 CODEC(Delta, ZSTD),
    cluster LowCardinality(String),
    server LowCardinality(String),
    server_version LowCardinality(String),
    build_id LowCardinality(String),
    tls_library LowCardinality(String),
    tls_linkage LowCardinality(String),
    kernel LowCardinality(String),
    cpu_model LowCardinality(String),
    cpu_count Int64 CODEC(Delta, ZSTD),
    level LowCardinality(String),
    tlstax_version LowCardinality(String),
    first_wall_ns Int64 CODEC(Delta, ZSTD)
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (host, start_wall_ns, source_id);

-- A host in one interval: what was observed, and the sums that most questions need.
CREATE TABLE IF NOT EXISTS tlstax.`interval` (
    tier LowCardinality(String),
    host String,
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    source_id Int64 CODEC(Delta, ZSTD),
    recorded_ns Int64 CODEC(Delta, ZSTD),
    ledger_observed_ns Int64 CODEC(Delta, ZSTD),
    handshake_observed_ns Int64 CODEC(Delta, ZSTD),
    served_ns Int64 CODEC(Delta, ZSTD),
    on_cpu_ns Int64 CODEC(Delta, ZSTD),
    runnable_ns Int64 CODEC(Delta, ZSTD),
    handshake_cpu_ns Int64 CODEC(Delta, ZSTD),
    sign_cpu_ns Int64 CODEC(Delta, ZSTD),
    record_crypto_ns Int64 CODEC(Delta, ZSTD),
    connection_count Int64 CODEC(Delta, ZSTD),
    command_count Int64 CODEC(Delta, ZSTD),
    handshake_count Int64 CODEC(Delta, ZSTD),
    full_count Int64 CODEC(Delta, ZSTD),
    resumed_count Int64 CODEC(Delta, ZSTD),
    failed_count Int64 CODEC(Delta, ZSTD),
    process_cpu_ns Int64 CODEC(Delta, ZSTD),
    engine_cpu_ns Int64 CODEC(Delta, ZSTD),
    overhead_ns Int64 CODEC(Delta, ZSTD),
    sample_count Int64 CODEC(Delta, ZSTD),
    lost_count Int64 CODEC(Delta, ZSTD),
    record_observed_ns Int64 CODEC(Delta, ZSTD),
    partial_ns Int64 CODEC(Delta, ZSTD)
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (tier, host, start_wall_ns, source_id);

-- Exact time by role, phase and state, as observed. A state that did not occur is 0.
CREATE TABLE IF NOT EXISTS tlstax.`ledger` (
    tier LowCardinality(String),
    host String,
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    source_id Int64 CODEC(Delta, ZSTD),
    role LowCardinality(String),
    phase LowCardinality(String),
    on_cpu_ns Int64 CODEC(Delta, ZSTD),
    runnable_ns Int64 CODEC(Delta, ZSTD),
    blocked_network_ns Int64 CODEC(Delta, ZSTD),
    blocked_disk_ns Int64 CODEC(Delta, ZSTD),
    blocked_lock_ns Int64 CODEC(Delta, ZSTD),
    blocked_futex_ns Int64 CODEC(Delta, ZSTD),
    blocked_other_ns Int64 CODEC(Delta, ZSTD)
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (tier, host, role, phase, start_wall_ns, source_id);

-- Handshakes of one kind; times are sums over the successful ones.
CREATE TABLE IF NOT EXISTS tlstax.`handshake` (
    tier LowCardinality(String),
    host String,
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    source_id Int64 CODEC(Delta, ZSTD),
    outcome LowCardinality(String),
    tls_version LowCardinality(String),
    cipher LowCardinality(String),
    group_name LowCardinality(String),
    resumption LowCardinality(String),
    handshake_count Int64 CODEC(Delta, ZSTD),
    wall_ns Int64 CODEC(Delta, ZSTD),
    split_count Int64 CODEC(Delta, ZSTD),
    on_cpu_ns Int64 CODEC(Delta, ZSTD),
    runnable_ns Int64 CODEC(Delta, ZSTD),
    blocked_network_ns Int64 CODEC(Delta, ZSTD),
    blocked_other_ns Int64 CODEC(Delta, ZSTD),
    sign_ns Int64 CODEC(Delta, ZSTD),
    keygen_ns Int64 CODEC(Delta, ZSTD),
    derive_ns Int64 CODEC(Delta, ZSTD),
    verify_ns Int64 CODEC(Delta, ZSTD),
    certificate_ns Int64 CODEC(Delta, ZSTD),
    partial_count Int64 CODEC(Delta, ZSTD)
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (tier, host, outcome, tls_version, cipher, group_name, resumption, start_wall_ns, source_id);

-- Wall times of a phase as a base-2 exponential histogram, the form that OTLP defines.
CREATE TABLE IF NOT EXISTS tlstax.`phase_latency` (
    tier LowCardinality(String),
    host String,
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    source_id Int64 CODEC(Delta, ZSTD),
    phase LowCardinality(String),
    ended_count Int64 CODEC(Delta, ZSTD),
    scale Int64 CODEC(Delta, ZSTD),
    first_bucket Int64 CODEC(Delta, ZSTD),
    counts Array(Int64)
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (tier, host, phase, scale, start_wall_ns, source_id);

-- Data that was lost or repaired.
CREATE TABLE IF NOT EXISTS tlstax.`loss` (
    tier LowCardinality(String),
    host String,
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    source_id Int64 CODEC(Delta, ZSTD),
    kind LowCardinality(String),
    lost_count Int64 CODEC(Delta, ZSTD)
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (tier, host, kind, start_wall_ns, source_id);

-- TLS handshakes by network of the client, only where --client-networks asked for it.
CREATE TABLE IF NOT EXISTS tlstax.`client_net` (
    tier LowCardinality(String),
    host String,
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    source_id Int64 CODEC(Delta, ZSTD),
    network LowCardinality(String),
    connection_count Int64 CODEC(Delta, ZSTD),
    full_count Int64 CODEC(Delta, ZSTD),
    resumed_count Int64 CODEC(Delta, ZSTD),
    failed_count Int64 CODEC(Delta, ZSTD)
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (tier, host, network, start_wall_ns, source_id);

-- An estimate: how much of the commands of level `flow` was encrypting and framing records.
CREATE TABLE IF NOT EXISTS tlstax.`record_split` (
    host String,
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    source_id Int64 CODEC(Delta, ZSTD),
    command_cpu_ns Int64 CODEC(Delta, ZSTD),
    record_crypto_ns Int64 CODEC(Delta, ZSTD),
    low_ns Int64 CODEC(Delta, ZSTD),
    high_ns Int64 CODEC(Delta, ZSTD),
    sample_count Int64 CODEC(Delta, ZSTD),
    record_sample_count Int64 CODEC(Delta, ZSTD)
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (host, start_wall_ns, source_id);

-- A cause that a recording shows, in the hour in which the recording began.
CREATE TABLE IF NOT EXISTS tlstax.`finding` (
    host String,
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    source_id Int64 CODEC(Delta, ZSTD),
    finding LowCardinality(String),
    workload LowCardinality(String),
    share Float64,
    size_ns Float64,
    sentence String
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (host, finding, workload, start_wall_ns, source_id);

-- Time by phase and stack: the 12 largest of each phase, and the rest of it in one row.
CREATE TABLE IF NOT EXISTS tlstax.`stacks` (
    host String,
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    source_id Int64 CODEC(Delta, ZSTD),
    kind LowCardinality(String),
    phase LowCardinality(String),
    state LowCardinality(String),
    category LowCardinality(String),
    syscall Int64 CODEC(Delta, ZSTD),
    user_stack_id Int64 CODEC(Delta, ZSTD),
    kernel_stack_id Int64 CODEC(Delta, ZSTD),
    time_ns Int64 CODEC(Delta, ZSTD),
    sample_count Int64 CODEC(Delta, ZSTD)
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (host, kind, phase, state, category, syscall, user_stack_id, kernel_stack_id, start_wall_ns, source_id);

-- A stack, by the hash of its frames: equal on all hosts with the same builds. Rows of several recordings are alike.
CREATE TABLE IF NOT EXISTS tlstax.`stack` (
    stack_id Int64 CODEC(Delta, ZSTD),
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    frame_ids Array(Int64)
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (stack_id, start_wall_ns);

-- A place in code, by the hash of (build-id, offset). Rows of several recordings are alike.
CREATE TABLE IF NOT EXISTS tlstax.`frame` (
    frame_id Int64 CODEC(Delta, ZSTD),
    start_wall_ns Int64 CODEC(Delta, ZSTD),
    build_id LowCardinality(String),
    offset_bytes Int64 CODEC(Delta, ZSTD),
    object LowCardinality(String),
    symbol String,
    code LowCardinality(String)
) ENGINE = ReplacingMergeTree PARTITION BY toDate(fromUnixTimestamp64Nano(start_wall_ns))
ORDER BY (frame_id, start_wall_ns);
