// SPDX-License-Identifier: GPL-2.0-only
/* The CPU samples: one perf event for each CPU that is online, also for those that come later. */
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine.h"
#include "failure.h"
#include "links.h"
#include "proc.h"
#include "session.h"
#include "suspend.h"

/* A CPU that left and came back between two windows is found so late; a read interrupts each CPU.
 */
#define LOOK_NS (10 * NS_PER_S)

#define sampler (session->sampler)

static void enable(u32 cpu)
{
	ioctl(sampler.events[cpu], sampler.is_off ? PERF_EVENT_IOC_DISABLE : PERF_EVENT_IOC_ENABLE,
	      0);
}

static int sample_cpu(struct engine *engine, u32 cpu)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attributes),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_freq = engine->settings.sample_hz,
		.freq = 1,
		.exclude_idle = 1,
		.disabled = 1,
	};
	struct bpf_program *program = bpf_object__find_program_by_name(engine->object, "on_sample");
	int fd = (int)syscall(SYS_perf_event_open, &attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return -errno;
	int error = links_add(LINKS_SAMPLER, fd);
	if (error)
		return error;
	int link = bpf_link_create(bpf_program__fd(program), fd, BPF_PERF_EVENT, NULL);
	error = links_add(LINKS_SAMPLER, link);
	if (error) {
		links_drop(fd);
		return error;
	}
	sampler.events[cpu] = fd;
	sampler.links[cpu] = link;
	sampler.counted_ns[cpu] = 0;
	enable(cpu);
	return 0;
}

void sampler_enable(bool on)
{
	sampler.is_off = !on;
	for (u32 cpu = 0; cpu < CPUS_MOST; cpu++)
		if (sampler.is_sampled[cpu])
			enable(cpu);
}

/*
 * The kernel ends the event of a CPU that leaves. It may be back before anybody looks: all CPUs but
 * the first leave while the host is suspended. An event that is on counts time.
 */
static bool has_ended(u32 cpu)
{
	u64 before_ns = sampler.counted_ns[cpu];

	if (sampler.is_off)
		return false;
	ssize_t size = read(sampler.events[cpu], &sampler.counted_ns[cpu],
			    sizeof(sampler.counted_ns[cpu]));
	return size != sizeof(sampler.counted_ns[cpu]) || sampler.counted_ns[cpu] == before_ns;
}

static void forget_ended(void)
{
	for (u32 cpu = 0; cpu < CPUS_MOST; cpu++) {
		if (!sampler.is_sampled[cpu] || !has_ended(cpu))
			continue;
		links_drop(sampler.links[cpu]);
		links_drop(sampler.events[cpu]);
		sampler.is_sampled[cpu] = 0;
	}
}

/* Whether CPUs may have come or gone: they are others, or the host was suspended meanwhile. */
static bool is_look_due(void)
{
	char online[sizeof(sampler.online)];
	u64 slept_ns = suspended_ns(), now = monotonic_ns();

	read_online(online, sizeof(online));
	if (!strcmp(online, sampler.online) && slept_ns == sampler.slept_ns &&
	    now < sampler.looked_ns + LOOK_NS)
		return false;
	strcpy(sampler.online, online);
	sampler.slept_ns = slept_ns;
	sampler.looked_ns = now;
	return true;
}

void sampler_keep_up(struct engine *engine)
{
	if (is_look_due())
		sampler_attach(engine, true);
}

int sampler_attach(struct engine *engine, bool may_fail)
{
	static u32 cpus[CPUS_MOST];
	u32 count = read_cpus("online", cpus, CPUS_MOST);

	if (!count && !may_fail)
		return fail(EXIT_CODE_HOST,
			    "cannot read which CPUs are online: %s. Record without "
			    "samples: --sample-hz 0",
			    strerror(errno));
	forget_ended();
	for (u32 i = 0; i < count; i++) {
		if (cpus[i] >= CPUS_MOST || sampler.is_sampled[cpus[i]])
			continue;
		int error = sample_cpu(engine, cpus[i]);
		if (error && !may_fail)
			return fail(
				EXIT_CODE_HOST,
				"cannot sample CPU %u: %s. Record without samples: --sample-hz 0",
				cpus[i], strerror(-error));
		sampler.is_sampled[cpus[i]] = !error;
	}
	return 0;
}
