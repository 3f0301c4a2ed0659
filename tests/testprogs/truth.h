/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Clocks and books of the truth program: what each thread really did, by its own clocks.
 *
 * A step is bracketed by begin(phase) and end(phase, state). Its CPU time is
 * CLOCK_THREAD_CPUTIME_ID, its waiting for a CPU the scheduler's own run_delay (schedstat), and the
 * rest of its CLOCK_MONOTONIC time is what it was blocked for. What lies between two steps is
 * charged to the phase of the second, so the books are complete on a busy machine too.
 */
#ifndef TLSTAX_TRUTH_H
#define TLSTAX_TRUTH_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MILLISECOND 1000000ULL
#define PHASE_CALL __attribute__((noinline, noclone)) /* a function that probes are put on */
/* An instruction on which the end of a function can be seen. */
#define WAY_OUT() __asm__ volatile("nop")

/* The phases and states the program knows how to be in; names as in the capture. */
enum phase {
	BACKGROUND,
	IDLE,
	CONNECT,
	HANDSHAKE,
	RECORD_READ,
	COMMAND,
	RECORD_WRITE,
	DISCONNECT,
	/* Parts of `command` that another level than `record` tells apart: */
	UNTOLD, /* it receives from its client, and nothing says so: waits, and receives by count */
	MERGED, /* commands that came with another, by count */
	PHASES
};
enum state { ON_CPU, RUNNABLE, NETWORK, DISK, LOCK, FUTEX, OTHER, STATES };

static const char *const PHASE_NAMES[PHASES] = {
	"background", "idle",	      "connect",    "handshake", "record_read",
	"command",    "record_write", "disconnect", "untold",	 "merged",
};
static const char *const STATE_NAMES[STATES] = {
	"on_cpu",	"runnable",	 "blocked_network", "blocked_disk",
	"blocked_lock", "blocked_futex", "blocked_other",
};

struct books {
	uint64_t spent_ns[PHASES][STATES];
	uint64_t count[PHASES];
	uint64_t start_ns;
	uint64_t last_wall_ns, last_cpu_ns, last_delay_ns;
	uint64_t answered_ns; /* when the present command sent something last; 0: it did not */
	uint64_t latency_ns;  /* of all commands of the client, by sockets alone */
	int schedstat_fd;
};

static __thread struct books books;

static inline void die(const char *what)
{
	fprintf(stderr, "truth: %s: %s\n", what, strerror(errno));
	exit(1);
}

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;
	if (clock_gettime(clock, &now))
		die("clock_gettime");
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static inline int thread_id(void)
{
	return (int)syscall(SYS_gettid);
}

/* Time this thread has been ready without a CPU. */
static inline uint64_t delay_ns(void)
{
	char text[96];
	ssize_t size = pread(books.schedstat_fd, text, sizeof(text) - 1, 0);
	unsigned long long cpu, delay;
	if (size <= 0)
		die("schedstat");
	text[size] = 0;
	if (sscanf(text, "%llu %llu", &cpu, &delay) != 2)
		die("schedstat format");
	return delay;
}

static inline void open_books(const char *thread_name)
{
	memset(&books, 0, sizeof(books));
	books.start_ns = clock_ns(CLOCK_MONOTONIC);
	pthread_setname_np(pthread_self(), thread_name);
	books.schedstat_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	if (books.schedstat_fd < 0)
		die("/proc/thread-self/schedstat");
	books.last_wall_ns = books.start_ns;
	books.last_cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	books.last_delay_ns = delay_ns();
}

/*
 * Charge the time since the last call: what was run and was ready belongs to `phase`, the rest was
 * spent waiting for `state`, in the phase `waiting`.
 */
static inline void end_wait(enum phase phase, enum phase waiting, enum state state)
{
	uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), delay = delay_ns();
	uint64_t wall = clock_ns(CLOCK_MONOTONIC);
	uint64_t ran = cpu - books.last_cpu_ns, ready = delay - books.last_delay_ns;
	uint64_t passed = wall - books.last_wall_ns;
	books.spent_ns[phase][ON_CPU] += ran;
	books.spent_ns[phase][RUNNABLE] += ready;
	if (state != ON_CPU && passed > ran + ready)
		books.spent_ns[waiting][state] += passed - ran - ready;
	books.last_cpu_ns = cpu;
	books.last_delay_ns = delay;
	books.last_wall_ns = wall;
}

