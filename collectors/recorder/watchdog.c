// SPDX-License-Identifier: GPL-2.0-only
#include "watchdog.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failure.h"
#include "heartbeat.h"
#include "privileges.h"
#include "starvation.h"
#include "suspend.h"

#define STALE_NS ((u64)HEARTBEAT_MOST_NS)
#define LOOK_NS NS_PER_S /* a suspend of the host is noticed so late, if it is one */
#define NICE_RECORDING (-10)
/* A recorder that waits for a CPU cannot end, either, before it gets one: it is given this long. */
#define STARVED_MOST_NS (20 * NS_PER_S)
/* With more CPU time since its last beat it does not wait for that, but is stuck in a loop. */
#define LOOPING_NS (500 * NS_PER_MS)
#define NOTE_NS (100 * NS_PER_MS) /* how often it notes how long it has waited for a CPU */

static struct shared {
	u64 beat_ns;
	u32 is_armed;
} * shared;
static pid_t watchdog;
static volatile struct heartbeat *in_kernel;
static bool is_missed, is_starved;

/* Until the beat would be too old, if there is none meanwhile: a watchdog that sleeps costs
 * nothing. */
static void await_beat(u64 beat_ns)
{
	u64 late_ns = beat_ns + STALE_NS + NS_PER_MS, now = monotonic_ns();
	u64 wait_ns = late_ns < now + LOOK_NS ? late_ns - now : LOOK_NS;

	if (late_ns <= now)
		wait_ns = LOOK_NS; /* it is not armed */
	nanosleep(&(struct timespec){(time_t)(wait_ns / NS_PER_S), (long)(wait_ns % NS_PER_S)},
		  NULL);
}

/* Whether it did not beat for `late_ns` because it got no CPU: it used none, and wants one. */
static bool is_starving(pid_t recorder, u64 late_ns, u64 cpu_ns)
{
	return late_ns <= STARVED_MOST_NS &&
	       clock_ns(process_clock(recorder)) - cpu_ns <= LOOPING_NS && is_runnable(recorder);
}

/* sudo stops itself when its command is stopped, and nobody else would let it go on and end. */
static void end_recorder(pid_t recorder, pid_t sudo)
{
	if (sudo > 1)
		prctl(PR_SET_PDEATHSIG, 0); /* this process is the one that can tell it */
	kill(recorder, SIGKILL);
	if (sudo > 1)
		kill(sudo, SIGCONT);
	_exit(0);
}

static void watch(pid_t recorder, pid_t sudo)
{
	u64 awake_ns = 0, slept_ns = suspended_ns(), beat_ns = 0, heard_ns = 0, cpu_ns = 0;

	for (;;) {
		await_beat(beat_ns);
		if (getppid() != recorder)
			_exit(0);
		beat_ns = __atomic_load_n(&shared->beat_ns, __ATOMIC_RELAXED);
		u64 now = monotonic_ns();
		bool is_armed = __atomic_load_n(&shared->is_armed, __ATOMIC_RELAXED);
		if (beat_ns != heard_ns) {
			heard_ns = beat_ns;
			cpu_ns = clock_ns(process_clock(recorder));
		}
		if (suspended_ns() > slept_ns) {
			slept_ns = suspended_ns();
			awake_ns = now;
		}
		if (beat_ns < awake_ns)
			beat_ns = awake_ns;
		if (!is_armed || now < beat_ns || now - beat_ns <= STALE_NS ||
		    is_starving(recorder, now - beat_ns, cpu_ns))
			continue;
		/* First: it dies with the recorder. Not where that could wait for a reader. */
		struct pollfd said = {.fd = STDERR_FILENO, .events = POLLOUT};
		if (poll(&said, 1, 0) == 1 && said.revents & POLLOUT)
			tell("the recorder did not run for 2 s and is killed, which removes its "
			     "probes. "
			     "The stream is readable up to there");
		end_recorder(recorder, sudo);
	}
}

