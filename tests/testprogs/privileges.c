// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a process can still do after the recorder's privileges_keep_needed(): one line each, a name
 * and the number of the error (0: it worked). Run it as root, as EPERM is to come from the filter
 * alone.
 */
#define _GNU_SOURCE
#include "../../collectors/recorder/privileges.c"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

static void say(const char *name, long result)
{
	char line[64];
	int size = snprintf(line, sizeof(line), "%s %d\n", name, result < 0 ? errno : 0);

	if (write(STDOUT_FILENO, line, (size_t)size) != size)
		_exit(1);
}

static long bpf_call(int command)
{
	union bpf_attr attributes;

	memset(&attributes, 0, sizeof(attributes));
	attributes.map_type = BPF_MAP_TYPE_ARRAY;
	attributes.key_size = attributes.value_size = 4;
	attributes.max_entries = 1;
	return syscall(SYS_bpf, command, &attributes, sizeof(attributes));
}

static void *other_thread(void *unused)
{
	(void)unused;
	sleep(1); /* the filter came after this thread */
	say("thread-creates-file", open("/tmp/tlstax-privileges", O_WRONLY | O_CREAT, 0600));
	return NULL;
}

int main(void)
{
	char *const words[] = {"true", NULL};
	pthread_t thread;
	pid_t child = fork();

	if (!child) {
		pause();
		_exit(0);
	}
	if (pthread_create(&thread, NULL, other_thread, NULL))
		return 1;
	if (!privileges_keep_needed(child))
		return 2;
	say("reads-file", open("/proc/self/stat", O_RDONLY));
	say("reads-map", bpf_call(BPF_MAP_LOOKUP_ELEM));
	say("signals-watchdog", kill(child, SIGKILL));
	say("writes-file", open("/dev/null", O_WRONLY));
	say("creates-file", openat(AT_FDCWD, "/tmp/tlstax-privileges", O_RDWR | O_CREAT, 0600));
	say("makes-map", bpf_call(BPF_MAP_CREATE));
	say("loads-program", bpf_call(BPF_PROG_LOAD));
	say("signals-another", kill(getppid(), 0));
	say("executes", syscall(SYS_execve, "/bin/true", words, words + 1));
	say("forks", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
	say("opens-socket", syscall(SYS_socket, 1, 1, 0));
	say("traces", syscall(SYS_ptrace, 0, 0, 0, 0));
	say("mounts", syscall(SYS_mount, "none", "/nowhere", "tmpfs", 0, 0));
	say("unlinks", unlinkat(AT_FDCWD, "/nowhere", 0));
	say("changes-mode", syscall(SYS_fchmodat, AT_FDCWD, "/nowhere", 0700));
	say("types-at-terminal", ioctl(STDIN_FILENO, TIOCSTI, "x"));
	say("changes-user", syscall(SYS_setresuid, 0, 0, 0));
	return pthread_join(thread, NULL) != 0;
}
