// SPDX-License-Identifier: GPL-2.0-only
#include "rates.h"

#include <unistd.h>

#include "event_counters.h"
#include "proc.h"
#include "socket_events.h"

#define COUNTED_NS (100 * NS_PER_MS)

enum { EVENT_SWITCH, EVENT_RECEIVE, EVENT_SEND, EVENTS };

bool rates_count(int pid, struct rates *rates)
{
	int map = event_map(EVENTS), sockets[SOCKET_PLACES];
	struct timespec pause = {.tv_nsec = (long)COUNTED_NS};
	clockid_t clock = process_clock(pid);
	int switches = map < 0 ? -1 : count_tracepoint(map, EVENT_SWITCH, pid, "sched_switch");
	bool is_counted =
		switches >= 0 && !sockets_count(map, EVENT_RECEIVE, EVENT_SEND, pid, sockets);
	u64 before_ns = monotonic_ns(), used_ns = clock_ns(clock);

	if (is_counted)
		nanosleep(&pause, NULL);
	if (switches >= 0) {
		sockets_count_end(sockets);
		close(switches);
	}
	if (is_counted) {
		double span_ns = (double)(monotonic_ns() - before_ns);
		double second = (double)NS_PER_S / span_ns;
		*rates = (struct rates){
			.cpus = (double)(clock_ns(clock) - used_ns) / span_ns,
			.own_switches = (double)events_counted(map, EVENT_SWITCH, false) * second,
			.other_switches = (double)events_counted(map, EVENT_SWITCH, true) * second,
			.own_receives = (double)events_counted(map, EVENT_RECEIVE, false) * second,
			.own_sends = (double)events_counted(map, EVENT_SEND, false) * second,
			.other_messages = (double)(events_counted(map, EVENT_RECEIVE, true) +
						   events_counted(map, EVENT_SEND, true)) *
					  second,
		};
	}
	if (map >= 0)
		close(map);
	return is_counted;
}
