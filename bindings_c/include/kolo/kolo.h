/* kolo: data-parallel communication for programs written in C or C++.
 *
 * A job is a number of ranks, usually one process each, started by kolorun. Every rank makes one
 * context and hands it named tensors, in whatever order they appear; a background coordinator
 * agrees with the other ranks which tensors are ready everywhere, fuses the small ones, and
 * communicates them.
 *
 *     kolo_context* context = NULL;
 *     if (kolo_init(NULL, &context) != KOLO_OK) { puts(kolo_last_error()); return 1; }
 *     kolo_allreduce(context, gradient, gradient, n, KOLO_FLOAT32, KOLO_AVG, NULL, NULL);
 *     kolo_shutdown(context);
 *
 * Rules that hold for every function
 *   Threads     Any function may be called from any thread at any time, with two exceptions: one
 *               kolo_config, and one kolo_request variable, belong to one thread at a time.
 *   Blocking    What may block is said at the function. Everything else returns at once.
 *   Matching    All ranks of a process set (at first the whole job) make the same operations,
 *               each with the same kind, data type, shape, operator, root and scales. They pair by
 *               name; those without a name pair by their sequence number in the set, so they must
 *               be submitted in one order on all its ranks.
 *   Buffers     The caller owns every buffer. kolo reads inputs and writes outputs from the call
 *               until the operation is complete, and never after that; until then the caller
 *               must neither write an input nor touch an output. Any alignment will do.
 *   Names       Copied during the call. At most 4096 bytes, not beginning with '#'.
 *   Counts      In elements of the data type, never bytes. 0 is allowed everywhere, and so is more
 *               than 2^31.
 *   Errors      A call that fails returns a status other than KOLO_OK and leaves a text for
 *               kolo_last_error(): what, which tensor, which ranks, and the cure. When ranks
 *               disagree, every one of them gets the error and the buffers are as before; the job
 *               goes on.
 *   Refusals    A collective or group that is refused with KOLO_INVALID_ARGUMENT leaves its buffers
 *               alone, but the other ranks are told: it counts as this rank's call of that name (or
 *               number), and they get KOLO_MISMATCH for theirs. So call again only if they do too.
 *               Nothing at all happens for a null context, a wrong struct_size, a name that is not
 *               allowed, or a refused call of any other kind.
 *   GPUs        A buffer may be memory of a CUDA device; see "GPUs" below.
 *   Callbacks   Run on kolo's own thread. They may submit work but not wait for it, and must not
 *               throw.
 *   fork()      A context does not survive into the child: its connections are closed there, and
 *               every call with it fails.
 *   Exit        The library never ends the process and never throws. A process that ends without
 *               kolo_shutdown() is a lost peer to the others.
 */
#ifndef KOLO_KOLO_H_
#define KOLO_KOLO_H_

#include <stddef.h>
#include <stdint.h>

#define KOLO_VERSION_MAJOR 0
#define KOLO_VERSION_MINOR 1
#define KOLO_VERSION_PATCH 0
/* Changes when programs built with an older header cannot run with the library. */
#define KOLO_ABI_VERSION 1

#if defined(__GNUC__)
#define KOLO_API __attribute__((visibility("default")))
#else
#define KOLO_API
#endif

/* Enums hold any 32-bit number in both languages, so that an unknown one can be refused. */
#ifdef __cplusplus
#define KOLO_ENUM_BASE : int32_t
#else
#define KOLO_ENUM_BASE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Words -------------------------------------------------------------------------------- */

/* Numbers are never changed; new ones may be added. */
typedef enum kolo_status KOLO_ENUM_BASE {
  KOLO_OK = 0,
  KOLO_INVALID_ARGUMENT = 1, /* the call itself is wrong; see Refusals above */
  KOLO_MISMATCH = 2,         /* ranks disagree about an operation; all of them get this */
  KOLO_DUPLICATE_NAME = 3,   /* an operation of that name is still running on this rank */
  KOLO_NOT_INITIALIZED = 4,  /* the context is shut down, or belongs to a parent process */
  KOLO_WOULD_DEADLOCK = 5,   /* a wait inside a callback, or inside an open group */
  KOLO_ABORTED = 6,          /* ended by kolo_abort() or kolo_shutdown(), here or elsewhere */
  KOLO_PEER_LOST = 7,        /* a rank of the process set died, froze or was cut off */
  KOLO_TIMED_OUT = 8,        /* the time that an option allows has passed */
  KOLO_RESOURCE = 9,         /* out of memory, descriptors or the like */
  KOLO_INTERNAL = 10,        /* a defect of kolo; the context is unusable */
  KOLO_UNSUPPORTED = 11,     /* this build, version or machine cannot do it */
  KOLO_IN_PROGRESS = 12,     /* a wait's own time has passed; the request is alive */
  KOLO_CUDA_ERROR = 13,      /* a call of the CUDA runtime failed; the text says which, and how */
  KOLO_NCCL_ERROR = 14       /* a call of NCCL failed, or an operation of it; the text says which */
} kolo_status;

