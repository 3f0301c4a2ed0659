// SPDX-License-Identifier: GPL-2.0-only
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "failure.h"
#include "stream.h"

enum { SLOTS_MOST = 1 << 16, HZ_MOST = 10000, WALKS_LEAST = 10, WALKS_MOST = 100000 };
enum { QUEUE_BYTES = 8 << 20, NETWORK_BITS = 32, NETWORK6_BITS = 128 };

static const char help[] =
	"usage: tlstax-recorder --plan FILE --pid N [options] > FILE.stream\n"
	"\n"
	"Records processes as plans of `tlstax probes plan PID --output FILE` says, and writes\n"
	"a stream that `tlstax import` makes a capture of.\n"
	"\n"
	"  --plan FILE      what is probed\n"
	"  --tables FILE    unwind tables, if they are not in PLAN.unwind beside the plan\n"
	"  --pid N          the process, by its id on the host\n"
	"  --for TIME       end after this time, such as 30s or 500ms (until it is interrupted)\n"
	"  --window TIME    length of a window (1s)\n"
	"  --sample-hz N    CPU samples a second and CPU; 0: none (99)\n"
	"  --wait-walks N   stacks of waits that are walked in a second, at most (2000)\n"
	"  --slots N        threads that can have an account at a time (8192, or 4 times those "
	"there)\n"
	"  --level LEVEL    record less than the plan: sample or handshake\n"
	"  --calibrate TIME at level flow: a calibration stretch about every TIME\n"
	"  --budget SHARE   what it may cost, of the process's CPU time: 0.1% to 50% (no limit)\n"
	"  --choose-level   with --budget and --calibrate: record all the time if that fits, else "
	"flow\n"
	"                   with stretches, else record in dense windows\n"
	"  --floor-cpus N   with --budget: CPUs that the process counts as using at least (0.1)\n"
	"  --or-everything  if nothing fits the budget, record everything without a limit\n"
	"  --measure-cost   measure what recording costs the process, in short stretches with it\n"
	"                   and without, if the load is enough for that; with --budget what a\n"
	"                   probe hit costs, at level record\n"
	"  --client-networks BITS,BITS6  keep so many bits of the clients' addresses with their\n"
	"                   handshakes: 1 to 32 of IPv4, 1 to 128 of IPv6 (none)\n"
	"  --reader N       with --budget: count the CPU time of this process, which reads, too\n"
	"  --queue SIZE     memory for what the reader has not taken, such as 8M\n"
	"  --socket-events SOURCE  only tracepoints or functions (what this host has)\n"
	"  --any-kernel     use a plan that was made on another kernel release\n"
	"  --traced         record a process that a debugger or strace traces, which may end it\n"
	"  --output FILE    write there instead of standard output; the file must not exist\n"
	"  --next           between the options of one process and those of the next: one "
	"recorder\n"
	"                   records several. --for, --queue, --socket-events, --control,\n"
	"                   --keep-going and --output stand before the first\n"
	"  --keep-going     with --next: leave out a process that cannot be recorded, and record\n"
	"                   the others\n"
	"  --control        take commands from standard input: `cut NS` ends a window at that\n"
	"                   time of CLOCK_MONOTONIC, its end ends the recording\n"
	"  --serve          take requests from standard input instead: for `tlstax attach --ssh`\n"
	"  --remove-self    with --serve: delete this executable first\n"
	"  --prices         print what a probe hit costs on this host, and record nothing\n"
	"  --version, --help\n"
	"\n"
	"Exit status: 0; 1 the recorder failed; 2 wrong arguments or plan; 3 the host lacks\n"
	"something; 4 the process cannot be recorded, is not the one of the plan, or ended;\n"
	"6 the stream could not be written; 7 nothing can be recorded for the budget.\n";

