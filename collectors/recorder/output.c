// SPDX-License-Identifier: GPL-2.0-only
#include "output.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "failure.h"
#include "privileges.h"
#include "stream.h"

enum { WRITE_MOST = 1 << 14, STEP_NS = 10000000, REFUSED_MS = 100 };

/* A ring that is mapped twice in a row, so that every part of it is contiguous. */
static struct {
	u8 *memory;
	size_t size;
	int fd;
	/* Positions only grow. Frames up to `committed` may be written, `end` is where more go. */
	u64 written, committed, end;
	u64 frame; /* of the open frame; only if is_open */
	bool is_open, is_alone, is_writing;
	u16 type, target;
	u32 sequences[STREAM_TARGETS_MOST], committed_sequences[STREAM_TARGETS_MOST];
	int error;
	u64 progress_ns; /* when the present write began */
	pthread_mutex_t lock;
	pthread_cond_t more;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

static void *write_frames(void *unused)
{
	bool is_refused = false; /* the caller's descriptor does not block, and has no room */

	(void)unused;
	privileges_give_up();
	pthread_mutex_lock(&queue.lock);
	for (;;) {
		while (queue.written == queue.committed || queue.error)
			pthread_cond_wait(&queue.more, &queue.lock);
		size_t length = queue.committed - queue.written;
		u8 *from = queue.memory + queue.written % queue.size;
		if (length > WRITE_MOST)
			length = WRITE_MOST;
		if (!is_refused)
			queue.progress_ns = monotonic_ns();
		queue.is_writing = true;
		pthread_mutex_unlock(&queue.lock);
		ssize_t done = write(queue.fd, from, length);
		int error = errno;
		is_refused = done < 0 && error == EAGAIN;
		if (is_refused)
			poll(&(struct pollfd){.fd = queue.fd, .events = POLLOUT}, 1, REFUSED_MS);
		pthread_mutex_lock(&queue.lock);
		queue.is_writing = false;
		if (done > 0)
			queue.written += (u64)done;
		else if (!is_refused && (done == 0 || error != EINTR))
			queue.error = done ? error : EIO;
	}
	return NULL;
}

static int map_twice(size_t bytes)
{
	int fd = memfd_create("tlstax-queue", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		return fail(EXIT_CODE_HOST, "cannot make the output queue: %s", strerror(errno));
	u8 *memory = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int half = 0; half < 2 && memory != MAP_FAILED; half++)
		if (mmap(memory + (size_t)half * bytes, bytes, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			memory = MAP_FAILED;
	close(fd);
	if (memory == MAP_FAILED)
		return fail(EXIT_CODE_HOST, "cannot map the output queue: %s", strerror(errno));
	queue.memory = memory;
	queue.size = bytes;
	return 0;
}

int output_open(int fd, size_t queue_bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	pthread_t writer;

	queue.fd = fd;
	if (map_twice((queue_bytes + page - 1) / page * page))
		return -1;
	int error = pthread_create(&writer, NULL, write_frames, NULL);
	if (error)
		return fail(EXIT_CODE_HOST, "cannot start the writer: %s", strerror(error));
	pthread_detach(writer);
	return 0;
}

static size_t room(void)
{
	pthread_mutex_lock(&queue.lock);
	/* Begin at the start again while nothing is queued: fewer pages are touched. */
	if (queue.written == queue.end && !queue.is_open && !queue.is_writing)
		queue.written = queue.committed = queue.end = 0;
	size_t left = queue.size - (size_t)(queue.end - queue.written);
	pthread_mutex_unlock(&queue.lock);
	return left;
}

static void close_frame(void)
{
	if (!queue.is_open)
		return;
	queue.is_open = false;
	struct stream_head *head = (void *)(queue.memory + queue.frame % queue.size);
	u64 used = queue.end - queue.frame - sizeof(*head);
	while (queue.end % 8)
		queue.memory[queue.end++ % queue.size] = 0;
	*head = (struct stream_head){
		.magic = STREAM_MAGIC,
		.type = (u8)queue.type,
		.target = (u8)queue.target,
		.version = STREAM_VERSION,
		.length_bytes = (u32)(queue.end - queue.frame - sizeof(*head)),
		.sequence = queue.sequences[queue.target]++,
		.used_bytes = (u32)used,
	};
	head->crc32 = (u32)crc32(0, (const u8 *)head, (u32)(sizeof(*head) + head->length_bytes));
}

void output_turn(u16 target)
{
	close_frame();
	queue.target = target;
}

bool output_has_room(size_t bytes)
{
	/* A frame may be closed before the record, and each has a head and padding. */
	return room() >= bytes + 2 * (sizeof(struct stream_head) + 8);
}

void *output_put(u16 type, size_t bytes)
{
	u64 held = queue.end - queue.frame - sizeof(struct stream_head);

	if (queue.is_open &&
	    (queue.is_alone || queue.type != type || held + bytes > STREAM_FRAME_MOST))
		close_frame();
	if (bytes > STREAM_FRAME_MOST || !output_has_room(bytes))
		return NULL;
	if (!queue.is_open) {
		queue.is_open = true;
		queue.is_alone = false;
		queue.type = type;
		queue.frame = queue.end;
		queue.end += sizeof(struct stream_head);
	}
	u8 *record = queue.memory + queue.end % queue.size;
	queue.end += bytes;
	memset(record, 0, bytes);
	return record;
}

void *output_put_alone(u16 type, size_t bytes)
{
	close_frame();
	void *record = output_put(type, bytes);
	queue.is_alone = true;
	return record;
}

void output_commit(void)
{
	close_frame();
	pthread_mutex_lock(&queue.lock);
	bool is_more = queue.committed != queue.end;
	queue.committed = queue.end;
	memcpy(queue.committed_sequences, queue.sequences, sizeof(queue.sequences));
	pthread_mutex_unlock(&queue.lock);
	if (is_more) /* without the lock, which the writer would wait for */
		pthread_cond_signal(&queue.more);
}

void output_rollback(void)
{
	pthread_mutex_lock(&queue.lock);
	queue.is_open = false;
	queue.end = queue.committed;
	memcpy(queue.sequences, queue.committed_sequences, sizeof(queue.sequences));
	pthread_mutex_unlock(&queue.lock);
}

int output_error(void)
{
	pthread_mutex_lock(&queue.lock);
	int error = queue.error;
	pthread_mutex_unlock(&queue.lock);
	return error;
}

u64 output_waiting_ns(void)
{
	pthread_mutex_lock(&queue.lock);
	u64 since = queue.is_writing ? monotonic_ns() - queue.progress_ns : 0;
	pthread_mutex_unlock(&queue.lock);
	return since;
}

u64 output_finish(u64 patience_ns)
{
	u64 seen = 0, since = monotonic_ns();

	for (;;) {
		pthread_mutex_lock(&queue.lock);
		u64 left = queue.committed - queue.written, written = queue.written;
		bool is_over = !left || queue.error;
		pthread_mutex_unlock(&queue.lock);
		if (written != seen) {
			seen = written;
			since = monotonic_ns();
		}
		if (is_over || monotonic_ns() - since > patience_ns)
			return left;
		nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
	}
}