/* NCCL's numbers for NCCL's types, then kolo's own. */
typedef enum kolo_dtype KOLO_ENUM_BASE {
  KOLO_INT8 = 0,
  KOLO_UINT8 = 1,
  KOLO_INT32 = 2,
  KOLO_UINT32 = 3,
  KOLO_INT64 = 4,
  KOLO_UINT64 = 5,
  KOLO_FLOAT16 = 6, /* IEEE 754 binary16; sums are kept in 32 bits on the way */
  KOLO_FLOAT32 = 7,
  KOLO_FLOAT64 = 8,
  KOLO_BFLOAT16 = 9,     /* the upper half of a float32; sums are kept in 32 bits on the way */
  KOLO_FLOAT8_E4M3 = 10, /* 8-bit floats are moved (allgather, broadcast), never reduced */
  KOLO_FLOAT8_E5M2 = 11,
  KOLO_BOOL = 12, /* one byte; 0 is false, anything else true; results are 0 or 1 */
  KOLO_INT16 = 13,
  KOLO_UINT16 = 14
} kolo_dtype;

/* NCCL's numbers. Integers wrap around. On bool, sum and max mean "or", prod and min mean "and",
 * and avg is KOLO_INVALID_ARGUMENT. */
typedef enum kolo_op KOLO_ENUM_BASE {
  KOLO_SUM = 0,
  KOLO_PROD = 1,
  KOLO_MAX = 2,
  KOLO_MIN = 3,
  KOLO_AVG = 4, /* the sum divided by the number of ranks; integers round towards zero */
  /* Adaptive summation of f16, bf16, f32 and f64 (arXiv 2006.02924): two gradients that agree are
   * averaged, two that are orthogonal are added. Allreduce only; never fused. Products of elements
   * are summed in f64: beyond 1e150 or below 1e-150 an f64's square is infinite, or lost. */
  KOLO_ADASUM = 16
} kolo_op;

typedef enum kolo_log_level KOLO_ENUM_BASE {
  KOLO_LOG_ERROR = 0,
  KOLO_LOG_WARNING = 1,
  KOLO_LOG_INFO = 2,
  KOLO_LOG_DEBUG = 3
} kolo_log_level;

/* This rank's membership of a job. Made by kolo_init(), ended by kolo_shutdown(); the handle itself
 * stays valid for ever, so that a late call gets KOLO_NOT_INITIALIZED and no worse. */
typedef struct kolo_context kolo_context;

/* A set of options for kolo_init(). Owned by the caller. */
typedef struct kolo_config kolo_config;

/* Names an operation in progress, or a persistent one, of one context. A plain number: copying it
 * copies the name, not the operation. */
typedef uint64_t kolo_request;
#define KOLO_REQUEST_NULL ((kolo_request)0)

/* As a wait's timeout_ms: no limit. */
#define KOLO_FOREVER ((int64_t)-1)

/* Called once, on kolo's own thread and with no lock held, when an operation has ended. `text` is
 * the error's text ("" for KOLO_OK), valid during the call. Inside, kolo_wait() and the like return
 * KOLO_WOULD_DEADLOCK unless the request is complete already. Return soon: the same thread says
 * that this rank is alive, and after peer_timeout_ms without a word the others count it as lost. */
typedef void (*kolo_callback)(kolo_status status, const char* text, void* user);

/* Called for each log line, from any thread, also during kolo_init(); must not call kolo. `text` is
 * valid during the call and has no newline at its end. */
typedef void (*kolo_log_callback)(kolo_log_level level, const char* text, void* user);

