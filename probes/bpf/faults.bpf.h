/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Faults that tests/truth/mutants builds into the programs, one macro each, to prove that closure
 * or a truth test notices them. No macro is defined in the object that ships, and each of these is
 * then nothing.
 */
#ifndef TLSTAX_FAULTS_BPF_H
#define TLSTAX_FAULTS_BPF_H

#ifdef MUTANT_DROP_SWITCHES /* one in so many */
#define FAULT_DROPS_SWITCH() (bpf_get_prandom_u32() % (MUTANT_DROP_SWITCHES) == 0)
#else
#define FAULT_DROPS_SWITCH() false
#endif

#ifdef MUTANT_DROP_WAKEUPS
#define FAULT_DROPS_WAKEUP() true
#else
#define FAULT_DROPS_WAKEUP() false
#endif

#ifdef MUTANT_NO_ACCOUNT /* for threads with an odd id */
#define FAULT_NO_ACCOUNT(task) ((task)->pid & 1)
#else
#define FAULT_NO_ACCOUNT(task) false
#endif

#ifdef MUTANT_NO_EXIT /* of this phase */
#define FAULT_HIDES_END(phase) ((phase) == (MUTANT_NO_EXIT))
#else
#define FAULT_HIDES_END(phase) false
#endif

#if defined(MUTANT_CLOCK_PERCENT) /* of the true time */
#define FAULT_CLOCK(slot, spent) ((spent) * (MUTANT_CLOCK_PERCENT) / 100)
#elif defined(MUTANT_SHIFT_PERCENT) /* of the time: threads with an odd id have it of the others \
				     */
#define FAULT_CLOCK(slot, spent) \
	((spent) *               \
	 ((slot)->tid & 1 ? 100 + (MUTANT_SHIFT_PERCENT) : 100 - (MUTANT_SHIFT_PERCENT)) / 100)
#else
#define FAULT_CLOCK(slot, spent) (spent)
#endif

#ifdef MUTANT_STEAL_PERCENT /* of the time on a CPU */
#define FAULT_STEALS(spent) ((spent) * (MUTANT_STEAL_PERCENT) / 100)
#else
#define FAULT_STEALS(spent) 0
#endif

#ifdef MUTANT_NO_SAMPLES_ON_CPU
#define FAULT_DROPS_SAMPLE(cpu) ((cpu) == (MUTANT_NO_SAMPLES_ON_CPU))
#else
#define FAULT_DROPS_SAMPLE(cpu) false
#endif

#ifdef MUTANT_UNCOUNTED /* every second end of this phase */
#define FAULT_COUNTS_NOT(phase) ((phase) == (MUTANT_UNCOUNTED) && bpf_get_prandom_u32() & 1)
#else
#define FAULT_COUNTS_NOT(phase) false
#endif

#ifdef MUTANT_DROP_HANDSHAKES /* one in so many */
#define FAULT_DROPS_HANDSHAKE() (bpf_get_prandom_u32() % (MUTANT_DROP_HANDSHAKES) == 0)
#else
#define FAULT_DROPS_HANDSHAKE() false
#endif

#ifdef MUTANT_KEEP_CONNECTION
#define FAULT_KEEPS_CONNECTION() true
#else
#define FAULT_KEEPS_CONNECTION() false
#endif

#ifdef MUTANT_LOST_SECOND /* number of seconds before it, since the kernel's counts were read \
			     first */
static u64 first_reading_ns;
#define FAULT_SEES_READING(now) (first_reading_ns = first_reading_ns ? first_reading_ns : (now))
#define FAULT_LOSES_TIME(now) \
	(first_reading_ns && ((now)-first_reading_ns) / 1000000000 == (MUTANT_LOST_SECOND))
#else
#define FAULT_SEES_READING(now)
#define FAULT_LOSES_TIME(now) false
#endif

#endif
