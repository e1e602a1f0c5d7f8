/* The control panel of the fake CUDA runtime and the fake NCCL: what tests ask and steer beside the
 * real libraries' functions. Exported, with C linkage, by the fake libcudart.so.13; a program that
 * opens the libraries at run time finds these by dlsym().
 *
 * Threads: any function from any thread. Ownership: texts live as long as the process.
 *
 * Environment (read once, at the first call):
 *   FAKEGPU_DEVICES=2          devices of this process; 0: cudaErrorNoDevice
 *   FAKEGPU_DEVICE_OFFSET=0    device d has the PCI bus id of number offset + d
 *   FAKEGPU_SAME_GPU=1         all devices have one PCI bus id
 *   FAKEGPU_DRIVER=none        no driver: cudaErrorInsufficientDriver everywhere
 *   FAKEGPU_MEMORY_MIB=1024    memory of a device
 *   FAKEGPU_CUDART_VERSION=13000, FAKEGPU_NCCL_VERSION=22809
 *   FAKEGPU_FAULT=...          see faults.h
 *   FAKEGPU_NCCL_DEATH=error   a dead rank becomes ncclRemoteError (default: its peers are stuck)
 *   NCCL_MULTI_RANK_GPU_ENABLE=1  as the real one from 2.30 on: ranks may share a GPU
 *   FAKEGPU_CENSUS=1           at exit, leaks and misuse make the exit code 86
 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAKEGPU_EXIT_CODE 86

/* Handles alive now, by kind. */
typedef struct fakegpu_counts {
  long streams; /* created ones: default streams do not count */
  long events;
  long device_buffers;
  long pinned_buffers;
  long libraries;
  long graphs;
  long communicators;
  long registrations; /* buffers and windows of NCCL */
  long reduction_ops;
  long nccl_buffers; /* of ncclMemAlloc */
  long device_bytes;
} fakegpu_counts;

/* Fills `counts` (it may be NULL); returns the number of handles alive, bytes not counted. */
long fakegpu_census(fakegpu_counts* counts);

/* How often a function of the libraries was called so far ("cudaEventRecord", "ncclSend"); also
 * "launch", "copy", "memset", "collective": work that streams began, and "captured": work that
 * went into a capture. */
long fakegpu_calls(const char* function);
/* The same, by the calling thread only. */
long fakegpu_calls_of_this_thread(const char* function);

/* Calls that wait for device work (synchronize functions, copies of pageable memory, cudaFree):
 * by thread id as of gettid(), by the calling thread (-1), or by all (0). */
long fakegpu_host_waits(long thread_id);

/* Uses that the real libraries leave undefined; each was printed to stderr when it happened. */
long fakegpu_misuses(void);
/* Text of the misuse, 0 the oldest; "" past the end. */
const char* fakegpu_misuse_text(long index);
/* For tests of misuse itself: forgets them. */
void fakegpu_forgive_misuses(void);

/* A communicator that was begun: by which thread, as of gettid(), by which unique id (as a number),
 * and as which rank of how many. */
typedef struct fakegpu_creation {
  long thread;
  unsigned long long id;
  int size;
  int rank;
} fakegpu_creation;

/* The n-th, 0 the oldest; returns 0, or 1 past the end. */
int fakegpu_creation_at(long index, fakegpu_creation* creation);
void fakegpu_forget_creations(void);

/* Replaces the faults of FAKEGPU_FAULT and starts their counting anew. Returns 0, or 1 when the
 * text cannot be read (the faults stay). */
int fakegpu_set_faults(const char* text);

/* Reads or writes device memory at once, past all streams. Returns 0, or 1 outside of buffers. */
int fakegpu_peek(const void* device_pointer, void* host, size_t bytes);
int fakegpu_poke(void* device_pointer, const void* host, size_t bytes);

/* Puts a gate into the stream (a cudaStream_t): work behind it waits for fakegpu_release(), which
 * opens the stream's oldest closed gate. Both return 0, or a CUDA error. */
int fakegpu_hold(void* stream);
int fakegpu_release(void* stream);

#ifdef __cplusplus
}
#endif