/* What an operation tells beside its output; see kolo_options.result. */
typedef struct kolo_result {
  /* Ranks whose data it holds: those of the process set that had not joined. */
  int32_t participants;
  int32_t reserved;
  /* NaNs and infinities in this rank's output, if that is f16, bf16, f32 or f64; else 0. -1: nobody
   * has counted, as it is on a device that runs none of kolo's kernels; see GPUs below. */
  int64_t nonfinite;
} kolo_result;

/* What may be said about one operation. Begin with KOLO_OPTIONS_INIT, then set what differs:
 *     kolo_options options = KOLO_OPTIONS_INIT;
 *     options.name = "layer1.weight";
 */
typedef struct kolo_options {
  size_t struct_size; /* sizeof(kolo_options) */
  const char* name;   /* NULL or "": the next sequence number of the process set */
  /* [ndim] dimensions, whose product must equal count; only compared between ranks. NULL: one
   * dimension of count. Not NULL with ndim 0: a scalar. At most 32. */
  const int64_t* shape;
  int32_t ndim;
  int32_t pset; /* process set, of kolo_pset_create(); 0 is the world */
  /* Allreduce of floats: inputs are multiplied by prescale, results by postscale; 1: none. 0 is an
   * error, to catch a zeroed struct. */
  double prescale;
  double postscale;
  /* From submission: not started by then, it fails with KOLO_TIMED_OUT on all ranks; 0: never. */
  int64_t timeout_ms;
  kolo_callback callback; /* NULL: none */
  void* user;             /* handed to callback */
  int32_t persistent;     /* 1: only prepare it, see kolo_start(); needs a request. Else 0 */
  /* 1: the library allocates the output, whose size the ranks need not know, in the same kind of
   * memory as the input's, see kolo_request_output(). Allgather and alltoall, with a request that
   * is not persistent, outside of groups. Else 0 */
  int32_t allocate;
  /* [size of the process set] elements by rank, see the collectives; NULL: the same for all. */
  const size_t* send_counts;
  const size_t* recv_counts;
  /* Written before the operation is complete, if it is KOLO_OK, and therefore after a call that
   * returns sooner: keep it until then. NULL: none. */
  kolo_result* result;
  /* Where the buffers lie: the number of a CUDA device, KOLO_DEVICE_HOST, or KOLO_DEVICE_AUTO: CUDA
   * is asked about the pointers. See GPUs below. */
  int32_t device;
  int32_t reserved; /* 0 */
  /* Of buffers on a device: the cudaStream_t on which the work that makes the input is queued;
   * NULL: the default stream. It is of that device, and not being captured. */
  void* stream;
} kolo_options;

#define KOLO_DEVICE_AUTO (-1)
#define KOLO_DEVICE_HOST (-2)

#define KOLO_OPTIONS_INIT                                                                    \
  {                                                                                          \
    sizeof(kolo_options), NULL, NULL, 0, 0, 1.0, 1.0, 0, NULL, NULL, 0, 0, NULL, NULL, NULL, \
        KOLO_DEVICE_AUTO, 0, NULL                                                            \
  }

/* ---- Library ------------------------------------------------------------------------------ */

/* The library's version, as "0.1.0". Never NULL; valid for ever. */
KOLO_API const char* kolo_version(void);

/* What this library was built with, and what it finds at run time, as a JSON object: "roads" is a
 * list; "cuda" and "nccl" are objects with "found", then "path" and "version", or "why" with the
 * cure. Asks nothing of a device. The first call loads NCCL. Never NULL; valid for ever. */
KOLO_API const char* kolo_build_info(void);

/* A few words for a status, e.g. "peer lost". Never NULL; valid for ever; any number is allowed. */
KOLO_API const char* kolo_status_string(kolo_status status);

/* The text of the calling thread's last failed call, which begins with the status's words, e.g.
 * "peer lost: "; "" if there was none. Never NULL; valid until this thread's next call that fails.
 * Calls that succeed leave it alone. */
KOLO_API const char* kolo_last_error(void);

/* ---- Configuration ------------------------------------------------------------------------ */

/* Makes an empty configuration in *config, to be freed with kolo_config_destroy(). Options that it
 * does not set come from the environment (KOLO_<KEY>), else from their defaults.
 * Errors: INVALID_ARGUMENT (null), RESOURCE. */
