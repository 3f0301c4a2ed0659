/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Frames that answer a request, before anything is recorded. Unlike the recording they are written
 * at once, and wait for the reader: if it takes nothing for too long, the process ends.
 */
#ifndef TLSTAX_ANSWERS_H
#define TLSTAX_ANSWERS_H

#include <stddef.h>

#include "types.h"

enum { ANSWER_PATIENCE_S = 120 };

/* A frame of a type: begin, add what it holds (bytes beyond STREAM_FRAME_MOST are left out), send.
 * Sending fails if the reader is gone. */
void answer_begin(u16 type);
void answer_add(const void *bytes, size_t length);
int answer_send(void);

/* How much more the open frame can hold. */
size_t answer_room(void);

#endif
