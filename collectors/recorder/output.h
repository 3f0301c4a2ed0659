/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The stream's way out: frames go into a queue of fixed size, a thread writes them.
 *
 * The recording never waits for the reader. What does not fit is not begun: the caller asks for
 * room, leaves what it holds in the kernel's maps, and tries again with the next window.
 */
#ifndef TLSTAX_OUTPUT_H
#define TLSTAX_OUTPUT_H

#include "types.h"

int output_open(int fd, size_t queue_bytes);

/* What is put from now on is of this target. */
void output_turn(u16 target);

/* Room for a record of `bytes` in a frame of this type, NULL: the queue is full. Nothing is sent
 * before output_commit(). */
void *output_put(u16 type, size_t bytes);

/* As output_put, in a frame of its own that holds nothing else. */
void *output_put_alone(u16 type, size_t bytes);

/* Send what was put since the last commit, or forget it. */
void output_commit(void);
void output_rollback(void);

/* Whether so many bytes surely fit. */
bool output_has_room(size_t bytes);

/* The error with which the reader was lost, 0: it was not. */
int output_error(void);

/* How long the writer has been waiting for the reader. */
u64 output_waiting_ns(void);

/* Wait until everything is written, no longer than `patience_ns` without progress; bytes left. */
u64 output_finish(u64 patience_ns);

#endif