static inline void end(enum phase phase, enum state state)
{
	end_wait(phase, phase, state);
}

/* What was done since the last step belongs to this phase already. */
static inline void begin(enum phase phase)
{
	end(phase, ON_CPU);
}

/* One line of JSON. It is kept until flush(): a write would wake the reader, which may then take
 * the CPU from a thread whose books are closed but whose phase is not. */
static char said[1 << 20];
static _Atomic size_t said_bytes;

static inline void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
	char text[4096];
	va_list arguments;
	va_start(arguments, format);
	int size = vsnprintf(text, sizeof(text) - 1, format, arguments);
	va_end(arguments);
	if (size < 0 || size >= (int)sizeof(text) - 1)
		die("a line is too long");
	text[size++] = '\n';
	size_t place = atomic_fetch_add(&said_bytes, (size_t)size);
	if (place + (size_t)size > sizeof(said))
		die("too many lines");
	memcpy(said + place, text, (size_t)size);
}

/* Write what was said. Other threads must have ended. */
static inline void flush(void)
{
	size_t written = 0;
	while (written < said_bytes) {
		ssize_t size = write(STDOUT_FILENO, said + written, said_bytes - written);
		if (size <= 0)
			die("standard output");
		written += (size_t)size;
	}
	said_bytes = 0;
}

/* Print the thread's books. What follows in the thread is not in them. */
static inline void close_books(const char *thread_name)
{
	char cells[2048] = "", counts[512] = "";
	size_t used = 0, counted = 0;
	for (int phase = 0; phase < PHASES; phase++) {
		for (int state = 0; state < STATES; state++)
			if (books.spent_ns[phase][state])
				used += (size_t)snprintf(
					cells + used, sizeof(cells) - used, "%s\"%s/%s\":%llu",
					used ? "," : "", PHASE_NAMES[phase], STATE_NAMES[state],
					(unsigned long long)books.spent_ns[phase][state]);
		if (books.count[phase])
			counted += (size_t)snprintf(counts + counted, sizeof(counts) - counted,
						    "%s\"%s\":%llu", counted ? "," : "",
						    PHASE_NAMES[phase],
						    (unsigned long long)books.count[phase]);
	}
	say("{\"kind\":\"thread\",\"name\":\"%s\",\"tid\":%d,\"start_ns\":%llu,\"end_ns\":%llu,"
	    "\"cpu_ns\":%llu,\"latency_ns\":%llu,\"cells\":{%s},\"counts\":{%s}}",
	    thread_name, thread_id(), (unsigned long long)books.start_ns,
	    (unsigned long long)clock_ns(CLOCK_MONOTONIC),
	    (unsigned long long)clock_ns(CLOCK_THREAD_CPUTIME_ID),
	    (unsigned long long)books.latency_ns, cells, counts);
	close(books.schedstat_fd);
}

/* Use the CPU for `spin_ns` of the thread's own CPU time. */
static inline void spin(enum phase phase, uint64_t spin_ns)
{
	begin(phase);
	uint64_t until = books.last_cpu_ns + spin_ns;
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until)
		for (volatile int i = 0; i < 200; i++)
			;
	end(phase, ON_CPU);
}

static inline void doze(uint64_t sleep_ns)
{
	struct timespec left = {.tv_sec = (time_t)(sleep_ns / 1000000000ULL),
				.tv_nsec = (long)(sleep_ns % 1000000000ULL)};
	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static inline pthread_t start(void *(*body)(void *), void *argument)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, body, argument))
		die("pthread_create");
	return thread;
}

/* Tell the test that probes may be attached, and wait until they are. */
static inline void await_go(void)
{
	char go;
	say("{\"kind\":\"ready\",\"pid\":%d}", getpid());
	flush();
	if (read(STDIN_FILENO, &go, 1) != 1)
		exit(1);
}

/* Everything is done; stay until the test has read the ledger. */
static inline void await_leave(void)
{
	char leave;
	say("{\"kind\":\"done\",\"pid\":%d}", getpid());
	flush();
	if (read(STDIN_FILENO, &leave, 1) < 0)
		exit(1);
}

#endif
