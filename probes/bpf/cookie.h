/* SPDX-License-Identifier: GPL-2.0-only */
/* What a probe site means to the programs of ledger.h, packed into its attach cookie. */
#ifndef TLSTAX_COOKIE_H
#define TLSTAX_COOKIE_H

/*
 * Attach cookie: action 0-7, phase (of ACTION_WAIT: state) 8-15, site 16-23, only inside a
 * handshake 24, a handshake function that waits for the network itself 25, one that returns 0 for
 * success 26, of which side of the connection it is 27-28 (0: any, 1: server, 2: client), an exit
 * that counts only where condition 60-63 of the jump holds 29 (an entry: on arm64, at the call
 * itself and not in the function), one that is also crossed without an entry 30, an entry whose
 * exits are not all seen 31; 32-47 how far the stack pointer is below that of the function's first
 * instruction (an exit: below that of its caller), in words, signed; 48-51 the register, by its
 * place in struct pt_regs (arm64: see REGISTER_PLACE), that holds what is read there; 52-59 the
 * role that the thread has from here on (0: the one it had).
 */
#define COOKIE_ACTION(cookie) ((cookie)&0xff)
#define COOKIE_PHASE(cookie) (((cookie) >> 8) & (PHASES - 1))
#define COOKIE_SITE(cookie) (((cookie) >> 16) & (MAX_SITES - 1))
#define COOKIE_IN_HANDSHAKE(cookie) ((cookie) >> 24 & 1)
#define COOKIE_BLOCKING(cookie) ((cookie) >> 25 & 1)
#define COOKIE_ZERO_IS_SUCCESS(cookie) ((cookie) >> 26 & 1)
#define COOKIE_SIDE(cookie) ((cookie) >> 27 & 3)
#define COOKIE_HAS_CONDITION(cookie) ((cookie) >> 29 & 1)
#define COOKIE_AT_CALL(cookie) ((cookie) >> 29 & 1)
#define COOKIE_STRAY(cookie) ((cookie) >> 30 & 1)
#define COOKIE_UNSEEN_EXITS(cookie) ((cookie) >> 31 & 1)
#define COOKIE_STACK_BYTES(cookie) ((s64)(__s16)((cookie) >> 32) * 8)
#define COOKIE_REGISTER(cookie) ((cookie) >> 48 & 15)
#define COOKIE_STATE(cookie) (((cookie) >> 8) & (STATES - 1))
#define COOKIE_ROLE(cookie) ((cookie) >> 52 & 0xff)
#define COOKIE_CONDITION(cookie) ((cookie) >> 60)

#endif
