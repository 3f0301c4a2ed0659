<?php
// SPDX-License-Identifier: GPL-2.0-only
// PHP's mysqli (mysqlnd) at work. Orders, gate and report are those of python_client.py.
// mysqlnd makes a TLS context for each connection and has no way to resume a session.

const NS_PER_S = 1000000000;
const PATIENCE_S = 30;
const SESSION = "SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')";

/** The latencies of a run; every stride-th is kept, as python_client.py does it. */
final class Latencies
{
    public array $samples = [];
    public int $count = 0, $sum = 0, $min = PHP_INT_MAX, $max = 0;
    private int $stride = 1;

    public function __construct(private int $limit)
    {
    }

    public function add(int $latency): void
    {
        if ($this->count % $this->stride === 0) {
            if (count($this->samples) >= $this->limit) {
                $kept = [];
                for ($at = 0; $at < count($this->samples); $at += 2) {
                    $kept[] = $this->samples[$at];
                }
                $this->samples = $kept;
                $this->stride *= 2;
            }
            if ($this->count % $this->stride === 0) {
                $this->samples[] = $latency;
            }
        }
        $this->count++;
        $this->sum += $latency;
        $this->min = min($this->min, $latency);
        $this->max = max($this->max, $latency);
    }
}

/** A new connection; an exception where it fails. */
function open_connection(array $order): mysqli
{
    $link = mysqli_init();
    $link->options(MYSQLI_OPT_CONNECT_TIMEOUT, PATIENCE_S);
    $flags = 0;
    if ($order['tls']) {
        $tls = $order['tls'];
        $link->ssl_set($tls['key'], $tls['certificate'], $tls['ca'], null, $tls['ciphers'] ?: null);
        $flags = MYSQLI_CLIENT_SSL;
        if (!in_array($order['host'], ['127.0.0.1', null], true)) {
            // The certificate does not name the addresses of namespaces, and mysqlnd cannot check
            // the rest alone.
            $flags = MYSQLI_CLIENT_SSL_DONT_VERIFY_SERVER_CERT;
        }
    }
    $host = $order['socket'] ? 'localhost' : $order['host'];
    $socket = $order['socket'] ?: null;
    $link->real_connect(
        $host,
        $order['user'],
        $order['password'],
        $order['database'],
        (int) $order['port'],
        $socket,
        $flags
    );
    return $link;
}

/** Run a statement and fetch what it returns. */
function ask(mysqli $link, string $statement): array
{
    $result = $link->query($statement);
    return $result instanceof mysqli_result ? $result->fetch_all() : [];
}

function work(mysqli $link, array $order): void
{
    $row = mt_rand(1, $order['rows']);
    if ($order['work'] === 'select_1') {
        ask($link, 'SELECT 1');
    } elseif ($order['work'] === 'point_select') {
        ask($link, "SELECT c FROM sbtest1 WHERE id=$row");
    } else {
        ask($link, "INSERT INTO tlstax_short (k, c) VALUES ($row, 'short')");
        ask($link, 'SELECT k, c FROM tlstax_short WHERE id=LAST_INSERT_ID()');
    }
}

/** The same work outside of the count; what the server says was negotiated. */
function warm_up(array $order): array
{
    $negotiated = [];
    for ($turn = 0; $turn < $order['warm_up_count']; $turn++) {
        $link = open_connection($order);
        work($link, $order);
        foreach (ask($link, SESSION) as [$name, $value]) {
            $negotiated[$name] = $value;
        }
        $link->close();
    }
    return $negotiated;
}

/** The time from now to an event of a Poisson process. */
function gap_ns(float $rate): int
{
    return (int) (-log(1 - mt_rand() / (mt_getrandmax() + 1)) / $rate * NS_PER_S);
}

function cpu_ns(): int
{
    $usage = getrusage();
    $us = $usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec'];
    return ($usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec']) * NS_PER_S + $us * 1000;
}

/** All operations; the report's counts and times. */
function go(array $order): array
{
    $latencies = new Latencies($order['samples_max']);
    $connections = 0;
    $link = null;
    $cpu = cpu_ns();
    $start = hrtime(true);
    $end = $start + (int) ($order['seconds'] * NS_PER_S);
    if (!$order['connects']) {
        $link = open_connection($order);
        $connections++;
    }
    $due = $start;
    while ($latencies->count < $order['operation_count']) {
        $begin = hrtime(true);
        if ($order['rate_per_s']) {
            $due += gap_ns($order['rate_per_s']);
            if ($due >= $end) {
                break;
            }
            usleep(intdiv(max(0, $due - $begin), 1000));
            $begin = $due;  // what waited for its turn waited: queueing is part of it
        }
        if (hrtime(true) >= $end) {
            break;
        }
        if ($order['connects']) {
            $link = open_connection($order);
            $connections++;
            work($link, $order);
            $link->close();
        } else {
            work($link, $order);
        }
        $latencies->add(hrtime(true) - $begin);
    }
    if (!$order['connects']) {
        $link->close();
    }
    return [
        'start_ns' => $start,
        'end_ns' => hrtime(true),
        'cpu_ns' => cpu_ns() - $cpu,
        'operation_count' => $latencies->count,
        'connection_count' => $connections,
        'reused_count' => null,
        'latency_sum_ns' => $latencies->sum,
        'latency_min_ns' => $latencies->count ? $latencies->min : 0,
        'latency_max_ns' => $latencies->max,
        'samples_ns' => $latencies->samples,
    ];
}

set_exception_handler(function (Throwable $error): void {
    echo 'FATAL: ', $error->getMessage(), "\n";
    exit(1);
});
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
$order = json_decode(fgets(STDIN), true, 16, JSON_THROW_ON_ERROR);
mt_srand($order['seed']);
$negotiated = warm_up($order);
echo "tlstax gate\n";
flush();
if (fgets(STDIN) !== "tlstax go\n") {  // whoever started us is gone
    exit(1);
}
$report = go($order);
$report['negotiated'] = (object) $negotiated;
$report['version'] = 'PHP ' . PHP_VERSION . ', ' . mysqli_get_client_info() . ', ' . OPENSSL_VERSION_TEXT;
echo 'tlstax report ', json_encode($report), "\n";