static const struct option names[] = {
	{"plan", required_argument, NULL, 'p'},
	{"tables", required_argument, NULL, 'u'},
	{"pid", required_argument, NULL, 'i'},
	{"for", required_argument, NULL, 'f'},
	{"window", required_argument, NULL, 'w'},
	{"sample-hz", required_argument, NULL, 's'},
	{"budget", required_argument, NULL, 'b'},
	{"reader", required_argument, NULL, 'e'},
	{"or-everything", no_argument, NULL, 'n'},
	{"measure-cost", no_argument, NULL, 'M'},
	{"slots", required_argument, NULL, 't'},
	{"level", required_argument, NULL, 'l'},
	{"queue", required_argument, NULL, 'q'},
	{"any-kernel", no_argument, NULL, 'k'},
	{"output", required_argument, NULL, 'o'},
	{"control", no_argument, NULL, 'y'},
	{"keep-going", no_argument, NULL, 'K'},
	{"serve", no_argument, NULL, 'r'},
	{"remove-self", no_argument, NULL, 'd'},
	{"prices", no_argument, NULL, 'j'}, /* alone */
	{"version", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, 'h'},
	{"traced", no_argument, NULL, 'c'},
	{"calibrate", required_argument, NULL, 'a'},
	{"wait-walks", required_argument, NULL, 'x'},
	{"floor-cpus", required_argument, NULL, 'm'},
	{"choose-level", no_argument, NULL, 'g'},
	{"socket-events", required_argument, NULL, 'z'},
	{"client-networks", required_argument, NULL, 'N'},
	{NULL, 0, NULL, 0},
};

static bool number(const char *text, u64 least, u64 most, u64 *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && *text >= '0' && *text <= '9' && !*end && *value >= least && *value <= most;
}

/* 30s, 500ms, 2m. */
static bool duration(const char *text, u64 *value_ns)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	double amount = strtod(text, &end);
	double unit_ns = !strcmp(end, "ms")  ? 1e6
			 : !strcmp(end, "s") ? 1e9
			 : !strcmp(end, "m") ? 6e10
					     : 0;
	if (!unit_ns || amount * unit_ns < 1e7 || amount * unit_ns > 1e17)
		return false;
	*value_ns = (u64)(amount * unit_ns);
	return true;
}

/* 5%, 0.1%. */
static bool share(const char *text, double *value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	*value = strtod(text, &end) / 100;
	return !strcmp(end, "%") && *value >= 0.000999 && *value <= 0.5;
}

/* FLOOR_CPUS_LEAST to FLOOR_CPUS_MOST. */
static bool cpus(const char *text, double *value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	*value = strtod(text, &end);
	return !*end && *value >= FLOOR_CPUS_LEAST && *value <= FLOOR_CPUS_MOST;
}

/* 24,48: of an IPv4 address and of an IPv6 one. */
static bool networks(const char *text, struct options *options)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	unsigned long bits = strtoul(text, &end, 10);
	if (*end != ',' || end[1] < '0' || end[1] > '9')
		return false;
	unsigned long bits6 = strtoul(end + 1, &end, 10);
	if (*end || bits < 1 || bits > NETWORK_BITS || bits6 < 1 || bits6 > NETWORK6_BITS)
		return false;
	options->network_bits = (u32)bits;
	options->network6_bits = (u32)bits6;
	return true;
}

static bool size(const char *text, size_t *bytes)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	unsigned long long amount = strtoull(text, &end, 10);
	u32 shift = !strcmp(end, "M") ? 20 : !strcmp(end, "K") ? 10 : 64;
	if (shift == 64 || amount > (1ULL << 30) >> shift || amount << shift < 1 << 18)
		return false;
	*bytes = (size_t)(amount << shift);
	return true;
}

