// SPDX-License-Identifier: GPL-2.0-only
/*
 * truth - does known things on marked threads, and says by its own clocks what it did.
 *
 * Its tt_ functions are called in the order of a server's: handle a connection, prepare it, read a
 * command, dispatch it, write the result, end, close. tests/testprogs/truth.toml tells
 * tlstax which phase begins where. It says {"kind":"ready"} and waits for a byte on standard
 * input, so that the probes are there first; at the end it says {"kind":"done"} and waits again.
 *
 * truth states FILE ROUNDS MS   each kind of wait, and spins, in each phase; FILE for disk waits
 * truth wire FILE ROUNDS MS [WAY]  each way to talk to the client, or the WAYth
 * truth runnable MS             two threads spin on one CPU
 * truth longjmp ROUNDS MS       leaves nested phases by longjmp
 * truth exit THREADS MS         threads end inside nested phases
 * truth fork MS                 forks inside a phase; the child goes on in it
 * truth execute FILE MS         executes FILE inside a phase: it is another program from then on
 * truth threads THREADS US      many short threads, spinning outside of any phase
 * truth load PAIRS MS US PAUSE  pairs of threads that wake each other for MS, US of work a time
 * truth unseen WAY [churn]      leaves a connection while nothing looks: see truth_unseen.h
 * truth tls KINDS [GROUP]       one handshake for each letter of KINDS, see truth_tls.h
 */
#include "truth_exits.h"
#include "truth_load.h"
#include "truth_server.h"
#include "truth_tls.h"
#include "truth_unseen.h"
#include "truth_wire.h"

static void *spin_on_first_cpu(void *argument)
{
	struct server *server = argument;
	cpu_set_t allowed, first;
	int cpu = 0;
	open_books("tt-runnable");
	sched_getaffinity(0, sizeof(allowed), &allowed);
	while (!CPU_ISSET(cpu, &allowed))
		cpu++;
	CPU_ZERO(&first);
	CPU_SET(cpu, &first);
	sched_setaffinity(0, sizeof(first), &first);
	spin(BACKGROUND, server->unit_ns);
	close_books("tt-runnable");
	return NULL;
}

static void run_runnable(struct server *server)
{
	pthread_t one = start(spin_on_first_cpu, server), two = start(spin_on_first_cpu, server);
	pthread_join(one, NULL);
	pthread_join(two, NULL);
}

static void *spin_shortly(void *argument)
{
	struct server *server = argument;
	open_books("tt-short");
	spin(BACKGROUND, server->unit_ns);
	close_books("tt-short");
	return NULL;
}

static void run_threads(struct server *server, void *(*body)(void *), int threads)
{
	for (int i = 0; i < threads; i++)
		pthread_join(start(body, server), NULL);
}

static uint64_t number(int argc, char **argv, int index)
{
	long value = index < argc ? strtol(argv[index], NULL, 10) : 0;
	if (value <= 0) {
		fprintf(stderr, "truth: argument %d must be a positive number; see truth.c\n",
			index);
		exit(2);
	}
	return (uint64_t)value;
}

static void run(const char *scenario, struct server *server, int argc, char **argv)
{
	if (!strcmp(scenario, "runnable")) {
		server->unit_ns = number(argc, argv, 2) * MILLISECOND;
		await_go();
		run_runnable(server);
	} else if (!strcmp(scenario, "longjmp")) {
		struct order order = {server, (int)number(argc, argv, 2), -1};
		server->unit_ns = number(argc, argv, 3) * MILLISECOND;
		await_go();
		pthread_join(start(serve_longjmp, &order), NULL);
	} else if (!strcmp(scenario, "exit")) {
		server->unit_ns = number(argc, argv, 3) * MILLISECOND;
		await_go();
		run_threads(server, serve_exit, (int)number(argc, argv, 2));
	} else if (!strcmp(scenario, "fork")) {
		server->unit_ns = number(argc, argv, 2) * MILLISECOND;
		await_go();
		run_threads(server, serve_fork, 1);
	} else if (!strcmp(scenario, "execute")) {
		server->file = argv[2];
		server->unit_ns = number(argc, argv, 3) * MILLISECOND;
		await_go();
		run_threads(server, serve_execute, 1);
	} else if (!strcmp(scenario, "threads")) {
		server->unit_ns = number(argc, argv, 3) * 1000;
		await_go();
		run_threads(server, spin_shortly, (int)number(argc, argv, 2));
	} else if (!strcmp(scenario, "load")) {
		struct load load = {.spin_ns = number(argc, argv, 4) * 1000,
				    .pause_ns = argc > 5 ? strtoull(argv[5], NULL, 10) * 1000 : 0};
		await_go();
		run_load(&load, (int)number(argc, argv, 2), number(argc, argv, 3) * MILLISECOND);
	} else {
		fprintf(stderr, "truth: unknown scenario; see truth.c\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	static struct server server;
	const char *scenario = argc > 2 ? argv[1] : "";

	open_helper(&server.helper);
	if (!strcmp(scenario, "states")) {
		server.file = argv[2];
		server.unit_ns = number(argc, argv, 4) * MILLISECOND;
		server.peer = start_peer(CLIENT);
		await_go();
		run_states(&server, (int)number(argc, argv, 3));
	} else if (!strcmp(scenario, "wire")) {
		struct order order = {&server, (int)number(argc, argv, 3),
				      argc > 5 ? (int)number(argc, argv, 5) - 1 : -1};
		server.file = argv[2];
		server.unit_ns = number(argc, argv, 4) * MILLISECOND;
		server.peer = start_peer(CLIENT);
		server.remote = start_peer(REMOTE_SERVER);
		await_go();
		pthread_join(start(serve_wire, &order), NULL);
	} else if (!strcmp(scenario, "unseen")) {
		run_unseen(argv[2], argc > 3);
	} else if (!strcmp(scenario, "tls")) {
		run_tls(argv[2], argc > 3 ? argv[3] : "X25519");
	} else {
		server.peer = start_peer(CLIENT);
		run(scenario, &server, argc, argv);
	}
	await_leave();
	return 0;
}