KOLO_API kolo_status kolo_config_create(kolo_config** config);

/* Sets option `key`, e.g. "fusion_threshold_bytes", to the text `value`, and checks it. Keys are
 * the KOLO_* variables in lower case. Both strings are copied. It wins over the environment.
 * Errors: INVALID_ARGUMENT for an unknown key or a value out of its bounds (nothing changes). */
KOLO_API kolo_status kolo_config_set(kolo_config* config, const char* key, const char* value);

/* The value in force for `key`: as set, else from the environment, else the default. *value is
 * valid until this thread's next kolo_config_get(). A NULL config asks without any setting.
 * Errors: INVALID_ARGUMENT for an unknown key or a malformed environment. */
KOLO_API kolo_status kolo_config_get(const kolo_config* config, const char* key,
                                     const char** value);

/* Contexts made with `config` from now on hand their log lines to `callback` instead of the
 * standard error stream; NULL restores that. `user` must outlive those contexts.
 * Errors: INVALID_ARGUMENT (null config). */
KOLO_API kolo_status kolo_set_log_callback(kolo_config* config, kolo_log_callback callback,
                                           void* user);

/* Frees a configuration; contexts made with it are not affected. NULL is allowed. */
KOLO_API kolo_status kolo_config_destroy(kolo_config* config);

/* ---- Context ------------------------------------------------------------------------------ */

/* Joins the job: meets all other ranks, and makes the connections. Rank, size and meeting point
 * come from `config`, else from kolorun's or torchrun's environment; with neither, the job has one
 * rank.
 * `config` may be NULL, and is not needed afterwards. On error *context is NULL.
 * A process may hold several contexts if they are different ranks or jobs (ranks as threads).
 * Blocks until all ranks are there, at most start_timeout_ms.
 * Errors: INVALID_ARGUMENT (malformed options or environment, an incomplete launcher's environment,
 * a context that is this rank of this job already lives in the process), TIMED_OUT (names
 * the missing ranks), PEER_LOST, MISMATCH, RESOURCE, UNSUPPORTED (another ABI). */
static inline kolo_status kolo_init(const kolo_config* config, kolo_context** context);

/* What kolo_init() calls, with the header's KOLO_ABI_VERSION. */
KOLO_API kolo_status kolo_init_abi(const kolo_config* config, kolo_context** context,
                                   int32_t abi_version);

/* Leaves the job. Operations that have not started end with KOLO_ABORTED, on all ranks; those that
 * have started are finished first. Calls of other threads return. Whatever the status, the
 * context is over: later calls return KOLO_NOT_INITIALIZED, also a second shutdown.
 * A following kolo_init() joins again, if all ranks do.
 * After a refused call (see Refusals) it waits up to half a second for ranks that have not made
 * theirs, so that they get MISMATCH and not ABORTED.
 * Blocks at most shutdown_timeout_ms and some; lost ranks are not waited for, but a device that
 * still uses a caller's buffers is. What has not ended by then, as a rank that takes part in it
 * does not answer, is cut off: it ends with KOLO_ABORTED here, and so does this call. A call of
 * CUDA or NCCL that does not come back is left behind, with its thread and what it holds of
 * devices. Errors: NOT_INITIALIZED, WOULD_DEADLOCK (from a callback; nothing happened), what became
 * of the world before, as PEER_LOST or ABORTED, or ABORTED if operations were cut off: how many,
 * and the name of one. A peer that merely left first has broken nothing. */
KOLO_API kolo_status kolo_shutdown(kolo_context* context);

/* Ends every operation of the context, pending and later, on all ranks, with KOLO_ABORTED. The text
 * that they get holds `reason` (may be NULL) and this rank. Never waits for the other ranks, whose
 * waits return as they hear of it. kolo_shutdown() is still due.
 * Errors: NOT_INITIALIZED, or what ended the whole context before (the loss of a rank does not). */
KOLO_API kolo_status kolo_abort(kolo_context* context, const char* reason);

/* KOLO_OK while the world works; otherwise the status that ended it, e.g. KOLO_PEER_LOST. Process
 * sets without a lost rank may live on. */
KOLO_API kolo_status kolo_health(kolo_context* context);

