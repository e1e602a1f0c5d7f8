// The shim: a library that is loaded before all others (LD_PRELOAD) and makes the machine worse for
// this process on demand: the n-th call of a kind fails, or is its last, the wall clock jumps.
// Without the library loaded these symbols are null.
#pragma once

extern "C" {
// The nth call of `name` from now on fails (the first is 1), once.
__attribute__((weak)) void chaos_shim_fail(const char* name, int nth);
// Whether it has; then nothing fails any more.
__attribute__((weak)) int chaos_shim_fired();
// The process is killed at the nth call of `name` from now on, right after `before` was called.
__attribute__((weak)) void chaos_shim_die(const char* name, int nth, void (*before)());
// What the wall clock is ahead of the true one.
__attribute__((weak)) void chaos_shim_set_clock(long long ahead_ns);
}