int watchdog_start(int output_fd, bool is_serving)
{
	pid_t recorder = getpid(), sudo = is_serving ? getppid() : 0;

	/* Among a thousand threads that want a CPU it would be starved, and so killed, just when it
	 * has the most to tell. Who started it with another niceness meant that. */
	if (!getpriority(PRIO_PROCESS, 0))
		setpriority(PRIO_PROCESS, 0, NICE_RECORDING);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return fail(EXIT_CODE_HOST, "cannot map memory: %s", strerror(errno));
	watchdog = fork();
	if (watchdog < 0)
		return fail(EXIT_CODE_HOST, "cannot start the watchdog: %s", strerror(errno));
	if (watchdog)
		return 0;
	/* A session of its own: a signal to the recorder's process group does not stop it, too. */
	setsid();
	prctl(PR_SET_NAME, "tlstax-watchdog");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(output_fd); /* the reader sees the end when the recorder ends */
	close(STDIN_FILENO);
	privileges_give_up();
	watch(recorder, sudo);
	_exit(0);
}

/* How long this process has waited for a CPU since it noted that last, at this beat or earlier. */
static u64 note_wait(u64 now, bool is_late)
{
	static u64 noted_ns, wait_ns;
	u64 before_ns = wait_ns;

	if (!is_late && now - noted_ns < NOTE_NS)
		return 0;
	noted_ns = now;
	wait_ns = own_wait_ns();
	return wait_ns - before_ns;
}

/*
 * A beat is late. The programs stay idle: what they hold is no longer true. It goes on if it only
 * waited for a CPU: see watchdog_resume().
 */
static void miss(u64 late_ns, u64 waited_ns)
{
	is_starved = (!is_missed || is_starved) && waited_ns > late_ns / 2;
	is_missed = true;
}

void watchdog_beat(void)
{
	static u64 slept_ns;
	u64 now = monotonic_ns();

	if (!shared)
		return; /* it was not started: requests are served */
	bool is_late = shared->is_armed && now - shared->beat_ns > STALE_NS;
	bool was_suspended = suspended_ns() > slept_ns;
	slept_ns = suspended_ns();
	u64 waited_ns = note_wait(now, is_late);
	if (is_late && !was_suspended)
		miss(now - shared->beat_ns, waited_ns);
	__atomic_store_n(&shared->beat_ns, now, __ATOMIC_RELAXED);
	if (in_kernel && !is_missed) {
		in_kernel->time_ns = now;
		in_kernel->ahead_ns = boottime_ahead_ns();
	}
}

void watchdog_share(volatile struct heartbeat *heartbeat)
{
	in_kernel = heartbeat;
}

bool watchdog_missed(void)
{
	return is_missed;
}

bool watchdog_starved(void)
{
	return is_missed && is_starved;
}

void watchdog_resume(void)
{
	is_missed = is_starved = false;
	if (in_kernel)
		in_kernel->resumed_ns = monotonic_ns();
	watchdog_beat();
}

void watchdog_arm(bool on)
{
	watchdog_beat();
	if (shared)
		__atomic_store_n(&shared->is_armed, on, __ATOMIC_RELEASE);
}

int watchdog_check(void)
{
	if (waitpid(watchdog, NULL, WNOHANG) == 0)
		return 0;
	watchdog = 0;
	return fail(EXIT_CODE_FAILED, "the watchdog ended: recording does not go on without it");
}

pid_t watchdog_pid(void)
{
	return watchdog;
}

u64 watchdog_cpu_ns(void)
{
	static u64 used_ns; /* its clock ends with it */
	u64 now_ns = watchdog ? clock_ns(process_clock(watchdog)) : 0;

	if (now_ns > used_ns)
		used_ns = now_ns;
	return used_ns;
}

void watchdog_stop(void)
{
	if (watchdog > 0) {
		kill(watchdog, SIGKILL);
		waitpid(watchdog, NULL, 0);
	}
	watchdog = 0;
}
