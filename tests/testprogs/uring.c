// SPDX-License-Identifier: GPL-2.0-only
/*
 * uring - reads its own file by io_uring, in threads of the kernel's.
 *
 * The kernel makes such a thread of the process when the first read is asked for, and does not
 * announce it as it does others. Reads one order a line and answers each with a line; without
 * io_uring it ends with status 2.
 *
 * r N     N reads, one after the other, each by a thread of the kernel's
 */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRIES = 8, BLOCK_BYTES = 4096, UNSUPPORTED = 2 };

static void die(const char *what, int status)
{
	perror(what);
	exit(status);
}

static void *mapped(int ring, size_t bytes, off_t at)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, at);
	if (memory == MAP_FAILED)
		die("mmap", 1);
	return memory;
}

int main(void)
{
	static char block[BLOCK_BYTES];
	struct io_uring_params rings = {0};
	char order;
	int count;
	int ring = (int)syscall(SYS_io_uring_setup, ENTRIES, &rings);
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (ring < 0 || file < 0)
		die("io_uring", UNSUPPORTED);
	size_t asked_bytes = rings.sq_off.array + rings.sq_entries * sizeof(uint32_t);
	size_t done_bytes = rings.cq_off.cqes + rings.cq_entries * sizeof(struct io_uring_cqe);
	uint8_t *asked = mapped(ring, asked_bytes, IORING_OFF_SQ_RING);
	uint8_t *done = mapped(ring, done_bytes, IORING_OFF_CQ_RING);
	struct io_uring_sqe *entries =
		mapped(ring, rings.sq_entries * sizeof(*entries), IORING_OFF_SQES);
	uint32_t *tail = (void *)(asked + rings.sq_off.tail);
	uint32_t *places = (void *)(asked + rings.sq_off.array);
	uint32_t *head = (void *)(done + rings.cq_off.head);

	SSL_free(NULL); /* tlstax measures programs with a TLS library */
	printf("ready\n");
	fflush(stdout);
	while (scanf(" %c %d", &order, &count) == 2 && order == 'r') {
		for (int i = 0; i < count; i++) {
			uint32_t place = *tail % rings.sq_entries;
			entries[place] = (struct io_uring_sqe){.opcode = IORING_OP_READ,
							       .flags = IOSQE_ASYNC,
							       .fd = file,
							       .addr = (uintptr_t)block,
							       .len = BLOCK_BYTES};
			places[place] = place;
			__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
			if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL,
				    0) != 1)
				die("io_uring_enter", 1);
			__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
		}
		printf("done\n");
		fflush(stdout);
	}
	return 0;
}
