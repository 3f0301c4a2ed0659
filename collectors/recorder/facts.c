// SPDX-License-Identifier: GPL-2.0-only
#include "facts.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "answers.h"
#include "failure.h"
#include "kernel_features.h"
#include "proc.h"
#include "stream.h"
#include "target.h"

enum { FACT_BYTES_MOST = 16 << 20, PATH_MOST = 4096, VDSO_BYTES_MOST = 1 << 16 };

#define LOCKDOWN "/sys/kernel/security/lockdown"
#define DEBUGFS "/sys/kernel/debug/"
static const char *const host_facts[] = {
	"/proc/sys/kernel/osrelease",
	"/proc/sys/kernel/version",
	"/proc/sys/kernel/hostname",
	"/proc/version_signature",
	"/proc/config.gz",
	"/proc/self/mountinfo",
	"/proc/self/cgroup",
	"/proc/self/attr/current",
	LOCKDOWN,
	DEBUGFS "sched/preempt",
	"/sys/devices/system/cpu/online",
};
static const char *const process_facts[] = {"stat",	 "status", "limits",	  "cgroup",
					    "mountinfo", "comm",   "attr/current"};
static const char *const group_facts[] = {
	"freezer.state",	 "cgroup.events",	  "memory.max",	 "memory.current",
	"memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat",
};
static struct lines lines;

static void begin_fact(u16 type, const char *path)
{
	struct stream_fact head = {.name_bytes = (u32)strlen(path + 1)};

	answer_begin(type);
	answer_add(&head, sizeof(head));
	answer_add(path + 1, head.name_bytes);
}

static int put_text(const char *path, const char *text)
{
	begin_fact(STREAM_FACT, path);
	answer_add(text, strlen(text));
	return answer_send();
}

static int put_file(const char *path)
{
	static char text[STREAM_FRAME_MOST - PATH_MOST - sizeof(struct stream_fact)];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), failed = 0;
	size_t sum = 0;

	if (fd < 0)
		return 0;
	for (ssize_t got;
	     !failed && sum < FACT_BYTES_MOST && (got = read(fd, text, sizeof(text))) > 0;
	     sum += (size_t)got) {
		begin_fact(STREAM_FACT, path);
		answer_add(text, (size_t)got);
		failed = answer_send();
	}
	close(fd);
	return failed;
}

static int put_link(const char *path)
{
	char text[PATH_MOST];
	ssize_t length = readlink(path, text, sizeof(text));

	if (length <= 0)
		return 0;
	begin_fact(STREAM_LINK, path);
	answer_add(text, (size_t)length);
	return answer_send();
}

static bool has_word(const char *words, const char *word, size_t length)
{
	for (const char *at = words; (at = strstr(at, word)) != NULL; at++)
		if ((at == words || at[-1] == ' ') && (!at[length] || at[length] == ' '))
			return true;
	return false;
}

static bool is_code(const char *line, const char *unused)
{
	const char *access = strchr(line, ' ');

	(void)unused;
	return access && strnlen(access, 5) == 5 && access[3] == 'x';
}

static bool is_preemption(const char *line, const char *unused)
{
	(void)unused;
	return !strncmp(line, "CONFIG_PREEMPT", strlen("CONFIG_PREEMPT"));
}

static bool is_symbol(const char *line, const char *symbols)
{
	char name[128];

	return sscanf(line, "%*s %*c %127s", name) == 1 && has_word(symbols, name, strlen(name));
}

/* The lines of a file for which `is_kept` holds. */
static int put_lines(const char *path, bool (*is_kept)(const char *, const char *),
		     const char *argument)
{
	if (!lines_open(&lines, path))
		return 0;
	begin_fact(STREAM_FACT, path);
	for (char *line; (line = lines_next(&lines)) != NULL;) {
		if (!is_kept(line, argument))
			continue;
		if (strlen(line) + 1 > answer_room()) {
			if (answer_send()) {
				lines_close(&lines);
				return -1;
			}
			begin_fact(STREAM_FACT, path);
		}
		if (strlen(line) + 1 > answer_room())
			continue; /* a path as long as that is made up: the next line is not */
		answer_add(line, strlen(line));
		answer_add("\n", 1);
	}
	lines_close(&lines);
	return answer_send();
}

/* How the kernel was told to be preempted: the rest of its command line is nobody's business. */
static int put_command_line(void)
{
	char text[4096];
	static const char wanted[] = "preempt=";

	if (read_text("/proc/cmdline", text, sizeof(text)) <= 0)
		return 0;
	for (char *word = strtok(text, " \n"); word; word = strtok(NULL, " \n"))
		if (!strncmp(word, wanted, strlen(wanted)))
			return put_text("/proc/cmdline", word);
	return 0;
}

/* The limits of a control group and of those above it. */
static int put_group(const char *base, const char *group)
{
	char path[PATH_MOST], file[PATH_MOST + 64];

	if (strstr(group, "..") || snprintf(path, sizeof(path), "%s%s", base,
					    strcmp(group, "/") ? group : "") >= (int)sizeof(path))
		return 0;
	for (;;) {
		for (u32 i = 0; i < COUNT(group_facts); i++) {
			snprintf(file, sizeof(file), "%s/%s", path, group_facts[i]);
			if (put_file(file))
				return -1;
		}
		char *end = strrchr(path, '/');
		if (strlen(path) <= strlen(base) || !end)
			return 0;
		*end = 0;
	}
}