/* Puts a JSON object into *json: ranks, hosts, roads, options in force, how many strangers were
 * refused at this rank's ports. Valid until this thread's next kolo_info().
 * Errors: INVALID_ARGUMENT (null), NOT_INITIALIZED. */
KOLO_API kolo_status kolo_info(kolo_context* context, const char** json);

/* This rank's number, the number of ranks, and the same among the ranks of this host. -1 if the
 * context is NULL or shut down. */
KOLO_API int32_t kolo_rank(kolo_context* context);
KOLO_API int32_t kolo_size(kolo_context* context);
KOLO_API int32_t kolo_local_rank(kolo_context* context);
KOLO_API int32_t kolo_local_size(kolo_context* context);

/* ---- Process sets -------------------------------------------------------------------------
 *
 * A process set is some of the job's ranks. An operation with options.pset takes place among them
 * alone: "all ranks" in its contract are the set's, in ascending order, and "size" their number. A
 * rank keeps its number: what kolo_rank() says is its name everywhere, also as a broadcast's root.
 * Sets may overlap, and operations of different sets may be submitted in any order. When a rank
 * leaves the job (kolo_shutdown), the sets that it is in end with it, and so do those that it
 * orders for: rank 0 those of several hosts, the lowest rank of a host those of its ranks.
 *
 * The same sets, the world always among them, end when a rank is lost: it died, froze or was cut
 * off. What runs on them ends with KOLO_PEER_LOST, whose text names rank, host and reason, and
 * every later call returns that status at once; on the other sets nothing changes. Sets cannot be
 * made any more, and one that was being made or ended just then ends too. Where ranks are connected
 * by MPI, a set that shares a stream with an operation that was cut off may end with it. A rank
 * that the others have given up while it was frozen hears that on all its calls, should it go on.
 */

/* Makes a set of the `count` ranks in `ranks` (any order, none twice). Every rank of the job calls
 * it with the same ranks, also those outside; calls pair by options.name, without one by their own
 * sequence number. *pset is the new set's number, the same everywhere and never used again; it is
 * written before the operation is complete. A NULL request blocks.
 * Errors: INVALID_ARGUMENT (no ranks, one that does not exist or comes twice, an option other than
 * name, timeout_ms and callback, an open group), MISMATCH (other ranks elsewhere), and as for the
 * collectives. */
KOLO_API kolo_status kolo_pset_create(kolo_context* context, const int32_t* ranks, size_t count,
                                      int32_t* pset, const kolo_options* options,
                                      kolo_request* request);

/* Ends a set. Every rank of the job calls it. Operations of the set that are ordered by then are
 * finished; those that some of its ranks have not submitted end with KOLO_ABORTED. From the call on
 * this rank can submit nothing more to it.
 * Errors: INVALID_ARGUMENT (the world, or no set; an option other than timeout_ms and callback),
 * and as for the collectives of the world: with PEER_LOST the set ends too, on all its ranks. */
KOLO_API kolo_status kolo_pset_destroy(kolo_context* context, int32_t pset,
                                       const kolo_options* options, kolo_request* request);

/* Puts the number of the set's ranks into *count, and the first `capacity` of them into `ranks`
 * (may be NULL if capacity is 0), ascending. Errors: INVALID_ARGUMENT (null, or no set). */
KOLO_API kolo_status kolo_pset_ranks(kolo_context* context, int32_t pset, int32_t* ranks,
                                     size_t capacity, size_t* count);

/* ---- Collectives --------------------------------------------------------------------------
 *
 * `options` NULL means KOLO_OPTIONS_INIT.
 *
 * `request` says how the call behaves:
 *   NULL          it blocks until the operation is complete, and returns its status; inside a group
 *                 that this thread has open, it joins the group and returns.
 *   not NULL      it returns at once, with *request to be completed by kolo_wait(), kolo_wait_all()
 *                 or kolo_test(). On error *request is KOLO_REQUEST_NULL.
 *
 * Errors of the call: INVALID_ARGUMENT, DUPLICATE_NAME (until the earlier operation of that name
 * is complete), NOT_INITIALIZED, RESOURCE, WOULD_DEADLOCK (a blocking call in a callback), or what
 * broke the context. Errors of the operation: MISMATCH, ABORTED, PEER_LOST, TIMED_OUT, RESOURCE,
 * INTERNAL. */

