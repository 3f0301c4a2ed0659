// SPDX-License-Identifier: GPL-2.0-only
/*
 * delayline - a network of known delay between two network namespaces.
 *
 *     delayline NAMESPACE INTERFACE NAMESPACE INTERFACE DELAY_NS COUNTERS
 *
 * Makes one TUN interface in each namespace (files of /run/netns) and carries every packet from the
 * one to the other, DELAY_NS after it came, in both directions and in order. Prints "ready" once
 * both are there; they are gone when it ends. It is for kernels without netem.
 *
 * COUNTERS is a file, made by the caller, that this program maps and keeps up to date: see struct
 * counters. A packet that finds its line full is dropped and counted, as by any router.
 *
 * A packet is late by what the kernel needs to wake this program up: it asks for the timer's full
 * resolution and for a real-time priority, of which it uses some microseconds for each packet.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define LINE_PACKETS 16384 // on the way in one direction; a power of two
#define PACKET_BYTES 1536  // an Ethernet's, and some
#define BATCH 64	   // packets read before the others get their turn
#define NS_PER_S 1000000000ull

struct counters {
	uint64_t packets[2]; // delivered, by direction: from the first interface, from the second
	uint64_t bytes[2];
	uint64_t dropped[2];
	uint64_t late_max_ns; // the most that a packet was delivered after its time
};

struct packet {
	uint64_t due_ns;
	uint32_t length;
	unsigned char content[PACKET_BYTES];
};

struct line {
	int from, to;	      // TUN interfaces
	uint64_t first, next; // packets first..next-1 are on the way
	struct packet *packets;
};

static struct line lines[2];
static struct counters *counters;

static void fail(const char *what)
{
	fprintf(stderr, "delayline: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* A new TUN interface in a network namespace; it goes with the descriptor. */
static int open_tun(const char *network_namespace, const char *name)
{
	struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", network_namespace);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		fail(path);
	close(fd);
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		fail("/dev/net/tun");
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (ioctl(fd, TUNSETIFF, &request))
		fail(name);
	return fd;
}

static struct counters *map_counters(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *memory;

	if (fd < 0 || ftruncate(fd, sizeof(struct counters)))
		fail(path);
	memory = mmap(NULL, sizeof(struct counters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		fail(path);
	close(fd);
	return memory;
}

/* Take what has come, stamped with the time at which it must leave. */
static void receive(struct line *line, uint64_t delay_ns)
{
	static unsigned char dropped[PACKET_BYTES];
	int direction = line - lines;

	for (int i = 0; i < BATCH; i++) {
		struct packet *packet = &line->packets[line->next % LINE_PACKETS];
		int is_full = line->next - line->first == LINE_PACKETS;
		ssize_t length =
			read(line->from, is_full ? dropped : packet->content, PACKET_BYTES);

		if (length <= 0)
			return;
		if (is_full) {
			counters->dropped[direction]++;
			continue;
		}
		packet->due_ns = now_ns() + delay_ns;
		packet->length = length;
		line->next++;
	}
}

/* Deliver what is due. Returns when the next packet is, 0 if none is on the way. */
static uint64_t deliver(struct line *line)
{
	int direction = line - lines;

	while (line->first != line->next) {
		struct packet *packet = &line->packets[line->first % LINE_PACKETS];
		uint64_t now = now_ns();

		if (packet->due_ns > now)
			return packet->due_ns;
		if (now - packet->due_ns > counters->late_max_ns)
			counters->late_max_ns = now - packet->due_ns;
		if (write(line->to, packet->content, packet->length) == packet->length) {
			counters->packets[direction]++;
			counters->bytes[direction] += packet->length;
		} else if (errno != EIO) { // the interface is down, before its address is set
			counters->dropped[direction]++;
		}
		line->first++;
	}
	return 0;
}

static void set_timer(int timer, uint64_t due_ns)
{
	static uint64_t set_ns;
	struct itimerspec when = {
		.it_value = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S}};

	if (due_ns != set_ns && timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL))
		fail("timer");
	set_ns = due_ns;
}

static void carry(int epoll, int timer, uint64_t delay_ns)
{
	struct epoll_event events[3];

	for (;;) {
		uint64_t due_ns[2], expirations;
		int count = epoll_wait(epoll, events, 3, -1);

		for (int i = 0; i < count; i++) {
			struct line *line = events[i].data.ptr;

			if (events[i].events & EPOLLERR)
				exit(0); // its namespace is gone, and the interface with it

			if (line)
				receive(line, delay_ns);
			else if (read(timer, &expirations, sizeof(expirations)) < 0 &&
				 errno != EAGAIN)
				fail("timer");
		}
		for (int i = 0; i < 2; i++)
			due_ns[i] = deliver(&lines[i]);
		if (!due_ns[0] || (due_ns[1] && due_ns[1] < due_ns[0]))
			due_ns[0] = due_ns[1];
		set_timer(timer, due_ns[0]);
	}
}

static void watch(int epoll, int fd, struct line *line)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = line};

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		fail("epoll");
}

int main(int argc, char **argv)
{
	struct sched_param priority = {.sched_priority = 1};
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

	if (argc != 7) {
		fprintf(stderr, "usage: delayline NAMESPACE INTERFACE NAMESPACE INTERFACE DELAY_NS "
				"COUNTERS\n");
		return 2;
	}
	counters = map_counters(argv[6]);
	lines[0].from = lines[1].to = open_tun(argv[1], argv[2]);
	lines[1].from = lines[0].to = open_tun(argv[3], argv[4]);
	prctl(PR_SET_TIMERSLACK, 1);
	sched_setscheduler(0, SCHED_FIFO, &priority); // it is less exact where this is refused
	watch(epoll, timer, NULL);
	for (int i = 0; i < 2; i++) {
		lines[i].packets = calloc(LINE_PACKETS, sizeof(struct packet));
		if (!lines[i].packets)
			fail("memory");
		watch(epoll, lines[i].from, &lines[i]);
	}
	puts("ready");
	fflush(stdout);
	carry(epoll, timer, strtoull(argv[5], NULL, 10));
}