static int put_groups(const char *process)
{
	char path[64], text[8192], base[64];

	snprintf(path, sizeof(path), "/proc/%s/cgroup", process);
	read_text(path, text, sizeof(text));
	for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
		char *names = strchr(line, ':');
		char *group = names ? strchr(names + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = 0;
		names++;
		if (!*names && (put_group("/sys/fs/cgroup", group) ||
				put_group("/sys/fs/cgroup/unified", group)))
			return -1;
		if (strcmp(names, "memory") != 0 && strcmp(names, "freezer") != 0)
			continue;
		snprintf(base, sizeof(base), "/sys/fs/cgroup/%s", names);
		if (put_group(base, group))
			return -1;
	}
	return 0;
}

/* Reading debugfs is refused then, with a line in the kernel's log each time. */
static bool is_locked_down(void)
{
	char text[64] = "";
	int fd = open(LOCKDOWN, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ssize_t length = read(fd, text, sizeof(text) - 1);
	close(fd);
	return length > 0 && !strstr(text, "[none]");
}

/* The kernel's own code in each process, an ELF file in memory that ends with its sections. */
static int put_vdso(void)
{
	const Elf64_Ehdr *head = (const void *)getauxval(AT_SYSINFO_EHDR);
	u64 bytes = head ? head->e_shoff + (u64)head->e_shnum * head->e_shentsize : 0;

	if (!bytes || bytes > VDSO_BYTES_MOST)
		return 0;
	begin_fact(STREAM_FACT, "/vdso");
	answer_add(head, bytes);
	return answer_send();
}

static int put_host(const char *symbols)
{
	const bool locked_down = is_locked_down();
	char path[128];
	struct utsname host;

	uname(&host);
	sockets_source();
	kernel_types_forget();
	if (put_text("/machine", host.machine) ||
	    put_text("/socket-events", socket_source_names[sockets_source()]) || put_vdso() ||
	    put_command_line() || put_groups("self"))
		return -1;
	for (u32 i = 0; i < COUNT(host_facts); i++)
		if (!(locked_down && !strncmp(host_facts[i], DEBUGFS, strlen(DEBUGFS))) &&
		    put_file(host_facts[i]))
			return -1;
	snprintf(path, sizeof(path), "/boot/config-%s", host.release);
	return put_lines(path, is_preemption, NULL) ||
			       put_lines("/proc/kallsyms", is_symbol, symbols)
		       ? -1
		       : 0;
}

static int put_mappings(int pid)
{
	u32 count = target_read_mappings(pid);
	const char *path;

	for (u32 i = 0; i < count; i++) {
		const struct stream_mapping *mapping = target_mapping(i, &path);
		answer_begin(STREAM_MAPPING);
		answer_add(mapping, sizeof(*mapping));
		answer_add(path, mapping->path_bytes);
		if (answer_send())
			return -1;
	}
	return 0;
}

int facts_put(int pid, const char *symbols)
{
	char path[128], name[16];

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	if (pid <= 0 || access(path, R_OK))
		return fail(
			EXIT_CODE_TARGET,
			"process %d cannot be measured: there is no such process, or /proc does "
			"not show it",
			pid);
	for (u32 i = 0; i < COUNT(process_facts); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, process_facts[i]);
		if (put_file(path))
			return -1;
	}
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	if (put_lines(path, is_code, NULL))
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	if (put_link(path))
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/root", pid);
	snprintf(name, sizeof(name), "%d", pid);
	return put_link(path) || put_groups(name) || put_host(symbols) || put_mappings(pid) ? -1
											    : 0;
}

/* At most the program of a command line: what follows may hold a password. */
static int put_process(const char *directory, const char *comm, const char *program)
{
	char path[PATH_MOST];

	snprintf(path, sizeof(path), "/proc/%s/comm", directory);
	if (put_text(path, comm))
		return -1;
	snprintf(path, sizeof(path), "/proc/%s/cmdline", directory);
	begin_fact(STREAM_FACT, path);
	answer_add(program, strlen(program) + 1);
	if (answer_send())
		return -1;
	snprintf(path, sizeof(path), "/proc/%s/cgroup", directory);
	return put_file(path);
}

int facts_put_processes(const char *name, bool by_group)
{
	char path[300], comm[64], program[PATH_MOST], groups[8192] = "";
	DIR *all = opendir("/proc");
	int failed = 0;

	for (struct dirent *entry; all && !failed && (entry = readdir(all)) != NULL;) {
		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
		read_text(path, comm, sizeof(comm));
		comm[strcspn(comm, "\n")] = 0;
		if (by_group) {
			snprintf(path, sizeof(path), "/proc/%s/cgroup", entry->d_name);
			read_text(path, groups, sizeof(groups));
		}
		snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
		read_text(path, program, sizeof(program));
		const char *file = strrchr(program, '/');
		file = file ? file + 1 : program;
		bool is_wanted = by_group ? strcasestr(groups, name) != NULL
					  : !strcmp(comm, name) || !strcmp(file, name);
		if (*program && is_wanted && atoi(entry->d_name) != getpid())
			failed = put_process(entry->d_name, comm, by_group ? comm : program);
	}
	if (all)
		closedir(all);
	return failed;
}
