# SPDX-License-Identifier: GPL-2.0-only
# Perl's DBI at work, with DBD::mysql or DBD::MariaDB (both on libmariadb in Debian). Orders, gate and
# report are those of python_client.py. libmariadb has no way to resume a session.
use strict;
use warnings;
use DBI;
use JSON::PP;
use Time::HiRes qw(clock_gettime sleep CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID);

my $NS_PER_S   = 1_000_000_000;
my $PATIENCE_S = 30;
my $SESSION    = "SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')";

my $order      = decode_json(scalar <STDIN>);
my $is_mariadb = $order->{library} eq 'perl-dbd-mariadb';
my ($source, $prefix) = $is_mariadb ? ('MariaDB', 'mariadb') : ('mysql', 'mysql');

sub now_ns { return int(clock_gettime(CLOCK_MONOTONIC) * $NS_PER_S) }
sub cpu_ns { return int(clock_gettime(CLOCK_PROCESS_CPUTIME_ID) * $NS_PER_S) }

# Where to connect, and everything else as attributes: a data source could not hold every value.
my $place = "DBI:$source:database=$order->{database}";
$place .=
    $order->{socket}
  ? ";${prefix}_socket=$order->{socket}"
  : ";host=$order->{host};port=$order->{port}";

my %options = (
    RaiseError                  => 1,
    PrintError                  => 0,
    AutoCommit                  => 1,
    "${prefix}_connect_timeout" => $PATIENCE_S,
);
if (my $tls = $order->{tls}) {
    $options{"${prefix}_ssl"}             = 1;
    $options{"${prefix}_ssl_ca_file"}     = $tls->{ca};
    $options{"${prefix}_ssl_client_cert"} = $tls->{certificate};
    $options{"${prefix}_ssl_client_key"}  = $tls->{key};
    $options{"${prefix}_ssl_cipher"}      = $tls->{ciphers} if $tls->{ciphers};

    # DBD::mysql refuses to promise TLS with libmariadb: it is asked for, and then looked at.
    $options{mysql_ssl_optional} = 1 unless $is_mariadb;
}

sub open_connection {
    my $link = DBI->connect($place, $order->{user}, $order->{password}, {%options});
    if ($order->{tls} && $is_mariadb && !$link->{mariadb_ssl_cipher}) {
        die "it fell back to plaintext\n";
    }
    return $link;
}

sub work {
    my ($link) = @_;
    my $row = 1 + int(rand $order->{rows});
    if ($order->{work} eq 'select_1') {
        $link->selectall_arrayref('SELECT 1');
    }
    elsif ($order->{work} eq 'point_select') {
        $link->selectall_arrayref("SELECT c FROM sbtest1 WHERE id=$row");
    }
    else {
        $link->do("INSERT INTO tlstax_short (k, c) VALUES ($row, 'short')");
        $link->selectall_arrayref('SELECT k, c FROM tlstax_short WHERE id=LAST_INSERT_ID()');
    }
    return;
}

# The same work outside of the count; what the server says was negotiated.
sub warm_up {
    my %negotiated;
    for (1 .. $order->{warm_up_count}) {
        my $link = open_connection();
        work($link);
        $negotiated{ $_->[0] } = $_->[1] for @{ $link->selectall_arrayref($SESSION) };
        $link->disconnect;
    }
    return \%negotiated;
}

# The latencies of a run; every stride-th is kept, as python_client.py does it.
my ($stride, $count, $sum, $least, $most, @samples) = (1, 0, 0, undef, 0);

sub add_latency {
    my ($latency) = @_;
    if ($count % $stride == 0) {
        if (@samples >= $order->{samples_max}) {
            @samples = @samples[ grep { $_ % 2 == 0 } 0 .. $#samples ];
            $stride *= 2;
        }
        push @samples, $latency if $count % $stride == 0;
    }
    $count++;
    $sum += $latency;
    $least = $latency if !defined $least || $latency < $least;
    $most  = $latency if $latency > $most;
    return;
}

# All operations; the report's counts and times.
sub go {
    my ($connections, $link) = (0);
    my ($cpu, $start) = (cpu_ns(), now_ns());
    my $end = $start + int($order->{seconds} * $NS_PER_S);
    if (!$order->{connects}) {
        $link = open_connection();
        $connections++;
    }
    my $due = $start;
    while ($count < $order->{operation_count}) {
        my $begin = now_ns();
        if ($order->{rate_per_s}) {
            $due += int(-log(1 - rand) / $order->{rate_per_s} * $NS_PER_S);
            last if $due >= $end;
            sleep(($due - $begin) / $NS_PER_S) if $due > $begin;
            $begin = $due;    # what waited for its turn waited: queueing is part of it
        }
        last if now_ns() >= $end;
        if ($order->{connects}) {
            $link = open_connection();
            $connections++;
            work($link);
            $link->disconnect;
        }
        else {
            work($link);
        }
        add_latency(now_ns() - $begin);
    }
    $link->disconnect unless $order->{connects};
    return {
        start_ns         => $start,
        end_ns           => now_ns(),
        cpu_ns           => cpu_ns() - $cpu,
        operation_count  => $count,
        connection_count => $connections,
        reused_count     => undef,
        latency_sum_ns   => $sum,
        latency_min_ns   => $least // 0,
        latency_max_ns   => $most,
        samples_ns       => \@samples,
    };
}

srand $order->{seed};
my $negotiated = warm_up();
$| = 1;
print "tlstax gate\n";
exit 1 if (<STDIN> // '') ne "tlstax go\n";    # whoever started us is gone
my $report = go();
$report->{negotiated} = $negotiated;
$report->{version} =
    "Perl $^V, DBI $DBI::VERSION, DBD::$source " . ("DBD::$source")->VERSION . ' on libmariadb';
print 'tlstax report ' . encode_json($report) . "\n";