/* output[i] = op over all ranks of input[i], for i < count.
 * input: [count] elements. output: [count], the same on every rank, bit for bit. In place when
 * equal; otherwise they must not overlap. */
KOLO_API kolo_status kolo_allreduce(kolo_context* context, const void* input, void* output,
                                    size_t count, kolo_dtype dtype, kolo_op op,
                                    const kolo_options* options, kolo_request* request);

/* Every rank gets its own block of what kolo_allreduce() would give to all, with the same bits.
 * input: [size * count] elements: one block for each rank. output: [count]. In place when
 * output == input + place of this rank * count; otherwise they must not overlap.
 * With options.recv_counts, the same on all ranks, block r has recv_counts[r] elements, and count
 * is this rank's. */
KOLO_API kolo_status kolo_reduce_scatter(kolo_context* context, const void* input, void* output,
                                         size_t count, kolo_dtype dtype, kolo_op op,
                                         const kolo_options* options, kolo_request* request);

/* Every rank gets every rank's input, in rank order.
 * input: [count] elements, the same count on all ranks. output: [size * count]. In place when
 * input == output + place of this rank * count; otherwise they must not overlap. A scalar shape is
 * refused.
 * With options.recv_counts, the same on all ranks, rank r gives recv_counts[r] elements, and count
 * is this rank's. With options.allocate every rank may give what it likes, 0 included; only the
 * dimensions of shape after the first must agree. */
KOLO_API kolo_status kolo_allgather(kolo_context* context, const void* input, void* output,
                                    size_t count, kolo_dtype dtype, const kolo_options* options,
                                    kolo_request* request);

/* Rank r's block s becomes rank s's block r.
 * input: [size * count] elements: one block for each rank. output: the same. They must not overlap.
 * With options.send_counts block s has send_counts[s] elements, and count is their sum;
 * options.recv_counts[r] is then what this rank expects of rank r, which must send just that.
 * With options.allocate it takes what comes, and recv_counts is NULL. Blocks lie close together, in
 * rank order. */
KOLO_API kolo_status kolo_alltoall(kolo_context* context, const void* input, void* output,
                                   size_t count, kolo_dtype dtype, const kolo_options* options,
                                   kolo_request* request);

/* Every rank gets the root's input.
 * input: [count] elements; read on rank `root` only, elsewhere it is ignored and may be NULL.
 * output: [count], written on every rank. In place when equal. */
KOLO_API kolo_status kolo_broadcast(kolo_context* context, const void* input, void* output,
                                    size_t count, kolo_dtype dtype, int32_t root,
                                    const kolo_options* options, kolo_request* request);

/* Complete when all ranks have called it. Says nothing about other operations in progress. */
KOLO_API kolo_status kolo_barrier(kolo_context* context, const kolo_options* options,
                                  kolo_request* request);

/* This rank has no more data in this epoch: until all ranks of the process set have joined, their
 * reductions go on without it. It takes part with neutral elements, KOLO_AVG divides by the number
 * of ranks that have not joined, and kolo_result tells that number. Operations that need something
 * of every rank (allgather and alltoall, but for an allgather with allocate; broadcasts from a
 * joined root; products with a prescale) end with INVALID_ARGUMENT instead. Complete when all ranks
 * have joined; *last_rank (may be NULL) is then the one that did so last, whose state is the
 * newest. After that the set is as before, and its sequence numbers begin anew. Until then this
 * rank can submit nothing to the set.
 * Errors: INVALID_ARGUMENT (an option other than pset and callback, an open group),
 * DUPLICATE_NAME (joined already), and as for the collectives. */
KOLO_API kolo_status kolo_join(kolo_context* context, int32_t* last_rank,
                               const kolo_options* options, kolo_request* request);

