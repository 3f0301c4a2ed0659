// SPDX-License-Identifier: GPL-2.0-only
/*
 * Preloaded into a server: its locks are held for longer than they should be, or PAM is slow.
 *
 *   LONG_LOCK_US=N    whoever takes a lock of OpenSSL for writing sleeps N us with it
 *   LONG_PAM_US=N     PAM takes N us to refuse everybody
 *   LONG_ARENA_US=N   a thread locks the arenas of malloc one after another, and rests N us
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNKS = 40000, CHUNK_BYTES = 12000, PAM_AUTH_ERR = 7 };

static void *chunks[CHUNKS];
static unsigned lock_us, pam_us, arena_us;
static int (*next_lock)(void *lock);

int CRYPTO_THREAD_write_lock(void *lock)
{
	int taken;

	if (!next_lock)
		next_lock = (int (*)(void *))dlsym(RTLD_NEXT, "CRYPTO_THREAD_write_lock");
	taken = next_lock(lock);
	if (lock_us)
		usleep(lock_us);
	return taken;
}

int pam_authenticate(void *handle, int flags)
{
	(void)handle;
	(void)flags;
	usleep(pam_us);
	return PAM_AUTH_ERR;
}

/* Every second chunk is free, so that trimming visits each of them, and keeps the lock. */
static void *trim(void *unused)
{
	for (size_t at = 0; at < CHUNKS; at++)
		chunks[at] = malloc(CHUNK_BYTES);
	for (size_t at = 0; at < CHUNKS; at += 2)
		free(chunks[at]);
	for (;;) {
		malloc_trim(0);
		usleep(arena_us);
	}
	return unused;
}

static unsigned number(const char *name)
{
	const char *text = getenv(name);

	return text ? (unsigned)strtoul(text, NULL, 10) : 0;
}

/* Whether this is a server, and not the run of it that makes a data directory. */
static int serves(void)
{
	char text[4096];
	ssize_t length;
	FILE *file;

	if (strcmp(program_invocation_short_name, "mariadbd"))
		return 0;
	file = fopen("/proc/self/cmdline", "r");
	if (!file)
		return 0;
	length = (ssize_t)fread(text, 1, sizeof(text), file);
	fclose(file);
	return length > 0 && !memmem(text, (size_t)length, "--bootstrap", strlen("--bootstrap"));
}

__attribute__((constructor)) static void begin(void)
{
	pthread_t thread;

	if (!serves())
		return;
	lock_us = number("LONG_LOCK_US");
	pam_us = number("LONG_PAM_US");
	arena_us = number("LONG_ARENA_US");
	if (arena_us && !pthread_create(&thread, NULL, trim, NULL))
		pthread_detach(thread);
}