static bool take(struct options *options, int letter, const char *value)
{
	u64 count = 0;

	switch (letter) {
	case 'p':
		options->plan = value;
		return true;
	case 'u':
		options->tables = value;
		return true;
	case 'o':
		options->output = value;
		return true;
	case 'i':
		if (!number(value, 1, 1 << 30, &count))
			return false;
		options->pid = (int)count;
		return true;
	case 'f':
		return duration(value, &options->for_ns);
	case 'w':
		return duration(value, &options->window_ns);
	case 'a':
		return duration(value, &options->calibrate_ns) &&
		       options->calibrate_ns >= NS_PER_S / 4;
	case 's':
		if (!number(value, 0, HZ_MOST, &count))
			return false;
		options->sample_hz = (u32)count;
		return true;
	case 't':
		if (!number(value, 1, SLOTS_MOST, &count))
			return false;
		options->slots = (u32)count;
		return true;
	case 'l':
		options->level = level_by_name(value, strlen(value));
		return options->level >= 0;
	case 'b':
		return share(value, &options->budget);
	case 'm':
		return cpus(value, &options->floor_cpus);
	case 'x':
		if (!number(value, WALKS_LEAST, WALKS_MOST, &count))
			return false;
		options->walks_most = (u32)count;
		return true;
	case 'z':
		while (options->sockets++ < SOCKETS_FUNCTIONS)
			if (!strcmp(value, socket_source_names[options->sockets]))
				return options->sockets != SOCKETS_NONE;
		return false;
	case 'n':
		options->or_everything = true;
		return true;
	case 'M':
		options->measures_cost = true;
		return true;
	case 'g':
		options->chooses_level = true;
		return true;
	case 'e':
		if (!number(value, 1, 1 << 30, &count))
			return false;
		options->reader = (int)count;
		return true;
	case 'q':
		return size(value, &options->queue_bytes);
	case 'N':
		return networks(value, options);
	case 'K':
		options->keeps_going = true;
		return true;
	case 'y':
		options->is_controlled = true;
		return true;
	case 'j':
		options->is_pricing = true;
		return true;
	case 'r':
		options->is_serving = true;
		return true;
	case 'c':
		options->may_be_traced = true;
		return true;
	case 'd':
		options->removes_itself = true;
		return true;
	default:
		options->any_kernel = true;
		return true;
	}
}

int options_parse(struct options *options, int count, char **arguments)
{
	int letter, place = 0;

	*options = (struct options){
		.window_ns = NS_PER_S,
		.sample_hz = 99,
		.walks_most = 2000,
		.floor_cpus = FLOOR_CPUS,
		.level = -1,
		.queue_bytes = QUEUE_BYTES,
	};
	opterr = optind = 0; /* it may be called again */
	while ((letter = getopt_long(count, arguments, ":", names, &place)) >= 0) {
		if (letter == 'h' || letter == 'v') {
			fputs(letter == 'h' ? help : "tlstax-recorder " TLSTAX_VERSION "\n",
			      stdout);
			return 1;
		}
		if (letter == '?' || letter == ':')
			return fail(EXIT_CODE_USAGE, "unknown option or no value: %s. See --help",
				    arguments[optind - 1]);
		if (!take(options, letter, optarg))
			return fail(EXIT_CODE_USAGE,
				    "--%s %s is out of range or unknown. See --help",
				    names[place].name, optarg);
	}
	if (optind < count)
		return fail(EXIT_CODE_USAGE, "unknown argument: %s. See --help", arguments[optind]);
	if (options->is_pricing && count > 2)
		return fail(EXIT_CODE_USAGE, "--prices goes with no other option. See --help");
	if (options->is_pricing)
		return 0;
	if (options->is_controlled && (options->budget > 0 || options->is_serving))
		return fail(EXIT_CODE_USAGE,
			    "--control goes neither with --budget, which chooses when windows "
			    "end, nor with --serve. See --help");
	if (options->is_serving && !options->plan && !options->pid)
		return 0;
	if (options->is_serving || options->removes_itself)
		return fail(EXIT_CODE_USAGE, "--serve goes with --remove-self only. See --help");
	if (options->chooses_level && (options->budget <= 0 || !options->calibrate_ns))
		return fail(EXIT_CODE_USAGE,
			    "--choose-level goes with --budget and --calibrate only. See --help");
	if (!options->plan || !options->pid)
		return fail(EXIT_CODE_USAGE, "give --plan FILE and --pid N. See --help");
	return 0;
}

int options_share(struct options *options, const struct options *first)
{
	bool is_of_all = options->output || options->for_ns || options->is_controlled ||
			 options->is_serving || options->removes_itself || options->is_pricing ||
			 options->keeps_going || options->sockets ||
			 options->queue_bytes != QUEUE_BYTES;

	if (is_of_all || first->is_serving)
		return fail(EXIT_CODE_USAGE,
			    "--output, --for, --control, --queue, --keep-going and --socket-events "
			    "are for all processes and stand before the first --next; --serve and "
			    "--prices go without it. See --help");
	if (first->is_controlled && options->budget > 0)
		return fail(EXIT_CODE_USAGE, "--control does not go with --budget, which chooses "
					     "when windows end. See --help");
	options->queue_bytes = first->queue_bytes;
	options->sockets = first->sockets;
	return 0;
}