/* ---- GPUs ---------------------------------------------------------------------------------
 *
 * Any collective takes buffers in the memory of a CUDA device: input and output on the same one. A
 * process may use several devices, each rank its own numbers. kolo loads CUDA and NCCL when it
 * first meets such a buffer; nothing of them is linked. The operation runs on a stream of kolo's
 * own:
 *   - Work that is queued on options.stream before the call is done before the input is read: the
 *     call records an event there. With NULL that is the default stream of the current device.
 *   - kolo_wait() and the like wait on the host for the result, as for any request.
 *     kolo_stream_wait() makes a stream wait for it, and the host does not.
 *   - A call with a NULL request and a stream returns as soon as the operation is launched, and
 *     makes that stream wait for it, as NCCL's own calls do. With NULL for both it blocks until the
 *     result is there.
 * An operation is launched when all ranks have submitted it, so nothing sits on the device waiting
 * for a late rank. Once it is launched its name is free, and what comes next under that name
 * follows it: a host may run ahead of its device. Apart from the kind of a pointer, the event, and
 * a stream's wait, which are asked of CUDA in the call, kolo's own thread does all of it: the
 * caller's current device stays as it is.
 *
 * By NCCL where that can do it. Else through pinned host memory, over the roads of the CPUs:
 * without NCCL, for two ranks on one GPU, when some ranks have the tensor in host memory or have
 * joined, for data types and operators that NCCL has not, and with the option deterministic, which
 * gives the bits of tensors in host memory; one line of the log says so. The order of additions by
 * NCCL is its own. Products and extremes with a scale are for the host. A scaled sum is scaled
 * once, by prescale * postscale, before it is added up.
 *
 * With options.allocate the output is on the input's device; who gives nothing, and has no pointer
 * to tell that, says it by options.device. What options.result asks to count is counted on the
 * device, by kolo's kernels (the library has them where it was built with CUDA's compiler, and CUDA
 * is 12.8 or newer), or on the way through host memory.
 *
 * Errors beside the usual ones: INVALID_ARGUMENT (buffers in different places, a stream of another
 * device or under capture), UNSUPPORTED (options.device names a device, and there is no CUDA).
 * CUDA_ERROR and NCCL_ERROR of an operation end the context: this rank gets them, the others
 * ABORTED with the same text; of a call alone, they are a refusal. */

/* Makes `stream`, a cudaStream_t, wait for the result of `request`: what is queued on it from now
 * on comes after. The host waits, at most `timeout_ms`, only until the operation is launched; where
 * it goes through host memory, that is until it is complete. The request stays as it was: it still
 * has to be completed or given up. KOLO_REQUEST_NULL is KOLO_OK at once. Errors: the operation's
 * own, if it has ended with one; KOLO_IN_PROGRESS when the time has passed; INVALID_ARGUMENT (no
 * such request; the stream is being captured), WOULD_DEADLOCK (in a callback, for what is not
 * launched; a member of an open group), NOT_INITIALIZED. */
KOLO_API kolo_status kolo_stream_wait(kolo_context* context, kolo_request request, void* stream,
                                      int64_t timeout_ms);

/* ---- Memory ------------------------------------------------------------------------------- */

/* Puts into *memory the address of `bytes` bytes (0 counts as 1) for tensors, aligned to a page at
 * least where ranks of this host share memory, else to 64; contents undefined. The other ranks of
 * this host read tensors that lie in such memory where they are, so reducing them needs no copies.
 * Owned by the context: give it back with kolo_free(), or kolo_shutdown() ends it.
 * Errors: INVALID_ARGUMENT (null), RESOURCE, NOT_INITIALIZED; *memory is then NULL. */
KOLO_API kolo_status kolo_alloc(kolo_context* context, size_t bytes, void** memory);

/* The same on a CUDA device: memory that NCCL has made, if it is there. With the option
 * register_memory NCCL is told of it, and reaches it in the fastest way it knows; then, where one
 * rank gives an operation such memory, all must, at the same distance from its beginning.
 * Errors: INVALID_ARGUMENT (null, no device of that number), UNSUPPORTED (no CUDA), RESOURCE,
 * CUDA_ERROR, NOT_INITIALIZED; *memory is then NULL. */
KOLO_API kolo_status kolo_alloc_device(kolo_context* context, int32_t device, size_t bytes,
                                       void** memory);

/* Gives memory of kolo_alloc() or kolo_alloc_device() back; NULL is allowed. No operation may be
 * using it. Errors: INVALID_ARGUMENT (not kolo_alloc's, or freed before), NOT_INITIALIZED. */
KOLO_API kolo_status kolo_free(kolo_context* context, void* memory);

/* ---- Groups ------------------------------------------------------------------------------- */

