// SPDX-License-Identifier: GPL-2.0-only
/*
 * unwinding - leaves functions by every way but their return, again and again.
 *
 * unwinding WAY ROUNDS   WAY: throw, longjmp, exit (pthread_exit) or cancel (pthread_cancel)
 *
 * The four un_ functions nest. What a probe finds in each differs: an instruction for the exit
 * inside, a known caller only, nothing but its return, nothing at all. Each round goes through them
 * once by WAY and once by returning. The program says "ready" and waits for a byte, so that the
 * probes are there first; then it goes its rounds, spins 100 ms outside of the functions, says
 * "done" and waits again.
 */
#include <pthread.h>
#include <setjmp.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#define PLACE extern "C" __attribute__((noinline, noclone))
#ifdef __aarch64__ /* kernels before 6.13 single-step a nop */
#define BEGIN() __asm__ volatile("b 1f\n1:")
#else
#define BEGIN() /* `push` */
#endif

enum way { RETURN, THROW, LONGJMP, EXIT, CANCEL };

struct guard {
	~guard()
	{
		released++;
	}
	static int released;
};

int guard::released;

static thread_local jmp_buf out;
static volatile int zero;

static __attribute__((noinline)) int leave(enum way way)
{
	switch (way) {
	case RETURN:
		break;
	case THROW:
		throw 1;
	case LONGJMP:
		longjmp(out, 1);
	case EXIT:
		pthread_exit(nullptr);
	case CANCEL:
		pthread_cancel(pthread_self());
		pthread_testcancel();
	}
	return zero;
}

PLACE int un_inside(enum way way)
{
	BEGIN();
	int result = leave(way);
	__asm__ volatile("nop"); /* its end can be seen here */
	return result;
}

PLACE int un_behind(enum way way)
{
	return un_inside(way) * 3 + 1;
}

PLACE int nothing(int result)
{
	__asm__ volatile("");
	return result;
}

PLACE int un_address(enum way way)
{
	int result = un_behind(way);
	__asm__ volatile("nop"); /* the end of un_behind can be seen here */
	return nothing(result) * 3 + 1;
}

static int (*volatile address)(enum way) = un_address;

PLACE int un_returns(enum way way)
{
	return address(way) * 3 + 1;
}

static int (*volatile returns)(enum way) = un_returns;

static void *round_by_return(void *)
{
	returns(RETURN);
	return nullptr;
}

static void *round_by(void *argument)
{
	struct guard guard;
	auto way = (enum way)(size_t)argument;
	if (way == THROW) {
		try {
			returns(way);
		} catch (int) {
		}
	} else if (way != LONGJMP || setjmp(out) == 0) {
		returns(way);
	}
	return nullptr;
}

static void spin_100_ms()
{
	timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	long end_ns = now.tv_sec * 1000000000 + now.tv_nsec + 100000000;
	while (now.tv_sec * 1000000000 + now.tv_nsec < end_ns)
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
}

static void await(const char *said)
{
	char byte;
	puts(said);
	if (read(0, &byte, 1) != 1)
		exit(2);
}

int main(int argc, char **argv)
{
	static const char *const names[] = {"return", "throw", "longjmp", "exit", "cancel"};
	size_t way = 0;
	while (argc == 3 && way <= CANCEL && strcmp(argv[1], names[way]))
		way++;
	if (argc != 3 || way > CANCEL)
		return 2;
	setvbuf(stdout, nullptr, _IONBF, 0);
	await("ready");
	for (int left = atoi(argv[2]); left; left--) {
		if (way == EXIT || way == CANCEL) {
			pthread_t thread;
			if (pthread_create(&thread, nullptr, round_by, (void *)way))
				return 3;
			pthread_join(thread, nullptr);
		} else {
			round_by((void *)way);
		}
		round_by_return(nullptr);
	}
	spin_100_ms();
	await("done");
	/* 4: the destructors of the frame above the functions did not run. */
	return guard::released == atoi(argv[2]) ? 0 : 4;
}
