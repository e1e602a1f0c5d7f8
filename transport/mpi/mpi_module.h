/* What a module of an MPI flavour (libkolo-mpi-mpich.so) gives to libkolo.so, which opens it at run
 * time: plain C types only, so that kolo needs no MPI to be built or loaded, and the flavours'
 * different handles stay inside their modules.
 *
 * Threads: any, one call at a time per communicator; MPI itself runs with MPI_THREAD_MULTIPLE,
 * because the trainer may use it at the same time. Nothing here blocks but start(), duplicate() and
 * release(). MPI is one per process, and so is what start() does.
 *
 * Errors: every function that can fail returns 0 or an MPI error code, whose words are told by
 * describe(); MPI's own error handler, which would end the process, is never used. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KOLO_MPI_MODULE_ABI 1
#define KOLO_MPI_MODULE_SYMBOL "kolo_mpi_module"

/* Room for the flavour's handles: an int in MPICH, a pointer elsewhere. */
typedef struct kolo_mpi_handle {
  uint64_t bits;
} kolo_mpi_handle;

enum kolo_mpi_start {
  KOLO_MPI_READY = 0,
  KOLO_MPI_TOO_LOW = 1,   /* the trainer initialised MPI below MPI_THREAD_MULTIPLE */
  KOLO_MPI_FINALIZED = 2, /* MPI has come and gone in this process */
  KOLO_MPI_FAILED = 3     /* MPI_Init_thread refused; see `error` */
};

typedef struct kolo_mpi_world {
  int rank;
  int size;
  int largest_tag;
  int thread_level; /* as MPI names it: 0 single, 1 funneled, 2 serialized, 3 multiple */
  int error;        /* MPI's code behind KOLO_MPI_FAILED */
} kolo_mpi_world;

typedef struct kolo_mpi_module_table {
  uint32_t abi; /* KOLO_MPI_MODULE_ABI; first for ever */
  uint32_t struct_bytes;
  const char* flavour; /* "MPICH" */

  /* Initialises MPI if nobody has; one of kolo_mpi_start. Who initialises finalises: then, and only
   * then, MPI_Finalize runs at the end of the process, unless somebody else was faster. It waits
   * for all ranks, so it does not run while a communicator is not released: after a loss. */
  int (*start)(kolo_mpi_world* world);
  /* The version of the library, for people. */
  void (*version)(char* text, int text_bytes);
  void (*describe)(int error, char* text, int text_bytes);

  /* A communicator over the same ranks as MPI_COMM_WORLD, for kolo alone. All ranks call it. */
  int (*duplicate)(kolo_mpi_handle* communicator);
  /* Gives it back. All ranks call it, with nothing under way. Harmless after MPI_Finalize. */
  int (*release)(kolo_mpi_handle communicator);

  /* At most INT_MAX bytes each. A receive has room for `bytes`; test() tells how many came. */
  int (*isend)(kolo_mpi_handle communicator, const void* data, int bytes, int peer, int tag,
               kolo_mpi_handle* request);
  int (*irecv)(kolo_mpi_handle communicator, void* data, int bytes, int peer, int tag,
               kolo_mpi_handle* request);
  /* Moves what can be moved. *done: 1 with the request given back; -1 if it ended by cancel(). An
   * error also gives it back. `bytes` may be NULL. */
  int (*test)(kolo_mpi_handle* request, int* done, int* bytes);
  /* Asks for an end; test() until it is there. */
  int (*cancel)(kolo_mpi_handle* request);
  /* Whether MPI may still be called: not after somebody's MPI_Finalize. */
  int (*usable)(void);
} kolo_mpi_module_table;

/* The one symbol of a module. */
typedef const kolo_mpi_module_table* (*kolo_mpi_module_function)(void);

#ifdef __cplusplus
}
#endif