/* Opens a group for the calling thread: collectives that it submits until kolo_group_end() are one
 * unit, which starts when all of its members are ready on all ranks, and fails as a whole. Groups
 * pair by `name` (NULL or "": the next sequence number of their process set), members by theirs;
 * their order within the group does not matter. All members are of one process set.
 * Errors: INVALID_ARGUMENT (a group is open already; a bad name). */
KOLO_API kolo_status kolo_group_begin(kolo_context* context, const char* name);

/* Closes and submits the group that the calling thread has open. A NULL `request` blocks; otherwise
 * *request stands for the whole group. The members' own requests, if asked for, stay due. If any
 * member was refused, so is the group: none of it is done, no callback is called, and the other
 * ranks are told. An empty group is complete at once.
 * Errors: INVALID_ARGUMENT (no group is open), and as for the collectives. */
KOLO_API kolo_status kolo_group_end(kolo_context* context, kolo_request* request);

/* ---- Requests -----------------------------------------------------------------------------
 *
 * A request that these functions find complete is released and set to KOLO_REQUEST_NULL, unless it
 * is persistent or has an output of the library's. Completing KOLO_REQUEST_NULL, or a persistent
 * request that has not been started, is KOLO_OK at once. One request is completed by one thread. */

/* Makes one bounded attempt at progress; never blocks. *done is 1 if the operation is complete, and
 * the result is its status; *done is 0 and the result KOLO_OK if not yet.
 * Errors: INVALID_ARGUMENT (null, or no request of this context), NOT_INITIALIZED. */
KOLO_API kolo_status kolo_test(kolo_context* context, kolo_request* request, int32_t* done);

/* Blocks until the operation is complete, at most `timeout_ms` (KOLO_FOREVER: no limit;
 * 0: not at all), and returns its status, or KOLO_IN_PROGRESS when the time has passed and the
 * request is alive.
 * Errors: as kolo_test(); WOULD_DEADLOCK in a callback, or for a member of an open group. */
KOLO_API kolo_status kolo_wait(kolo_context* context, kolo_request* request, int64_t timeout_ms);

/* Completes all `count` requests within one `timeout_ms`. Returns the first error in their order;
 * else KOLO_IN_PROGRESS if some are not complete: those are the ones that are not yet
 * KOLO_REQUEST_NULL (persistent ones: ask kolo_test()). */
KOLO_API kolo_status kolo_wait_all(kolo_context* context, kolo_request* requests, size_t count,
                                   int64_t timeout_ms);

/* Starts `count` persistent requests, prepared by a collective whose option `persistent` was 1.
 * What that call was given (buffers, name, options) holds for every start, until
 * kolo_request_free().
 * Returns at once; each start is completed by kolo_wait() and the like, after which it may be
 * started again. On error none has been started.
 * Errors: INVALID_ARGUMENT (not persistent), DUPLICATE_NAME (still running), NOT_INITIALIZED. */
KOLO_API kolo_status kolo_start(kolo_context* context, const kolo_request* requests, size_t count);

/* The output of an operation with options.allocate that kolo_wait() or kolo_test() has found
 * complete: such a request lives on, with its output, until kolo_request_free(). *output has *count
 * elements (and is not NULL even for 0); *counts, if not NULL, becomes [size of the process set]
 * elements by rank that gave them. Both belong to the request. On a device the output is memory of
 * cudaMalloc()'s, which is freed, when the device has done all that is queued, soon after
 * kolo_request_free(), and by kolo_shutdown() at the latest.
 * Errors: INVALID_ARGUMENT (null, no such request, or not complete), the operation's own. */
KOLO_API kolo_status kolo_request_output(kolo_context* context, kolo_request request, void** output,
                                         size_t* count, const size_t** counts);

/* Gives a request up, and sets it to KOLO_REQUEST_NULL. An operation in progress goes on
 * unobserved, and its buffers stay kolo's until it ends (a callback still tells); a persistent one
 * is over.
 * KOLO_REQUEST_NULL is allowed. Errors: INVALID_ARGUMENT, NOT_INITIALIZED. */
KOLO_API kolo_status kolo_request_free(kolo_context* context, kolo_request* request);

static inline kolo_status kolo_init(const kolo_config* config, kolo_context** context) {
  return kolo_init_abi(config, context, KOLO_ABI_VERSION);
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KOLO_KOLO_H_ */
