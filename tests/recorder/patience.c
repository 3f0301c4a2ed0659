// SPDX-License-Identifier: GPL-2.0-only
/*
 * The recorder's watchdog with clocks that a test sets: a suspend of the host takes no suspend.
 * tests/unit/recorder/test_patience.py drives it.
 */
#include <setjmp.h>
#include <time.h>

#include "watchdog.c"

u64 awake_ns = 100 * NS_PER_S, slept_ns = 5 * NS_PER_S; /* CLOCK_MONOTONIC, and what else passed */
/* CPU time of the recorder, and how long it has waited for a CPU, each in 1,000 ns that pass. */
static u64 cpu_share, wait_share;
static bool is_ready; /* what is_runnable() says */
static u64 used_cpu_ns = NS_PER_S, waited_ns;
static struct shared beats;
static struct heartbeat programs;
static jmp_buf is_over;
/* Milliseconds since the watchdog began: at one the host sleeps, at one the recorder beats. */
static u64 step, sleep_at, sleep_ns, beat_at, steps_most;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	u64 ns = clock < 0 ? used_cpu_ns : awake_ns + (clock == CLOCK_BOOTTIME ? slept_ns : 0);

	*now = (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
	return 0;
}

int __wrap_nanosleep(const struct timespec *span, struct timespec *rest)
{
	(void)rest;
	u64 ns = (u64)span->tv_sec * NS_PER_S + (u64)span->tv_nsec;
	for (; ns >= NS_PER_MS; ns -= NS_PER_MS) {
		awake_ns += NS_PER_MS;
		used_cpu_ns += NS_PER_MS / 1000 * cpu_share;
		step++;
		if (step == sleep_at)
			slept_ns += sleep_ns;
		if (step == beat_at)
			beats.beat_ns = awake_ns;
		if (step == steps_most)
			longjmp(is_over, 2);
	}
	return 0;
}

int __wrap_kill(pid_t pid, int number)
{
	(void)pid, (void)number;
	longjmp(is_over, 1);
}

int __wrap_getppid(void)
{
	return 7;
}

void privileges_give_up(void)
{
}

bool is_runnable(pid_t pid)
{
	return pid == 7 && is_ready;
}

u64 own_wait_ns(void)
{
	return waited_ns;
}

/* The recorder is ready to run all the time and is given this share of a CPU. */
void be_ready(u64 share)
{
	is_ready = true;
	cpu_share = share;
}

/* After how many ms the recorder, which beat just before, is killed; 0: it is not. */
u64 killed_after(u64 asleep_at, u64 asleep_ns, u64 beats_at, u64 most)
{
	shared = &beats;
	beats = (struct shared){.beat_ns = awake_ns, .is_armed = 1};
	step = 0;
	sleep_at = asleep_at;
	sleep_ns = asleep_ns;
	beat_at = beats_at;
	steps_most = most;
	int why = setjmp(is_over);
	if (!why)
		watch(7, 0);
	return why == 1 ? step : 0;
}

/* The recorder beats, and so much time passes until it beats again: whether it noticed. */
int missed(u64 frozen_ns, u64 asleep_ns)
{
	shared = &beats;
	beats = (struct shared){0};
	is_missed = false;
	watchdog_share(&programs);
	watchdog_arm(true);
	awake_ns += frozen_ns;
	slept_ns += asleep_ns;
	waited_ns += frozen_ns / 1000 * wait_share;
	watchdog_beat();
	return watchdog_missed();
}

/* The same of one that waits for a CPU for this share of the time: whether that is why. */
int starved(u64 late_ns, u64 share)
{
	wait_share = share;
	missed(late_ns, 0);
	return watchdog_starved();
}

/* It begins anew: what the programs compare their clocks with then. */
u64 resumed_ns(void)
{
	watchdog_resume();
	return watchdog_missed() ? 0 : programs.time_ns;
}

/* What the programs in the kernel compare their clocks with. */
u64 told_ns(void)
{
	return programs.time_ns;
}

u64 told_ahead_ns(void)
{
	return programs.ahead_ns;
}

/* CPU time of a watchdog while it runs, and when it has been found to have ended. */
u64 used_ns(int has_ended)
{
	watchdog = has_ended ? watchdog : 1 << 29; /* there is none */
	if (has_ended)
		watchdog_check();
	return watchdog_cpu_ns();
}
