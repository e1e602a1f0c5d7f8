/* Memory of a GPU for the trainer, and one stream on which its copies are queued. The model is
 * computed on the host: a trainer with kernels of its own would have no copies. device_cuda.c is
 * for builds with CUDA, device_none.c for others. What fails ends the process with a line on
 * stderr. One owner, one thread. */
#ifndef KOLO_EXAMPLES_DIGITS_DEVICE_H
#define KOLO_EXAMPLES_DIGITS_DEVICE_H

#include <stddef.h>

/* Takes device `local_rank` modulo their number for this process, and makes the stream. */
void device_open(int local_rank);
void device_close(void);

/* The cudaStream_t. */
void* device_stream(void);

float* device_alloc(size_t count);
void device_free(float* memory);

/* Queue a copy. `from` of device_put() may be written again at once; what device_get() fetches is
 * there after device_wait(). */
void device_put(float* on_device, const float* from, size_t count);
void device_get(float* to, const float* on_device, size_t count);
void device_wait(void);

#endif
