/* SPDX-License-Identifier: GPL-2.0-only */
/* Ways out of a phase that no exit probe sees: longjmp, the end of the thread, fork. */
#ifndef TLSTAX_TRUTH_EXITS_H
#define TLSTAX_TRUTH_EXITS_H

#include "truth_server.h"

#include <sys/wait.h>

/* Out of every open phase without a return. Not a plain longjmp: the compiler would see that the
 * caller below never returns. */
static PHASE_CALL void jump_out(struct server *server)
{
	if (server->unit_ns)
		longjmp(server->out, 1);
}

PHASE_CALL void tt_nested_write(struct server *server, int depth)
{
	books.count[RECORD_WRITE]++;
	spin(RECORD_WRITE, server->unit_ns);
	if (depth == 0)
		jump_out(server);
	else
		tt_nested_write(server, depth - 1);
	WAY_OUT();
}

PHASE_CALL void tt_dispatch_and_jump(struct server *server)
{
	books.count[COMMAND]++;
	spin(COMMAND, server->unit_ns);
	tt_nested_write(server, 2);
}

/* The command after a jump: its boundary is what heals the books. */
PHASE_CALL void tt_dispatch_spin(struct server *server)
{
	books.count[COMMAND]++;
	spin(COMMAND, server->unit_ns);
}

PHASE_CALL void tt_await_spin(struct server *server, void (*dispatch)(struct server *))
{
	books.count[RECORD_READ]++;
	begin(RECORD_READ);
	ask(&server->peer, 0, 0);
	receive(server);
	end_wait(RECORD_READ, IDLE, NETWORK);
	spin(RECORD_READ, server->unit_ns);
	dispatch(server);
}

PHASE_CALL void tt_ready(void)
{
	__asm__ volatile("");
}

static void *serve_longjmp(void *argument)
{
	struct order *order = argument;
	open_books("tt-longjmp");
	end(BACKGROUND, ON_CPU);
	tt_ready();
	for (volatile int round = 0; round < order->rounds; round++) {
		if (setjmp(order->server->out) == 0)
			tt_await_spin(order->server, tt_dispatch_and_jump);
		tt_await_spin(order->server, tt_dispatch_spin);
	}
	tt_end_connection(order->server);
	close_books("tt-longjmp");
	return NULL;
}

/* Ends the thread two phases deep. */
PHASE_CALL void tt_write_and_exit(struct server *server)
{
	books.count[RECORD_WRITE]++;
	spin(RECORD_WRITE, server->unit_ns);
	close_books("tt-exit");
	pthread_exit(NULL);
}

PHASE_CALL void tt_dispatch_and_exit(struct server *server)
{
	books.count[COMMAND]++;
	spin(COMMAND, server->unit_ns);
	tt_write_and_exit(server);
}

static void *serve_exit(void *argument)
{
	open_books("tt-exit");
	end(BACKGROUND, ON_CPU);
	tt_ready();
	tt_await_spin(argument, tt_dispatch_and_exit);
	return NULL;
}

/* The child is in the middle of the same calls; nothing of it may be counted. */
PHASE_CALL void tt_write_and_fork(struct server *server)
{
	pid_t child;
	int status;
	books.count[RECORD_WRITE]++;
	spin(RECORD_WRITE, server->unit_ns);
	begin(RECORD_WRITE);
	child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		said_bytes = 0; /* the parent says that itself */
		open_books("tt-child");
		for (int round = 0; round < 5; round++)
			tt_await_spin(server, tt_dispatch_spin);
		close_books("tt-child");
		flush();
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || status)
		die("the child failed");
	end(RECORD_WRITE, OTHER);
	spin(RECORD_WRITE, server->unit_ns);
	WAY_OUT();
}

PHASE_CALL void tt_dispatch_and_fork(struct server *server)
{
	books.count[COMMAND]++;
	spin(COMMAND, server->unit_ns);
	tt_write_and_fork(server);
}

static void *serve_fork(void *argument)
{
	struct server *server = argument;
	open_books("tt-fork");
	end(BACKGROUND, ON_CPU);
	tt_ready();
	tt_await_spin(server, tt_dispatch_and_fork);
	tt_await_spin(server, tt_dispatch_spin);
	tt_end_connection(server);
	close_books("tt-fork");
	return NULL;
}

/* Becomes server->file in the middle of a phase, on a thread that is not the first. */
PHASE_CALL void tt_dispatch_and_execute(struct server *server)
{
	spin(COMMAND, server->unit_ns);
	execl(server->file, server->file, "tls", "ssss", (char *)NULL);
	die("exec");
}

static void *serve_execute(void *argument)
{
	open_books("tt-execute");
	end(BACKGROUND, ON_CPU);
	tt_ready();
	tt_await_spin(argument, tt_dispatch_and_execute);
	return NULL;
}

#endif
